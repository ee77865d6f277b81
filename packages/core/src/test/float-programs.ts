// Random programs of floating-point operations: chains of every kind of operation on awkward shapes, with several results, and batches
// of small loops. The same seed gives the same program for the same inputs.
import { broadcastShapes } from "../graph/index.js";
import type { Tensor } from "../index.js";
import * as weft from "../index.js";
import { type CaseFn, type Host, Source } from "./cases/index.js";
import { Dice } from "./dice.js";
import { glimpse } from "./modes.js";

const f64 = { dtype: "float64" } as const;

type Step = (dice: Dice, x: Tensor, other: Tensor) => Tensor;

const axisOf = (dice: Dice, x: Tensor): number => dice.below(x.rank);
const axesOf = (dice: Dice, x: Tensor): number[] => x.shape.map((_, i) => i).filter(() => dice.chance(50));
const bounded = (x: Tensor): Tensor => x.tanh();

/** The sign of zero, which products with constants may change, would decide between pi and -pi. */
const angle = (a: Tensor, b: Tensor): Tensor => weft.atan2(a.add(0.003), b);

/** Needs an axis; scalars get one. */
const withAxis =
  (step: Step): Step =>
  (dice, x, other) =>
    step(dice, x.rank === 0 ? x.reshape([1]) : x, other);

