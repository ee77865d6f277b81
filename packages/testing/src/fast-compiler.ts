// A C compiler without optimization, for tests that compile much.
export * from "../../core/dist/testing/fast-compiler.js";
