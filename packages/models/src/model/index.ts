// Models as plain functions over parameter trees.
export { ignoredLabel, nextLabels, type ProblemType, problemTypes } from "./losses.js";
export { defineModel, drawParameter, type Model, type ModelOptions } from "./model.js";
