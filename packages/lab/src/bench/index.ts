// Exports of the benchmark layer: verdicts, text and page of a benchmark record.
export { judgeBench } from "./judge.js";
export { benchFiles } from "./page.js";
export { type BenchRecord, parseBenchRecord } from "./record.js";
export { benchText } from "./text.js";
