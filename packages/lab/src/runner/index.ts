// The public face of the runner: `weft scale` without its terminal.
export { type Launcher, launchers, type Site } from "./launchers.js";
export { describeMachine } from "./machine.js";
export { fillTemplate, PlanError, type PlannedRun, planRuns } from "./plan.js";
export { probeFolder, probeShutOut } from "./probe.js";
export { type FollowOptions, followStudy, submitStudy } from "./slurm.js";
export { runStudy, type StudyEvent, type StudyOptions, type StudyResult } from "./study.js";
