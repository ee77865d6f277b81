// Exports of the import layer: reads paths as studies.
export { type ConfigurationRow, readConfigurations } from "./configurations.js";
export { checkFile, ImportError, ProblemLog, readCsvFile, readLines } from "./lines.js";
export { readMetricsCsv } from "./metrics-csv.js";
export { type MlperfResult, mlperfResult, readMlperfLog } from "./mlperf.js";
export { readStudies } from "./read-studies.js";
export { readJsonFile, studyFromScaleDirectory } from "./scale-directory.js";
export { runFromTape } from "./tape.js";
