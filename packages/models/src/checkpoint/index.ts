// Model folders: loading and saving.
export { type LoadOptions, loadPretrained, type PretrainedModel } from "./load.js";
export { type SaveModelOptions, savePretrained } from "./save.js";
