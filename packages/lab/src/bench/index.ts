// Exports of the benchmark layer: verdicts, text and page of a benchmark record.
export { type BenchJudgment, judgeBench, type RowVerdict } from "./judge.js";
export { benchFiles } from "./page.js";
export { type BenchRecord, type BenchResult, type BenchRow, parseBenchRecord, type TimeSplit } from "./record.js";
export { benchText } from "./text.js";
