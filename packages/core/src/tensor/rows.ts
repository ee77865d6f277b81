// What quantiles with and without NaN share: lines of elements, and values between two of them.
import { numel, range } from "../graph/index.js";
import type { TensorLike } from "./convert.js";
import { isInf } from "./elementwise.js";
import { equal, logicalAnd, logicalOr, where } from "./math.js";
import { permute, reshape } from "./shape.js";
import type { Tensor } from "./tensor.js";

/** The elements along some axes as one last axis. */
export function rowsAlong(t: Tensor, reduced: readonly number[]): Tensor {
  const kept = range(t.rank).filter((i) => !reduced.includes(i));
  const sizes = (axes: readonly number[]): number[] => axes.map((i) => t.shape[i]);
  return reshape(permute(t, [...kept, ...reduced]), [...sizes(kept), numel(sizes(reduced))]);
}

/** a + weight (b - a), without NaN where a and b are one infinity or the weight of an infinite b is 0. */
export function between(a: Tensor, b: Tensor, weight: TensorLike): Tensor {
  const isEnd = logicalAnd(isInf(b), logicalOr(a.equal(b), equal(weight, 0)));
  return a.add(where(isEnd, 0, b.sub(a)).mul(weight));
}
