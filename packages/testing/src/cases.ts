// Cases of every op.
export * from "../../core/dist/test/cases/index.js";
