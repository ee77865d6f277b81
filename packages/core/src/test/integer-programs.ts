// Random programs of integers, gathers and orders, written twice while they are made: as tensors and as lines of NumPy. The same
// seed gives the same program; what NumPy says about it shares no code with the engine.

import * as weft from "../index.js";
import { type DType, type Tensor, tensor } from "../index.js";
import { Dice } from "./dice.js";
import { glimpse } from "./modes.js";

/** A value of the program: its tensor and the name that it has in Python. */
interface Twin {
  t: Tensor;
  py: string;
}

/** One kind of step: the tensor, and the Python expression of the operands' names. Null where the operands do not fit. */
type Step = (dice: Dice, x: Twin, y: Twin) => [Tensor, string] | null;

const axisOf = (dice: Dice, x: Twin): number => dice.below(x.t.rank);
const isUnsigned = (dtype: DType): boolean => dtype.startsWith("uint");
const numpyType = (dtype: DType): string => (dtype === "bool" ? "np.bool_" : `np.${dtype}`);
const fits = (a: readonly number[], b: readonly number[]): boolean =>
  a.length === b.length && a.every((d, i) => d === b[i] || d === 1 || b[i] === 1);

const arithmetic: [(a: Tensor, b: Tensor) => Tensor, (a: string, b: string) => string][] = [
  [weft.add, (a, b) => `${a} + ${b}`],
  [weft.sub, (a, b) => `${a} - ${b}`],
  [weft.mul, (a, b) => `${a} * ${b}`],
  [weft.maximum, (a, b) => `np.maximum(${a}, ${b})`],
  [weft.minimum, (a, b) => `np.minimum(${a}, ${b})`],
  [weft.mod, (a, b) => `np.mod(${a}, ${b})`],
  [weft.floorDivide, (a, b) => `np.floor_divide(${a}, ${b})`],
  [weft.bitwiseAnd, (a, b) => `${a} & ${b}`],
  [weft.bitwiseOr, (a, b) => `${a} | ${b}`],
  [weft.bitwiseXor, (a, b) => `${a} ^ ${b}`],
  [weft.leftShift, (a, b) => `np.left_shift(${a}, ${b})`],
  [weft.rightShift, (a, b) => `np.right_shift(${a}, ${b})`],
];

const reductions: [(x: Tensor, axis: number, options: { keepDims: boolean }) => Tensor, string][] = [
  [weft.sum, "np.sum"],
  [weft.prod, "np.prod"],
  [weft.max, "np.max"],
  [weft.min, "np.min"],
];

/** Indices into an axis of size n, made from any integers; some of them negative, which count from the end. */
const indexInto = (y: Twin, n: number): Twin => ({
  t: y.t
    .cast("int64")
    .mod(2 * n)
    .sub(n)
    .cast("int32"),
  py: `(np.mod(${y.py}.astype(np.int64), ${2 * n}) - ${n}).astype(np.int32)`,
});

