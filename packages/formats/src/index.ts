// The file formats of Weft: zod schemas, the types inferred from them, and the checks that readers use.
// `@weft/formats/csv`, `/stats` and `/text` hold the CSV reader, statistics and number formatting.

export { jsonSchemas } from "./json-schemas.js";

export { formatMetrics, type MetricsRow, metricsColumns } from "./metrics.js";
export {
  formatRecord,
  type ParsedRecord,
  parseRecord,
  type RecordOf,
  type RecordType,
  type RunLogRecord,
  recordSchema,
  recordSchemas,
  recordVersion,
  type TrainingEpoch,
  type TrainingStep,
} from "./records.js";
export { type RunFile, runFileSchema, type StudyFile, studyFileSchema, studyYamlSchema } from "./study.js";
export { type Instruction, type TapeLine, type TimedInstruction, tapeLineSchema, tapeVersion } from "./tape.js";
