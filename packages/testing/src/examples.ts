// Checks of documentation.
export * from "../../core/dist/testing/examples.js";
