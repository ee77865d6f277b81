// Gradients as programs.
export * from "../../core/dist/test/derivatives.js";
