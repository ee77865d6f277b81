// The sharding benchmark: measures, and hands out plain data.

export { coreOrder } from "../device/index.js";
export type { JitRow, JitTimes } from "./jit-suite.js";
export { labelOf, parseSize, type RowSpec, rowsOf, type SuiteName } from "./rows.js";
export { type BenchOptions, type ResultRecord, type RowRecord, runBench, runJitBench } from "./run.js";
