// Models as plain functions over parameter trees.
export { ignoredLabel, nextLabels, tokenLoss } from "./losses.js";
export { defineModel, drawParameter, type LossOptions, type Model, type ModelOptions } from "./model.js";
