// Benchmarks of the engine, judged and drawn.
export {
  type BenchJudgment,
  type Clock,
  type CountSummary as BenchSummary,
  clocks,
  judgeBench,
  type RowVerdict,
} from "./judge.js";
export { benchCharts, benchFiles } from "./page.js";
export {
  type BenchRecord,
  type BenchResult,
  type BenchRow,
  benchFormat,
  benchVersion,
  parseBenchRecord,
  splitParts,
  type TimeSplit,
} from "./record.js";
export { benchText } from "./text.js";
