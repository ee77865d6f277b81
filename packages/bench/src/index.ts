// The benchmarks behind `weft bench`: they measure and return plain data.

export { coreOrder } from "@weft/core/internal/device";
export type { JitRow } from "./jit-suite.js";
export { parseSize, type RowSpec, rowsOf } from "./rows.js";
export { type BenchOptions, runBench, runJitBench } from "./run.js";
