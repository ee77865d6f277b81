// The benchmarks behind `weft bench`: they measure and return plain data.

export { coreOrder } from "@weft/core/internal/device";
export type { JitRow, JitTimes } from "./jit-suite.js";
export { labelOf, parseSize, type RowSpec, rowsOf, type SuiteName } from "./rows.js";
export { type BenchOptions, type ResultRecord, type RowRecord, runBench, runJitBench } from "./run.js";
