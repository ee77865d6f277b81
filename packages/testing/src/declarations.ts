// Functions with options, found in compiled declarations, for the tests of other packages.
export * from "../../core/dist/testing/declarations.js";
