// Exports of the runner, which `weft scale` uses.
export { launchers, type SlurmSite, type StudyLauncher } from "./launchers.js";
export { nvidiaSmi } from "./machine.js";
export { lastLines } from "./output.js";
export { PlanError, type PlannedRun } from "./plan.js";
export { probeEnvironment } from "./probe.js";
export { type FollowOptions, followStudy, submitStudy } from "./slurm.js";
export { runStudy, type StudyEvent, type StudyOptions, type StudyResult } from "./study.js";
export { type MachineReport, MachineWitness } from "./witness.js";
