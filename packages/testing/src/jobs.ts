// Jobs of the sharding tests.
export * from "../../core/dist/test/jobs.js";
