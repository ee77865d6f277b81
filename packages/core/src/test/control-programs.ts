// Programs with loops and branches that depend on values; testdata/control_flow.py has the same ones in JAX.
import type { Tensor } from "../index.js";
import * as weft from "../index.js";

const maxTrips = 150;

/** The first argument decides with others how the program runs; float arguments are differentiated. */
export const controlPrograms: Record<string, (...args: Tensor[]) => Tensor> = {
  newton: (a) =>
    weft.whileLoop(
      (c) => c.mul(c).sub(a).abs().greater(a.mul(1e-13)),
      (c) => c.add(a.div(c)).mul(0.5),
      weft.maximum(a, 1),
      { maxTrips },
    ),
  collatz: (x, n) =>
    weft.whileLoop(
      ([k]) => k.notEqual(1),
      ([k, acc]): [Tensor, Tensor] => {
        const next = weft.where(k.mod(2).equal(0), k.floorDivide(2), k.mul(3).add(1));
        return [next, acc.mul(0.9).add(x.mul(next.cast(x.dtype)).sin())];
      },
      [n, x] as [Tensor, Tensor],
      { maxTrips },
    )[1],
  power: (x, n) =>
    weft.foriLoop(0, n, (i, c) => c.mul(x).add(i.cast(x.dtype).mul(0.1)), weft.onesLike(x), { maxTrips: 10 }),
  choose: (x, y) =>
    weft.cond(
      x.sum().greater(0),
      (u, v) => u.sin().mul(v),
      (u, v) => u.mul(v).mul(v).add(v.exp()),
      x,
      y,
    ),
  table: (x, n) =>
    weft.switchCase(n, [(u: Tensor) => u.add(1), (u) => u.mul(u).mul(u), (u) => u.cos().mul(u.sum())], x),
  until: (x, limit) => {
    const [last, ys] = weft.scan(
      (c: Tensor, v: Tensor): [Tensor, Tensor] => {
        const next = c.add(v.mul(v));
        return [next, next.mul(v)];
      },
      weft.zeros([], { dtype: x.dtype }),
      x,
      { while: (c) => c.less(limit) },
    );
    return last.add(ys.mul(weft.arange(1, x.shape[0] + 1, 1, { dtype: x.dtype })).sum());
  },
  cache: (x, y, n) => {
    const moved = weft.dynamicUpdateSlice(x, y.mul(y), [n, n.sub(1)]);
    const row = weft.dynamicSlice(moved, [n.add(1), 0], [2, 3]);
    return moved.mul(0.5).add(weft.dynamicUpdateSlice(x, row.sin(), [0, 1]));
  },
  filled: (x, n) =>
    weft.foriLoop(
      0,
      n,
      (i, c: Tensor) => {
        const next = weft
          .dynamicSlice(c, [i], [1])
          .mul(x.slice([1], [2]))
          .add(i.cast(x.dtype));
        return weft.dynamicUpdateSlice(c, next, [i.add(1)]);
      },
      weft.concat([x, weft.zeros([4], { dtype: x.dtype })], 0),
      { maxTrips: 6 },
    ),
  nested: (x, n) =>
    weft.foriLoop(
      0,
      n,
      (i, c: Tensor) => {
        const inner = weft.foriLoop(0, i, (_, s: Tensor) => s.mul(0.5).add(s.mul(x).sin()), c, { maxTrips: 9 });
        return weft.cond(
          inner.sum().greater(1),
          () => inner.cos(),
          () => inner.add(0.3),
        );
      },
      x,
      { maxTrips: 9 },
    ),
};
