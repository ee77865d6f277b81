// Random placements.
export * from "../../core/dist/test/random-split.js";