const steps: Record<string, Step> = {
  binary: (dice, x, y) => {
    if (!fits(x.t.shape, y.t.shape)) return null;
    const [fn, py] = dice.pick(arithmetic);
    const dtype = weft.promoteTypes(x.t.dtype, y.t.dtype);
    // int64 with uint64 gives float64, which has too few digits for an exact comparison.
    if (dtype === "float64") return null;
    const cast = (v: Twin): string => `${v.py}.astype(${numpyType(dtype)})`;
    return [fn(x.t, y.t), py(cast(x), cast(y))];
  },
  unary: (dice, x) =>
    dice.pick<[Tensor, string]>([
      [x.t.neg(), `-${x.py}`],
      [x.t.abs(), `np.abs(${x.py})`],
      [x.t.sign(), `np.sign(${x.py})`],
      [x.t.square(), `${x.py} * ${x.py}`],
      [x.t.pow(3), `${x.py} ** 3`],
    ]),
  constant: (dice, x) => {
    const c = dice.pick([0, 1, -1, 2, 7, -3]);
    if (isUnsigned(x.t.dtype) && c < 0) return null;
    const py = `np.array(${c}, ${x.py}.dtype)`;
    return dice.pick<[Tensor, string]>([
      [x.t.add(c), `${x.py} + ${py}`],
      [x.t.mul(c), `${x.py} * ${py}`],
      [x.t.floorDivide(c), `np.floor_divide(${x.py}, ${py})`],
      [x.t.mod(c), `np.mod(${x.py}, ${py})`],
    ]);
  },
  reduce: (dice, x) => {
    const axis = axisOf(dice, x);
    const [fn, py] = dice.pick(reductions);
    if (x.t.shape[axis] === 0) return null;
    return [
      fn(x.t, axis, { keepDims: true }),
      `${py}(${x.py}.astype(wide(${x.py}, "${py}")), axis=${axis}, keepdims=True)`,
    ];
  },
  cumsum: (dice, x) => {
    const axis = axisOf(dice, x);
    return [x.t.cumsum(axis), `np.cumsum(${x.py}, ${axis}, dtype=total(${x.py}))`];
  },
  cumprod: (dice, x) => {
    const axis = axisOf(dice, x);
    return [x.t.cumprod(axis), `np.cumprod(${x.py}, ${axis}, dtype=total(${x.py}))`];
  },
  diff: (dice, x) => {
    const axis = axisOf(dice, x);
    return x.t.shape[axis] < 2 ? null : [weft.diff(x.t, axis), `np.diff(${x.py}, axis=${axis})`];
  },
  not: (_dice, x) => [weft.bitwiseNot(x.t), `~${x.py}`],
  order: (dice, x) => {
    const axis = axisOf(dice, x);
    const descending = dice.chance(50);
    if (dice.chance(50)) {
      const sorted = `np.sort(${x.py}, ${axis})`;
      return [x.t.sort(axis, { descending }), descending ? `np.flip(${sorted}, ${axis})` : sorted];
    }
    return [x.t.argsort(axis), `np.argsort(${x.py}, ${axis}, kind='stable').astype(np.int32)`];
  },
  best: (dice, x) => {
    const axis = axisOf(dice, x);
    if (x.t.shape[axis] === 0) return null;
    const [fn, py] = dice.pick<[typeof weft.argmax, string]>([
      [weft.argmax, "np.argmax"],
      [weft.argmin, "np.argmin"],
    ]);
    return [fn(x.t, axis, { keepDims: true }), `${py}(${x.py}, axis=${axis}, keepdims=True).astype(np.int32)`];
  },
  take: (dice, x, y) => {
    const axis = axisOf(dice, x);
    const n = x.t.shape[axis];
    if (n === 0 || y.t.size > 12 || x.t.size > 60) return null;
    const index = indexInto({ t: y.t.reshape([-1]), py: `${y.py}.reshape(-1)` }, n);
    return [x.t.take(index.t, axis), `np.take(${x.py}, ${index.py}, ${axis})`];
  },
  gather: (dice, x, y) => {
    const axis = axisOf(dice, x);
    if (x.t.shape[axis] === 0 || String(x.t.shape) !== String(y.t.shape)) return null;
    const index = indexInto(y, x.t.shape[axis]);
    return [x.t.gather(index.t, axis), `np.take_along_axis(${x.py}, ${index.py}.astype(np.int64), ${axis})`];
  },
  scatter: (dice, x, y) => {
    const axis = axisOf(dice, x);
    if (x.t.shape[axis] === 0 || String(x.t.shape) !== String(y.t.shape)) return null;
    const index = indexInto(y, x.t.shape[axis]);
    return [x.t.scatterAdd(index.t, x.t, axis), `add_along(${x.py}, ${index.py}, ${x.py}, ${axis})`];
  },
  where: (_dice, x, y) =>
    String(x.t.shape) === String(y.t.shape) && x.t.dtype === y.t.dtype
      ? [
          weft.where(x.t.less(y.t), x.t, y.t.mul(3)),
          `np.where(${x.py} < ${y.py}, ${x.py}, ${y.py} * np.array(3, ${y.py}.dtype))`,
        ]
      : null,
  count: (dice, x, y) => {
    if (!fits(x.t.shape, y.t.shape)) return null;
    const axis = axisOf(dice, x);
    return [
      x.t.lessEqual(y.t).sum(axis, { keepDims: true }),
      `np.sum(${x.py} <= ${y.py}, axis=${axis}, keepdims=True)`,
    ];
  },
  convert: (dice, x) => {
    const to = dice.pick<DType>([...dtypes, "float64", "float32"]);
    // Through floats only where they hold every digit.
    if (to === "float64" || to === "float32")
      return [
        x.t.mod(100).cast(to).mul(0.5).floor().cast("int32"),
        `np.floor(np.mod(${x.py}, np.array(100, ${x.py}.dtype)) * 0.5).astype(np.int32)`,
      ];
    return [x.t.cast(to), `${x.py}.astype(${numpyType(to)})`];
  },
  matmul: (_dice, x) => (x.t.rank === 2 && x.t.size < 60 ? [x.t.matmul(x.t.T), `${x.py} @ ${x.py}.T`] : null),
  permute: (dice, x) => {
    const order = x.t.shape.map((_, i) => i);
    for (let i = order.length - 1; i > 0; i--) {
      const j = dice.below(i + 1);
      [order[i], order[j]] = [order[j], order[i]];
    }
    return [x.t.permute(order), `np.transpose(${x.py}, [${order}])`];
  },
  flip: (dice, x) => {
    const axis = axisOf(dice, x);
    return [x.t.flip([axis]), `np.flip(${x.py}, ${axis})`];
  },
  slice: (dice, x) => {
    const axis = axisOf(dice, x);
    if (x.t.shape[axis] < 2) return null;
    const spec = dice.pick(["::2", "1:", "::-1", ":-1", ":2"]);
    const specs = x.t.shape.map((_, i) => (i === axis ? spec : ":"));
    return [x.t.index(...specs), `${x.py}[${specs.join(", ")}]`];
  },
  pad: (_dice, x) =>
    x.t.size > 60 ? null : [x.t.pad(x.t.shape.map(() => [1, 0] as const)), `np.pad(${x.py}, [(1, 0)] * ${x.t.rank})`],
  concat: (dice, x) => {
    const axis = axisOf(dice, x);
    return x.t.size > 60 ? null : [weft.concat([x.t, x.t.neg()], axis), `np.concatenate([${x.py}, -${x.py}], ${axis})`];
  },
  reshape: (_dice, x) => [x.t.reshape([1, -1]), `${x.py}.reshape(1, -1)`],
};

