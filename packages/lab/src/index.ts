// The public face of @weft/lab. Heavy modules (DuckDB, Vega) are loaded by the functions that need them, on their first call.
export * from "./bench/index.js";
export * from "./diagnosis/index.js";
export * from "./import/index.js";
export * from "./ledger/index.js";
export * from "./lint/index.js";
export * from "./metrics/index.js";
export * from "./model/index.js";
export * from "./predict/index.js";
export * from "./report/index.js";
export * from "./runner/index.js";
export * from "./store/index.js";
export * from "./trace/index.js";
export * from "./validity/index.js";
