// The public face of the data model: runs, studies, findings and the record format. Imports nothing of the lab.
export type { ConfigFacts, DeviceFacts, MachineFacts, ProbeFacts, Workload } from "./facts.js";
export { bySeverity, type Evidence, type Finding, type PredictedEffect, type Severity } from "./finding.js";
export {
  type EndRecord,
  type EpochRecord,
  type EventRecord,
  type FactsRecord,
  formatRecord,
  type LabRecord,
  type ParsedRecord,
  parseRecord,
  type RankRecord,
  type RunFile,
  type RunRecord,
  recordVersion,
  type SampleRecord,
  type StepRecord,
  type StudyFile,
} from "./records.js";
export {
  type DeviceSample,
  type Epoch,
  emptyRun,
  type HostSample,
  type ImportProblem,
  type RankInfo,
  type Run,
  type RunEvent,
  type RunSource,
  type RunStatus,
  type Step,
  type Study,
  type TraceSummary,
  type UtilisationSample,
} from "./run.js";
