// Programs of tensors with one size that varies, for the suites of jit with `vary`: fixed ones by name, and random ones.

import type { Tensor, Tree } from "../index.js";
import * as weft from "../index.js";
import { Dice } from "./dice.js";

const f64 = { dtype: "float64" } as const;

export interface VaryingProgram {
  run: (...args: Tensor[]) => Tree;
  /** Arguments of size n. */
  args: (n: number) => Tensor[];
  vary: NonNullable<weft.JitOptions["vary"]>;
}

const numbers = (...shape: number[]): Tensor => weft.randn(shape, { seed: 7 + shape.length, ...f64 });
const rows = (run: (x: Tensor) => Tree): VaryingProgram => ({ run, args: (n) => [numbers(n, 3)], vary: [0] });
const middle = (run: (x: Tensor) => Tree): VaryingProgram => ({ run, args: (n) => [numbers(2, n, 3)], vary: { 0: 1 } });
const index = (n: number): Tensor => weft.arange(n);

export const varyingPrograms: Record<string, VaryingProgram> = {
  mean: rows((x) => [x.mean(0), x.mean(), weft.variance(x, 0)]),
  softmax: rows((x) => weft.softmax(x, 0)),
  "masked complex sum": rows((x) => x.cast("complex128").mul({ re: 0, im: 1 }).exp().sum(0)),
  "contraction over the size": rows((x) => weft.matmul(x.transpose(), x)),
  attention: middle((x) => {
    const scores = weft.matmul(x, x.transpose()).mul(0.5);
    const isSeen = index(x.shape[1]).reshape([-1, 1]).greaterEqual(index(x.shape[1]));
    return weft.matmul(weft.softmax(weft.where(isSeen, scores, Number.NEGATIVE_INFINITY), -1), x);
  }),
  "positions and prefix sums": rows((x) => x.add(index(x.shape[0]).cast("float64").reshape([-1, 1])).cumsum(0)),
  "merged axes": middle((x) => x.reshape([-1]).cumsum(0).sin()),
  "product with merged rows": middle((x) =>
    weft
      .matmul(x, weft.ones([3, 4], f64))
      .reshape([2, -1])
      .sum(1),
  ),
  sort: rows((x) => [weft.sort(x, 0), weft.sort(x, 0, { descending: true }), x.argmax(0), weft.argsort(x, 0)]),
  "largest elements": { run: (x: Tensor) => [weft.topk(x, 3), x.min(1)], args: (n) => [numbers(2, n)], vary: { 0: 1 } },
  "sort of integers": rows((x) => {
    const whole = x.mul(3).cast("int64");
    return [weft.sort(whole, 0), whole.max(0), whole.min(0), whole.argmin(0), whole.sum(0)];
  }),
  "bools and small integers": rows((x) => [x.greater(0).all(0), x.greater(2).any(0), x.mul(9).cast("int8").max(0)]),
  "half precision": rows((x) => x.cast("float16").max(0).cast("float64")),
  "last row": rows((x) => [x.index(-1), x.index("-3:"), x.index("1:").sub(x.index(":-1"))]),
  "reversed rows": rows((x) => [x.index("::-1"), weft.flip(x, 0).index(0), x.index("::2")]),
  concatenation: rows((x) => weft.concat([x, x.mul(2), weft.ones([1, 3], f64), x], 0)),
  roll: rows((x) => [weft.roll(x, 1, 0), weft.roll(x, -2, 0)]),
  padding: rows((x) => x.pad([[1, 2], [0, 0]]).cumsum(0)), // biome-ignore format: one line
  "padding to a fixed length": rows((x) => x.pad([[40 - x.shape[0], 0], [0, 0]])), // biome-ignore format: one line
  "rows by index": rows((x) => x.take([0, -1, 100, 2], 0)),
  "sums by index": rows((x) => weft.indexAdd(weft.zeros([4, 3], f64), index(x.shape[0]).mod(5).cast("int32"), x)),
  "gradient of a loss": {
    run: (x: Tensor, y: Tensor) =>
      weft.valueAndGrad((w: Tensor) => weft.matmul(x, w).tanh().sub(y).square().mean())(weft.ones([3, 2], f64)),
    args: (n) => [numbers(n, 3), numbers(n, 2).mul(0.3)],
    vary: [0, 1],
  },
  "gradient of gradients": rows((x) =>
    weft.grad((v: Tensor) =>
      weft
        .grad((u: Tensor) => u.pow(3).mean())(v)
        .square()
        .sum(),
    )(x),
  ),
  loop: rows((x) => weft.scan((c: Tensor, r: Tensor) => [c.mul(0.5).add(r), c.sum()], weft.zeros([3], f64), x)),
  "gradient of a loop": rows((x) =>
    weft.grad((v: Tensor) =>
      (weft.scan((c: Tensor, r: Tensor) => [c.mul(0.5).add(r).tanh(), c.sum()], weft.zeros([3], f64), v) as Tensor[])[0]
        .square()
        .sum(),
    )(x),
  ),
  "loop that stops early": rows((x) =>
    weft.scan((c: Tensor, r: Tensor) => [c.add(r.abs()), c.sum()], weft.zeros([3], f64), x, {
      while: (c: Tensor) => c.sum().less(9),
    }),
  ),
  "loops of all rows": rows((x) =>
    weft.vmap((r: Tensor) =>
      weft.whileLoop(
        (c: Tensor) => c.greater(0.1),
        (c: Tensor) => c.mul(0.5),
        r.sum().abs(),
        { maxTrips: 50 },
      ),
    )(x),
  ),
  "systems of equations": rows((x) => {
    const a = weft.matmul(x, x.transpose()).add(weft.eye(x.shape[0]).cast("float64"));
    return [weft.solve(a, x), weft.det(a), weft.cholesky(a)];
  }),
  "batch of matrices": {
    run: (x: Tensor) => weft.eigh(weft.matmul(x, x.transpose())),
    args: (n) => [numbers(n, 3, 3)],
    vary: [0],
  },
  "seeded random numbers": middle((x) => x.add(weft.rand(x.shape, { seed: 3, ...f64 }))),
  "random masks": middle((x) => weft.where(weft.bernoulli(0.5, x.shape, { seed: 4 }), x, 0)),
  "convolution along the size": {
    run: (x: Tensor) => {
      const loss = (w: Tensor): Tensor => weft.conv1d(x, w, { padding: 1 }).square().sum();
      return [weft.conv1d(x, weft.ones([2, 3, 3], f64), { stride: 2 }), weft.grad(loss)(weft.ones([2, 3, 3], f64))];
    },
    args: (n) => [numbers(2, 3, n)],
    vary: { 0: 2 },
  },
  "convolution of a batch": {
    run: (x: Tensor) =>
      weft.grad((w: Tensor) => weft.conv1d(x, w, { padding: 1 }).square().sum())(weft.ones([2, 3, 3], f64)),
    args: (n) => [numbers(n, 3, 5)],
    vary: [0],
  },
  "infinite and undefined elements": rows((x) => {
    const wild = x.sub(0.5).log();
    return [wild.max(0), wild.sum(0), weft.nanToNum(wild).mean(0), wild.isNaN().sum()];
  }),
};

