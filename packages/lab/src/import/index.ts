// Exports of the import layer: reads paths as studies.
export { type ConfigurationRow, readConfigurations } from "./configurations.js";
export { checkFile, ImportError, type Line, ProblemLog, readCsv, readLines, readWhole, yamlProblem } from "./lines.js";
export { readMetricsCsv } from "./metrics-csv.js";
export { type MlperfEvent, type MlperfLog, type MlperfResult, mlperfResult, readMlperfLog } from "./mlperf.js";
export { readStudies, type StudyReadOptions } from "./read-studies.js";
export { readRecords } from "./records.js";
export { readJson, readScaleRun, studyFromScaleDirectory } from "./scale-directory.js";
export { studiesFromYaml } from "./study-yaml.js";
export { runFromTape } from "./tape.js";
