// Python environments of tests and comparisons.
export * from "../../core/dist/testing/python.js";
