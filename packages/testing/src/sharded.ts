// Problems whose sharded and unsharded results must agree.
export * from "../../core/dist/test/sharded.js";