export const smooth: Record<string, Step> = {
  unary: (dice, x) => dice.pick([weft.sin, weft.cos, weft.tanh, weft.sigmoid, weft.gelu, weft.neg, weft.erf])(x),
  bent: (_dice, x) => x.square().add(1).log().sub(x.mul(0.3).exp()).mul(0.5),
  binary: (dice, x, other) => {
    const y = broadcastShapes(x.shape, other.shape) === null ? other.mean() : other;
    return bounded(
      dice.pick([weft.add, weft.sub, weft.mul, (a: Tensor, b: Tensor) => a.div(b.square().add(1)), angle])(
        x,
        y.add(0.01),
      ),
    );
  },
  mask: (dice, x) => weft.where(weft.bernoulli(0.5, x.shape, { seed: dice.below(1000) }), x, x.mul(0.5).add(0.1)),
  reduce: (dice, x) => {
    const how = dice.pick([weft.sum, weft.mean, weft.logsumexp, weft.prod]);
    const axes = axesOf(dice, x);
    return bounded(
      how(x.size === 0 && how === weft.logsumexp ? x.add(1) : x, axes, { keepDims: dice.chance(50) }).mul(0.5),
    ).clip(-2, 2);
  },
  normalize: withAxis((dice, x) =>
    dice.pick([
      (t: Tensor) => t.softmax(axisOf(dice, t)),
      (t: Tensor) => weft.layerNorm(t, { axes: axisOf(dice, t), epsilon: 0.1 }),
      (t: Tensor) => t.logSoftmax(-1).mul(0.3),
    ])(x),
  ),
  cumsum: withAxis((dice, x) => bounded(x.cumsum(axisOf(dice, x)))),
  reshape: (dice, x) => {
    const shapes = [
      [-1],
      [1, -1],
      [-1, 1],
      ...(x.size % 2 === 0 && x.size > 0
        ? [
            [2, -1],
            [-1, 2],
          ]
        : []),
      ...(x.size % 3 === 0 && x.size > 0 ? [[3, -1]] : []),
    ];
    return x.size === 0 ? x.reshape([0]) : x.reshape(dice.pick(shapes));
  },
  permute: (dice, x) => {
    const order = x.shape.map((_, i) => i);
    for (let i = order.length - 1; i > 0; i--) {
      const j = dice.below(i + 1);
      [order[i], order[j]] = [order[j], order[i]];
    }
    return x.permute(order);
  },
  flip: (dice, x) => x.flip(axesOf(dice, x)),
  slice: withAxis((dice, x) => {
    const axis = axisOf(dice, x);
    const n = x.shape[axis];
    const spec = dice.pick(["::2", "1:", "::-1", ":-1", "::-2", "1::3", ":2"]);
    return n < 2 ? x : x.index(...x.shape.map((_, i) => (i === axis ? spec : ":")));
  }),
  pad: (dice, x) =>
    x.size > 60
      ? x
      : x.pad(
          x.shape.map(() => [dice.below(2), dice.below(3)] as const),
          dice.pick([0, 0.25]),
        ),
  expand: (dice, x) => {
    if (x.size > 60 || x.rank > 3) return x;
    const factors = weft.linspace(0.5, 1, dice.below(3) + 1, f64);
    return x.unsqueeze(0).mul(factors.reshape([-1, ...x.shape.map(() => 1)]));
  },
  concat: withAxis((dice, x) => {
    const axis = axisOf(dice, x);
    return x.size > 60 ? x : weft.concat([x, x.mul(-0.5), x.roll(1, axis)].slice(0, 1 + dice.below(3)), axis);
  }),
  stack: (dice, x) => (x.size > 60 || x.rank > 3 ? x : weft.stack([x, x.sin()], dice.below(x.rank + 1))),
  take: withAxis((dice, x) => {
    const axis = axisOf(dice, x);
    return x.shape[axis] === 0
      ? x
      : x.take(
          Array.from({ length: 1 + dice.below(4) }, () => dice.below(x.shape[axis])),
          axis,
        );
  }),
  scatter: withAxis((dice, x) => {
    const n = x.shape[x.rank - 1];
    const index = weft.randint(0, Math.max(1, n), x.shape, { seed: dice.below(1000) });
    return n === 0 ? x : bounded(x.scatterAdd(index, x.mul(0.3)).add(x.gather(index)));
  }),
  matmul: (dice, x) => {
    if (x.rank < 2) return x.size > 30 ? x : bounded(weft.outer(x, x.add(0.2)));
    return bounded(dice.chance(50) ? x.matmul(x.T) : x.T.matmul(x));
  },
  einsum: (_dice, x) =>
    x.rank === 2 && x.shape[0] < 8
      ? bounded(weft.einsum("ij,kj,ik->j", x, x.sin(), weft.ones([x.shape[0], x.shape[0]], f64).mul(0.2)))
      : x,
  complex: (dice, x) =>
    x
      .cast("complex128")
      .mul({ re: 0.5, im: 0.1 * (1 + dice.below(5)) })
      .exp()
      .mul({ re: 0, im: 1 })
      .real(),
  scan: withAxis((dice, x) => {
    if (x.shape[0] > 6) return x;
    const step = (c: Tensor, v: Tensor): [Tensor, Tensor] => [c.mul(0.5).add(v).tanh(), c.mul(v).add(x.mean())];
    const [last, ys] = weft.scan(step, weft.zeros(x.shape.slice(1), f64), x, { reverse: dice.chance(50) });
    return dice.chance(50) ? ys : last.add(x.index(x.shape[0] === 0 ? "0:" : 0).sum());
  }),
  vmap: withAxis((_dice, x) => weft.vmap((v: Tensor) => v.sub(v.mean()).mul(x.sum().sin()))(x)),
  checkpoint: (_dice, x) =>
    weft
      .checkpoint((v: Tensor) => v.sin().mul(v.cos().exp()))(x)
      .mul(0.4),
};

/** Continuous, but with kinks: exact ties may fall either way in gradients. */
export const kinked: Record<string, Step> = {
  extremum: withAxis((dice, x) =>
    x.size === 0 ? x : dice.pick([weft.max, weft.min])(x, [axisOf(dice, x)], { keepDims: dice.chance(50) }),
  ),
  order: withAxis((dice, x) => x.sort(axisOf(dice, x), { descending: dice.chance(50) })),
  maximum: (_dice, x) => x.maximum(x.neg().mul(0.3)).add(x.abs()).mul(0.5),
  clip: (_dice, x) => x.relu().sub(x.clip(-0.3, 0.6)),
};

const shapes = [[3, 4], [2, 1, 5], [7], [], [4, 3], [1], [2, 3, 2], [6, 2], [0, 3]];

