// Traced programs and their results.
export * from "../../core/dist/test/traced.js";
