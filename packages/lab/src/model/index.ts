// The data model of the lab: runs, studies and findings. Record types come from @weft/formats.
export type { ParallelConfiguration } from "./configuration.js";
export {
  bySeverity,
  type Evidence,
  type EvidenceRank,
  evidence,
  type Finding,
  isHard,
  type PredictedEffect,
  type Reading,
  type RuleFinding,
  type Severity,
} from "./finding.js";
export {
  disturbanceIn,
  emptyRun,
  type ImportProblem,
  type RankInfo,
  type Run,
  type RunEvent,
  type RunSource,
  type Study,
  type TraceSummary,
  type UtilizationSample,
} from "./run.js";
