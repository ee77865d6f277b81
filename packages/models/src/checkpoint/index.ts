// Model folders: loading and saving.
export {
  adapterConfigName,
  adapterFileName,
  isTransposed,
  mergedWeight,
  openAdapters,
  peftPrefix,
} from "./adapters.js";
export { loadPretrained, type PretrainedModel } from "./load.js";
export { savePretrained } from "./save.js";
