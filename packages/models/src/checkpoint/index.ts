// Model folders: loading and saving.
export { type LoadOptions, loadPretrained, type PretrainedModel } from "./load.js";
export { type SaveOptions, savePretrained } from "./save.js";
