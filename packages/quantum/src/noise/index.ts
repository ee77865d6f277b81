// Noise spectra, the Lindblad rates that follow from them, and distributions of noise environments.
export { type PsdModel, psdModels, spectralDensity } from "./psd.js";
export {
  checkRates,
  dephasingRate,
  filterFunction,
  lindbladRates,
  type PulseSequence,
  relaxationRate,
} from "./rates.js";
export {
  checkDistribution,
  drawTasks,
  gammaTasks,
  type RandomLaw,
  rateFeatures,
  type TaskDistribution,
  type Tasks,
} from "./tasks.js";
