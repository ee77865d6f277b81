// Model folders: loading and saving.
export {
  adapterConfigName,
  adapterFileName,
  adapterMetadata,
  isTransposed,
  mergedWeight,
  openAdapters,
  peftPrefix,
} from "./adapters.js";
export { loadPretrained, type PretrainedModel } from "./load.js";
export { lazily, savePretrained } from "./save.js";
