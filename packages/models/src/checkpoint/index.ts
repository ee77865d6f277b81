// Model folders: loading and saving.
export {
  adapterConfigName,
  adapterFileName,
  isTransposed,
  mergedWeight,
  openAdapters,
  peftPrefix,
} from "./adapters.js";
export { type LoadOptions, loadPretrained, type PretrainedModel } from "./load.js";
export { type SaveModelOptions, savePretrained } from "./save.js";
