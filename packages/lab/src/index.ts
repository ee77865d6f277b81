// The public face of @weft/lab.
export * from "./model/index.js";
export * from "./runner/index.js";
export * from "./trace/index.js";
