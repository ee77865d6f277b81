// graph -> graph: gradients, forward mode, vmap, loops, simplification.
export { attentionNode, swapHeads } from "./attention.js";
export { type Band, bandIntersection, biasBand, seesEverywhere, splitBand, tightened } from "./attention-band.js";
export { belowZero, closedScore, plainBias } from "./attention-mask.js";
export { segmentIds } from "./attention-segments.js";
export { backward, forward } from "./gradient.js";
export { inlineCustom } from "./inline.js";
export { finishVariables, mergeFinishedGradients } from "./merge.js";
export { narrowed } from "./narrow.js";
export { type PaddedFunction, padFunction } from "./pad.js";
export { recognizeAttention } from "./recognize.js";
export { running, runningOf } from "./running.js";
export { makeScan, residualName, splitScan, stepCounter } from "./scan.js";
export { type CustomKernelSupport, simplify } from "./simplify.js";
export { batchNodes } from "./vmap.js";
export {
  closeOver,
  closeOverNew,
  copyGraph,
  dependents,
  followers,
  instantiate,
  rebuild,
  uniformValue,
} from "./walk.js";
