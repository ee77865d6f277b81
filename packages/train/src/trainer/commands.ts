// What the commands of @weft/cli need of the trainer beside its public functions: configurations as files, ranks and their launchers.
export { checkConfig, type RawConfig, readConfig, resolveConfig, showConfig } from "./config.js";
export { launchElastic } from "./elastic.js";
export { openFineTuned } from "./export.js";
export { isRank } from "./group.js";
export { explainTraining } from "./open-run.js";
export { followLauncher, reportToParent } from "./ranks.js";
export { launchOnRay } from "./ray-ranks.js";
export { slurmScript } from "./slurm.js";
export { parseBytes } from "./state-placement.js";
