// Exports of the benchmark layer: verdicts, text and page of a benchmark record.
export {
  type BenchJudgment,
  type Clock,
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
