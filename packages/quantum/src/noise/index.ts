// Noise spectra, the Lindblad rates that follow from them, and distributions of noise environments.
export { checkModel, type PsdModel, type PsdParameters, psdModels, spectralDensity } from "./psd.js";
export {
  checkRates,
  dephasingRate,
  dephasingRule,
  filterFunction,
  lindbladRates,
  type RateOptions,
  relaxationRate,
  relaxationRule,
  type Sequence,
} from "./rates.js";
export {
  checkDistribution,
  drawTasks,
  gammaTasks,
  type Law,
  rateFeatures,
  type TaskDistribution,
  type Tasks,
} from "./tasks.js";
