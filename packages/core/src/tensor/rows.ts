// What quantiles with and without NaN share: lines of elements, and values between two of them.
import { numel, range } from "../graph/index.js";
import type { TensorLike } from "./convert.js";
import { equal, isFinite, sub, where } from "./math.js";
import { permute, reshape } from "./shape.js";
import type { Tensor } from "./tensor.js";

/** The elements along some axes as one last axis. */
export function rowsAlong(t: Tensor, reduced: readonly number[]): Tensor {
  const kept = range(t.rank).filter((i) => !reduced.includes(i));
  const sizes = (axes: readonly number[]): number[] => axes.map((i) => t.shape[i]);
  return reshape(permute(t, [...kept, ...reduced]), [...sizes(kept), numel(sizes(reduced))]);
}

/** The number at a share of the way from a to b, which may be infinite. */
export function between(a: Tensor, b: Tensor, weight: TensorLike): Tensor {
  const gap = b.sub(a);
  const isNear = isFinite(gap);
  const mixed = a.mul(sub(1, weight)).add(b.mul(weight));
  return where(isNear, a.add(where(isNear, gap, 0).mul(weight)), where(equal(weight, 0), a, mixed));
}
