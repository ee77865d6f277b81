// What the command line and the benchmarks use of the lab beyond its public names: texts, charts, the ledger, lint, launchers.

export {
  type AuditFinding,
  auditSubmissions,
  readSubmissions,
  type Submission,
  submissionTables,
  vtrainTables,
} from "./atlas/index.js";
export {
  type BenchJudgment,
  type BenchRecord,
  type BenchResult,
  type BenchRow,
  benchFiles,
  benchText,
  judgeBench,
  parseBenchRecord,
  type RowVerdict,
  type TimeSplit,
} from "./bench/index.js";
export { causesOf, studyPoints, symptoms, type TraceChanges, traceChanges, traceFindings } from "./diagnosis/index.js";
export {
  type HangEvidence,
  type HangKind,
  type HangVerdict,
  hangText,
  judgeHang,
  liveHang,
  readHang,
} from "./hang/index.js";
export {
  type ConfigurationRow,
  mlperfResult,
  readConfigurations,
  readJsonFile,
  readMlperfLog,
  runFromTape,
  studyFromScaleDirectory,
} from "./import/index.js";
export * from "./index.js";
export {
  type Ledger,
  type LedgerOutcome,
  type LedgerPrediction,
  type LedgerScore,
  ledgerScore,
  makePrediction,
  predictionsOf,
  readLedger,
  recordPredictions,
  scoreLedger,
  scorePrediction,
} from "./ledger/index.js";
export { type LintOptions, type LintProblem, lintFiles } from "./lint/index.js";
export { type Fabric, fabrics, type ScalingClass, scalingClass } from "./metrics/index.js";
export { emptyRun } from "./model/index.js";
export {
  type BucketChoice,
  calibrateEffects,
  chooseConfigurations,
  type EffectEstimate,
  type EffectOutcome,
  effectCalibration,
  effectInterval,
  estimateAccumulation,
  estimateBuckets,
  estimateHalfGradients,
  estimateLargerBatch,
  estimateLoaders,
  fitParallelLaw,
  type MeasuredConfiguration,
  type OneDeviceRun,
  PointsError,
  predictFromOne,
  type ReadPoints,
  readPoints,
  type ScalingPrediction,
  type ScalingPredictions,
  type StepParts,
} from "./predict/index.js";
export {
  type ChartSpec,
  classText,
  effectText,
  efficiencyText,
  findingTitle,
  framed,
  gray,
  palette,
  performanceReport,
  plural,
  predictionChart,
  type ReportChart,
  ratioText,
  readingText,
  renderPng,
  renderSvg,
  tracePage,
  verdictExitCode,
  verdictExitCodes,
  verdictLine,
  type WriteOptions,
  workText,
} from "./report/index.js";
export {
  type FollowOptions,
  followStudy,
  lastLines,
  launchers,
  type MachineReport,
  MachineWitness,
  nvidiaSmi,
  PlanError,
  type PlannedRun,
  probeEnvironment,
  runStudy,
  type SlurmSite,
  type StudyEvent,
  type StudyLauncher,
  type StudyOptions,
  type StudyResult,
  submitStudy,
} from "./runner/index.js";
export { type ColumnType, studyTables, type Table, writeTables } from "./store/index.js";
export { type DiffRow, type MergeInput, parsePeaks, readTimeline } from "./trace/index.js";