/** A program of `length` random steps; the same seed gives the same program for the same inputs. */
export function program(seed: number, length: number, steps: Record<string, Step>): CaseFn {
  return (...inputs) => {
    const dice = new Dice(seed);
    const pool = [...inputs];
    const names = Object.keys(steps);
    for (let i = 0; i < length; i++) {
      const x = dice.chance(60) ? pool[pool.length - 1] : dice.pick(pool);
      const y = steps[dice.pick(names)](dice, x, dice.pick(pool));
      if (y.size <= 300) pool.push(glimpse(y));
    }
    return [pool[pool.length - 1], dice.pick(pool), dice.pick(pool).mul(2), pool[pool.length - 2]];
  };
}

type LoopStep = (dice: Dice, c: Tensor, x: Tensor, w: Tensor) => Tensor;

/** Steps on a small state; those of the second list need real numbers. */
const loopSteps: LoopStep[] = [
  (_d, c, _x, w) => w.matmul(c).mul(0.4),
  (_d, c, x) => c.mul(0.7).add(x),
  (_d, c, x) => c.mul(x).sub(c.mul(0.2)),
  (_d, c) => c.flip().add(c.mul(0.1)),
  (_d, c, _x, w) => w.adjoint().matmul(c).mul(0.3).add(c),
  (_d, c, x) => weft.outer(c, x.conj()).matmul(c).mul(0.2).add(x),
  (d, c) =>
    c
      .roll(1 + d.below(2))
      .mul(0.5)
      .add(c.mean()),
  (_d, c, x, w) => weft.where(w.real().index(0).greater(0), c, x),
  (_d, c, x) => c.add(weft.concat([x.index("1:"), x.index(":1")])).mul(0.5),
];
const realLoopSteps: LoopStep[] = [
  (_d, c) => c.tanh(),
  (_d, c, x) => c.softmax().add(x.sin()),
  (_d, c, x) => c.mul(x).exp().mul(0.2),
  (_d, c) => c.square().sum().add(1).rsqrt().mul(c),
];

/** A batch of small loops, which compiles to one kernel with one lane per problem. Inputs: xs, initial states, a shared matrix. */
export function loops(seed: number): CaseFn {
  return (xs, init, w) => {
    const dice = new Dice(seed + 5);
    const isComplex = seed % 3 === 0;
    const lift = (t: Tensor): Tensor => (isComplex ? t.cast("complex128").mul({ re: 1, im: 0.3 }) : t);
    const steps = Array.from({ length: 1 + dice.below(4) }, () =>
      dice.pick(isComplex ? loopSteps : [...loopSteps, ...realLoopSteps]),
    );
    const [reverse, result] = [dice.chance(50), dice.below(4)];
    const inner = dice.below(1000);
    const one = (x: Tensor, c0: Tensor, m: Tensor): Tensor[] => {
      const step = (c: Tensor, v: Tensor): [Tensor, Tensor | null] => {
        const again = new Dice(inner);
        const next = steps.reduce((state, f) => f(again, state, v, m), c);
        return [next, [null, c.sum(), next, weft.outer(c, next)][result]];
      };
      const [last, ys] = weft.scan(step, c0, x, { reverse });
      return ys === null ? [last] : [last, ys];
    };
    const shared = seed % 4 === 1;
    const outputs = weft.vmap(one, { inAxes: [0, 0, shared ? null : 0] })(
      lift(xs),
      lift(init),
      lift(shared ? w : w.unsqueeze(0).mul(weft.linspace(0.5, 1, xs.shape[0], f64).reshape([-1, 1, 1]))),
    );
    return outputs.flatMap((t) => (isComplex ? [t.real(), t.imag()] : [t]));
  };
}

export function loopInputs(seed: number): Host[] {
  const dice = new Dice(seed + 99);
  const source = new Source("float64", `loops ${seed}`);
  const [batch, length, n] = [1 + dice.below(9), dice.below(7), 2 + dice.below(3)];
  return [
    [batch, length, n],
    [batch, n],
    [n, n],
  ].map((shape) => source.between(-1, 1, shape));
}

export function inputsFor(seed: number): Host[] {
  const dice = new Dice(seed + 77);
  const source = new Source("float64", `fuzz ${seed}`);
  return [0, 1, 2].map(() => source.between(-1, 1, dice.pick(seed % 6 === 0 ? shapes : shapes.slice(0, -1))));
}
