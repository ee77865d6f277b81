// What only other packages of the workspace use, with the public API: `@weft/formats/internal`. It may change without notice.

export { lenientParser, unknownFields } from "./check.js";
export {
  type ConfigFacts,
  type DeviceFacts,
  type MachineFacts,
  type ProbeFacts,
  probeFactsSchema,
  type Workload,
  workloadSchema,
} from "./facts.js";
export * from "./index.js";
export { describeIssue, describeUnknownKeys } from "./issues.js";
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
export { type MetricsColumn, metricsColumn, metricsHeader } from "./metrics.js";
export type { DeviceSample, HostSample, RunStatus } from "./records.js";
export {
  type PointMetric,
  type PointSet,
  pointsSchema,
  workloadKeys,
  type YamlRun,
  type YamlStudy,
  yamlRunSchema,
  yamlStudySchema,
} from "./study.js";
export { instructionSchema, tapeHeader, timedInstructionSchema } from "./tape.js";
