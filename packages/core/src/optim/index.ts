// @weft/core/optim: optimizers as pure functions on parameter trees, with PyTorch's semantics.
// `const [params, state] = optimizer.update(params, grads, state)`; both may be donated to a jitted step.
export { type AccumulateState, accumulate } from "./accumulate.js";
export { type AdamState, adam, adamW } from "./adam.js";
export { adadelta, adagrad, adamax, lamb, lion, nadam, radam } from "./adaptive.js";
export { clipByGlobalNorm, globalNorm } from "./clip.js";
export type { LearningRate, Optimizer } from "./common.js";
export { type LossScaled, lossScaled, type ScaledState } from "./loss-scaling.js";
export { layerDecay, layerOf, ratesByName, withRates } from "./rates.js";
export { type RmspropState, rmsprop } from "./rmsprop.js";
export { decay, type LearningRateSchedule, schedule } from "./schedule.js";
export { type SgdState, sgd } from "./sgd.js";
