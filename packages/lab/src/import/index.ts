// The public face of import: paths in, studies out.
export { ImportError, type Line, ProblemLog, readLines } from "./lines.js";
export { type MetricsCsv, readMetricsCsv } from "./metrics-csv.js";
export { type ReadOptions, readStudies } from "./read-studies.js";
export { readRecords } from "./records.js";
export { readJson, readScaleRun, studyFromScaleDirectory } from "./scale-directory.js";
export { studiesFromYaml } from "./study-yaml.js";
export { runFromTape } from "./tape.js";
