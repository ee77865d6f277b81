// Models as plain functions over parameter trees.
export { ignoredLabel, nextLabels, type ProblemType } from "./losses.js";
export { defineModel, drawParameter, type Model, type ModelLossOptions, type ModelOptions } from "./model.js";