type Step = (dice: Dice, x: Tensor, first: Tensor) => Tensor;

const axisOf = (dice: Dice, x: Tensor): number => dice.below(x.rank);

/** Steps of random programs; decisions depend on ranks, never on sizes. */
const steps: Step[] = [
  (dice, x) => dice.pick([weft.sin, weft.tanh, weft.sigmoid, weft.neg, weft.square])(x.clip(-3, 3)),
  (_, x) => x.add(x.mean(-1, { keepDims: true })),
  (dice, x) => {
    const axis = axisOf(dice, x);
    return dice
      .pick([weft.sum, weft.mean, weft.max, weft.min, weft.logsumexp])(x, axis, { keepDims: true })
      .add(x)
      .tanh();
  },
  (dice, x) => weft.softmax(x, axisOf(dice, x)),
  (dice, x) => x.cumsum(axisOf(dice, x)).tanh(),
  (dice, x) => weft.sort(x, axisOf(dice, x), { descending: dice.chance(50) }),
  (dice, x) => weft.flip(x, axisOf(dice, x)),
  (dice, x) => weft.roll(x, dice.below(5) - 2, axisOf(dice, x)),
  (dice, x) => {
    const axis = axisOf(dice, x);
    return weft.concat(dice.chance(50) ? [x, x.mul(0.5)] : [x.mul(0.5), x.abs()], axis);
  },
  (_, x) => x.reshape([-1, x.shape[x.rank - 1]]),
  (_, x) => x.reshape([-1]).reshape([-1, 1]).tanh(),
  (_, x) => x.permute(x.shape.map((__, i) => (i + 1) % x.rank)),
  (dice, x) => {
    const axis = axisOf(dice, x);
    const at = index(x.shape[axis])
      .cast("float64")
      .mul(0.1)
      .reshape(x.shape.map((d, i) => (i === axis ? d : 1)));
    return x.mul(at.cos());
  },
  (dice, x) => {
    const axis = axisOf(dice, x);
    return x.take(weft.argsort(x.sum(x.shape.map((_, i) => i).filter((i) => i !== axis))), axis);
  },
  (_, x, first) => {
    const flat = x.reshape([-1, x.shape[x.rank - 1]]);
    return weft.matmul(flat, weft.matmul(flat.transpose(), flat).tanh()).mul(first.mean()).tanh();
  },
  (dice, x) => x.add(weft.rand(x.shape, { seed: dice.below(99), ...f64 })),
  (dice, x) => weft.where(x.greater(x.mean(axisOf(dice, x), { keepDims: true })), x, x.mul(0.1)),
  (_, x) => weft.vmap((row: Tensor) => row.sub(row.max()))(x),
  (_, x) => weft.scan((c: Tensor, r: Tensor) => [c.mul(0.5).add(r).tanh(), c], x.sum(0).mul(0), x)[1] as Tensor,
  (dice, x) => x.pad(x.shape.map(() => [dice.below(2), dice.below(3)] as [number, number])),
];

/** A random program of a tensor [n, 3] or [2, n, 3]; half of them with its gradient. */
export function randomProgram(seed: number): VaryingProgram {
  const isMiddle = new Dice(seed).chance(40);
  const value = (x: Tensor): Tensor => {
    const dice = new Dice(seed * 7 + 1);
    let y = x;
    for (let i = 2 + dice.below(4); i > 0; i--) y = dice.pick(steps)(dice, y, x);
    return y;
  };
  const withGradient = new Dice(seed + 13).chance(50);
  const run = (x: Tensor): Tree =>
    withGradient ? [value(x), weft.grad((v: Tensor) => value(v).sin().mean())(x)] : value(x);
  return isMiddle ? middle(run) : rows(run);
}
