// The file formats of Weft: zod schemas, the types inferred from them, and the checks that readers use.
// `@weft/formats/csv`, `/stats` and `/text` hold the CSV reader, statistics and number formatting.
export { type Lenient, lenientParser, unknownFields } from "./check.js";
export {
  type ConfigFacts,
  configFactsSchema,
  type DeviceFacts,
  deviceFactsSchema,
  type MachineFacts,
  machineFactsSchema,
  type ProbeFacts,
  probeFactsSchema,
  type Workload,
  workloadSchema,
} from "./facts.js";
export { describeIssue, describeUnknownKeys } from "./issues.js";
export { jsonSchemas } from "./json-schemas.js";
export {
  type ForeignKey,
  readSetting,
  setValue,
  suggestKey,
  type Translated,
  translateKeys,
  valueOf,
  withSettings,
} from "./keys.js";
export { mostDevices } from "./limits.js";
export {
  formatMetrics,
  type MetricsColumn,
  type MetricsRow,
  metricsColumn,
  metricsColumns,
  metricsHeader,
  metricsRowSchema,
} from "./metrics.js";
export {
  type DeviceSample,
  deviceSampleSchema,
  formatRecord,
  type HostSample,
  hostSampleSchema,
  type ParsedRecord,
  parseRecord,
  type RecordOf,
  type RecordType,
  type RunLogRecord,
  type RunStatus,
  recordSchema,
  recordSchemas,
  recordVersion,
  runStatusSchema,
  type TrainingEpoch,
  type TrainingStep,
} from "./records.js";
export {
  type PointMetric,
  type PointSet,
  pointsSchema,
  type RunFile,
  runFileSchema,
  type StudyFile,
  studyFileSchema,
  studyYamlSchema,
  workloadKeys,
  type YamlRun,
  type YamlStudy,
  yamlRunSchema,
  yamlStudySchema,
} from "./study.js";
export {
  type Instruction,
  instructionSchema,
  type TapeLine,
  type TimedInstruction,
  tapeHeader,
  tapeLineSchema,
  tapeVersion,
  timedInstructionSchema,
} from "./tape.js";
