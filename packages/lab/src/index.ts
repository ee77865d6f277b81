// The public face of @weft/lab.
export * from "./model/index.js";
