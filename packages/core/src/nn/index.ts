// @weft/core/nn: layers as plain functions over parameter trees. `layer.init(options, key)` initializes parameters, `layer.apply(params,
// x, ...)` computes; names, shapes and initial distributions are PyTorch's.
export * from "./attention.js";
export { classCounts } from "./class-counts.js";
export * from "./classifier.js";
export * from "./images.js";
export * from "./layers.js";
export * from "./mixed.js";
export * from "./model.js";
export * from "./recurrent.js";
export { countParameters, loadStateDict, mapNamed, type StateDict, stateDict } from "./state.js";
export * from "./transformer.js";
