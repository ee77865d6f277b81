// Functions that `numpy` and `numpy.linalg` of jax-js share.
import { lift, tensorOf, weft, wrap } from "./array.mjs";

export const tensordot = lift(weft.tensordot);
export const trace = (x, offset = 0, a = 0, b = 1) => wrap(tensorOf(x)).diagonal(offset, a, b).sum(-1);
