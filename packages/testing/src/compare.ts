// Comparison of tensors with expected values.
export * from "../../core/dist/test/compare.js";