const shapes = [[3, 4], [2, 1, 5], [7], [4, 3], [1], [2, 3, 2], [4, 4]];
const dtypes: readonly DType[] = ["int32", "int64", "uint8", "int8", "int16", "uint16", "uint32", "uint64"];
const extremes = [0, 1, -1, 2147483647, -2147483648, 255, 2 ** 40, -(2 ** 52)];

export interface IntegerProgram {
  inputs: { shape: number[]; dtype: DType; data: number[] }[];
  /** Makes the tensors, and writes the lines of Python on the way. */
  run: (inputs: readonly Tensor[], lines?: string[]) => Tensor[];
}

export function integerProgram(seed: number): IntegerProgram {
  const dice = new Dice(seed * 31 + 7);
  const inputs = [0, 1, 2].map((i) => {
    const shape = dice.pick(i === 1 ? [shapes[0]] : shapes);
    const dtype = dice.pick(dtypes);
    const size = shape.reduce((n, d) => n * d, 1);
    const low = isUnsigned(dtype) ? 0 : -20;
    const bits = Math.min(60, Number(dtype.replace(/\D/g, "")));
    const [least, most] = isUnsigned(dtype) ? [0, 2 ** bits - 1] : [-(2 ** (bits - 1)), 2 ** (bits - 1) - 1];
    const limit = (x: number): number => Math.min(most, Math.max(least, x));
    const data = Array.from({ length: size }, () =>
      limit(dice.chance(15) ? dice.pick(extremes) : low + dice.below(41)),
    );
    return { shape: [...shape], dtype, data };
  });
  const length = 5 + dice.below(10);
  const start = dice.below(2 ** 30);
  const run = (tensors: readonly Tensor[], lines: string[] = []): Tensor[] => {
    const again = new Dice(start);
    const pool: Twin[] = tensors.map((t, i) => ({ t, py: `v${i}` }));
    for (let i = 0; i < length; i++) {
      const x = again.chance(60) ? pool[pool.length - 1] : again.pick(pool);
      const name = again.pick(Object.keys(steps));
      const made = steps[name](again, x, again.pick(pool));
      if (made === null || made[0].size > 300 || made[0].rank === 0) continue;
      const py = `v${pool.length}`;
      lines.push(`${py} = ${made[1]}`);
      pool.push({ t: glimpse(made[0]), py });
    }
    const results = [pool[pool.length - 1], pool[Math.max(0, pool.length - 2)], again.pick(pool)];
    lines.push(`results.append([show(v) for v in [${results.map((r) => r.py)}]])`);
    return results.map((r) => r.t);
  };
  return { inputs, run };
}

export const uploadInteger = ({ shape, dtype, data }: IntegerProgram["inputs"][number]): Tensor =>
  tensor(BigInt64Array.from(data, BigInt), { shape, dtype: "int64" }).cast(dtype).realize();

const prologue = `
import json, numpy as np
np.seterr(all="ignore")
results = []
def show(v): return [list(v.shape), [str(int(x)) for x in v.reshape(-1)]]
def total(v): return np.uint64 if v.dtype.kind == "u" else np.int64
def wide(v, fn): return total(v) if fn in ("np.sum", "np.prod") else v.dtype
def add_along(base, index, updates, axis):
    out = base.copy()
    for at in np.ndindex(index.shape):
        i = index[at] + (base.shape[axis] if index[at] < 0 else 0)
        out[at[:axis] + (i,) + at[axis + 1:]] += updates[at]
    return out
`;

/** The programs in Python; it prints one list of [shape, digits] per program. */
export function pythonOf(programs: readonly IntegerProgram[]): string {
  const lines: string[] = [prologue];
  for (const { inputs, run } of programs) {
    inputs.forEach(({ shape, dtype, data }, i) => {
      const digits = data.map((x) => BigInt(x));
      lines.push(`v${i} = np.array([${digits}], np.int64).astype(${numpyType(dtype)}).reshape([${shape}])`);
    });
    run(inputs.map(uploadInteger), lines);
  }
  return `${lines.join("\n")}\nprint(json.dumps(results))\n`;
}
