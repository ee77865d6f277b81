// Public tensor API: Tensor, functions, random numbers, linear algebra, trees, transforms.
export * from "./activations.js";
export { named, type ShardSpec, shard } from "./annotate.js";
export * from "./attention.js";
export * from "./bags.js";
export * from "./class-losses.js";
export * from "./control.js";
export {
  type ConvOptions,
  conv1d,
  conv2d,
  conv3d,
  convTranspose1d,
  convTranspose2d,
  convTranspose3d,
  type Padding,
} from "./conv.js";
export type { ComplexNumber, TensorLike } from "./convert.js";
export {
  arange,
  empty,
  emptyLike,
  eye,
  fromBuffer,
  full,
  fullLike,
  linspace,
  type NestedArray,
  ones,
  onesLike,
  type TypedArray,
  tensor,
  zeros,
  zerosLike,
} from "./create.js";
export * from "./cumulative.js";
export * from "./custom.js";
export * as debug from "./debug.js";
export * from "./distributions.js";
export * from "./dtypes.js";
export * from "./dynamic.js";
export * from "./einops.js";
export * from "./einsum.js";
export * from "./elementary.js";
export * from "./elementwise.js";
export * from "./fft.js";
export * from "./grids.js";
export {
  argpartition,
  argsort,
  gather,
  type IndexSpec,
  index,
  indexAdd,
  oneHot,
  partition,
  scatterAdd,
  sort,
  take,
  topk,
} from "./indexing.js";
export * from "./integers.js";
export * from "./jacobian.js";
export { type JitOptions, type Jitted, jit } from "./jit.js";
export {
  adjoint,
  cholesky,
  det,
  diag,
  diagonal,
  eigh,
  inv,
  norm,
  qr,
  solve,
  svd,
  trace,
  triangularSolve,
  tril,
  triu,
} from "./linalg.js";
export * from "./losses.js";
export * from "./mapping.js";
export * from "./math.js";
export * from "./matrix-functions.js";
export {
  binaryCrossEntropyWithLogits,
  cosineSimilarity,
  elu,
  gelu,
  huberLoss,
  l1Loss,
  layerNorm,
  leakyRelu,
  logSigmoid,
  logSoftmax,
  mish,
  mseLoss,
  relu,
  selu,
  sigmoid,
  silu,
  softmax,
  softplus,
} from "./nnfunctions.js";
export * from "./normalize.js";
export * from "./padding.js";
export * from "./patches.js";
export * as poly from "./polynomials.js";
export * from "./pool.js";
export { type PrecisionName, setPrecision, withPrecision } from "./precision.js";
export {
  bernoulli,
  dropoutMask,
  type Key,
  key,
  manualSeed,
  nextKey,
  permutation,
  type RandomOptions,
  rand,
  randint,
  randn,
  splitKey,
} from "./random.js";
export {
  type Axes,
  all,
  any,
  argmax,
  argmin,
  countNonzero,
  logsumexp,
  max,
  mean,
  min,
  prod,
  std,
  stopGradient,
  sum,
  variance,
} from "./reduce.js";
export * from "./resize.js";
export * from "./samples.js";
export * from "./scatter.js";
export { scope } from "./scope.js";
export * from "./selection.js";
export * from "./shape.js";
export * as signal from "./signal.js";
export { digamma, erfinv, gammaln, i0 } from "./special.js";
export * as special from "./special-functions.js";
export * from "./statistics.js";
export { type Data, type DataOf, type NestedData, Tensor } from "./tensor.js";
export * from "./transforms.js";
export { flattenTree, type Tree, treeLeaves, treeMap } from "./tree.js";
export * from "./windows.js";
