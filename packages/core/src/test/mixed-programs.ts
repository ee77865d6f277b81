// Random programs of mixed dtypes (half, narrow and complex types, bool) on shapes of every kind (scalars, empty axes, axes of one
// element that broadcast), with NaN and infinities, written twice while they are made: as tensors and as lines of Python. Every finite
// value is a small multiple of one half, which all dtypes hold exactly, so that NumPy computes it in float64 and no rounding
// decides; the rules of dtypes are written once more in Python (mixed-programs.py).
import * as weft from "../index.js";
import { type DType, type Tensor, tensor } from "../index.js";
import { Dice } from "./dice.js";
import { glimpse } from "./modes.js";

/** A value of the program: its tensor and the name that it has in Python. */
interface Twin {
  t: Tensor;
  py: string;
}

type Made = [Tensor, string] | null;
/** One kind of step. Null where the operands do not fit. */
type Step = (dice: Dice, x: Twin, y: Twin) => Made;

const ints: readonly DType[] = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"];
const floats: readonly DType[] = ["float16", "bfloat16", "float32", "float64"];
const complexes: readonly DType[] = ["complex64", "complex128"];
const isInt = ({ t }: Twin): boolean => ints.includes(t.dtype);
const isFloat = ({ t }: Twin): boolean => floats.includes(t.dtype);
const isComplex = ({ t }: Twin): boolean => complexes.includes(t.dtype);
const isBool = ({ t }: Twin): boolean => t.dtype === "bool";
const isOrdered = (x: Twin): boolean => !isComplex(x);

/** Whether two shapes broadcast. */
function fits(a: readonly number[], b: readonly number[]): boolean {
  for (let i = 1; i <= Math.min(a.length, b.length); i++) {
    const [p, q] = [a[a.length - i], b[b.length - i]];
    if (p !== q && p !== 1 && q !== 1) return false;
  }
  return true;
}

/** Brings values back into the range where every dtype is exact. */
function tame([t, py]: [Tensor, string]): [Tensor, string] {
  const half = (x: Tensor): Tensor => x.clip(-8, 8).mul(2).floor().div(2).cast(x.dtype);
  if (complexes.includes(t.dtype)) return [weft.complex(half(t.real()), half(t.imag())), `tame(${py})`];
  if (floats.includes(t.dtype)) return [half(t), `tame(${py})`];
  return t.dtype === "bool" ? [t, py] : [t.mod(9), `tame(${py})`];
}

const axisOf = (dice: Dice, { t }: Twin): number | null =>
  t.rank === 0 ? null : dice.below(t.rank) - dice.below(2) * t.rank;

const orders: [(a: Tensor, b: Tensor) => Tensor, string][] = [
  [weft.less, "np.less"],
  [weft.lessEqual, "np.less_equal"],
  [weft.greater, "np.greater"],
  [weft.greaterEqual, "np.greater_equal"],
];
const equalities: typeof orders = [
  [weft.equal, "np.equal"],
  [weft.notEqual, "np.not_equal"],
];
const arithmetic: typeof orders = [
  [weft.add, "np.add"],
  [weft.sub, "np.subtract"],
  [weft.mul, "np.multiply"],
];
const extrema: typeof orders = [
  [weft.maximum, "np.maximum"],
  [weft.minimum, "np.minimum"],
];
const logical: typeof orders = [
  [weft.logicalAnd, "np.logical_and"],
  [weft.logicalOr, "np.logical_or"],
  [weft.logicalXor, "np.logical_xor"],
];

const binary = (dice: Dice, table: typeof orders, helper: string, x: Twin, y: Twin): [Tensor, string] => {
  const [fn, py] = dice.pick(table);
  return [fn(x.t, y.t), `${helper}(${py}, ${x.py}, ${y.py})`];
};

const view = (x: Twin, t: Tensor, expression: string): [Tensor, string] => [t, `V(${x.py}.a${expression}, ${x.py}.d)`];

const moves: Record<string, Step> = {
  permute: (dice, x) => {
    const order = x.t.shape.map((_, i) => i).sort(() => dice.below(3) - 1);
    return view(x, x.t.permute(order), `.transpose([${order}])`);
  },
  flip: (dice, x) => {
    const axis = axisOf(dice, x);
    return axis === null ? null : [x.t.flip([axis]), `V(np.flip(${x.py}.a, ${axis}), ${x.py}.d)`];
  },
  slice: (dice, x) => {
    if (x.t.rank === 0) return null;
    const specs = x.t.shape.map(() =>
      dice.pick([":", "::-1", "1:", ":-1", "::2", "::-2", "-1::-2", "2:1", "-2:", "5:0:-2"]),
    );
    return view(x, x.t.index(...specs), `[${specs}]`);
  },
  newaxis: (dice, x) => {
    const axis = dice.below(x.t.rank + 1);
    return x.t.rank > 3 ? null : [x.t.unsqueeze(axis), `V(np.expand_dims(${x.py}.a, ${axis}), ${x.py}.d)`];
  },
  squeeze: (_dice, x) => view(x, x.t.squeeze(), ".squeeze()"),
  reshape: (dice, x) => {
    const shape = dice.pick([[x.t.size], [1, x.t.size], [x.t.size, 1, 1]]);
    return view(x, x.t.reshape(shape), `.reshape([${shape}])`);
  },
  expand: (dice, x) => {
    const shape = [dice.pick([0, 1, 2, 3]), ...x.t.shape.map((n) => (n === 1 ? dice.pick([0, 1, 3]) : n))];
    return [weft.broadcastTo(x.t, shape), `V(np.broadcast_to(${x.py}.a, [${shape}]), ${x.py}.d)`];
  },
  roll: (dice, x) => {
    const axis = axisOf(dice, x);
    const by = dice.below(7) - 3;
    return axis === null ? null : [weft.roll(x.t, by, axis), `V(np.roll(${x.py}.a, ${by}, ${axis}), ${x.py}.d)`];
  },
  pad: (dice, x) => {
    const pads = x.t.shape.map(() => [dice.below(3), dice.below(2)] as [number, number]);
    return x.t.rank === 0 ? null : [x.t.pad(pads), `V(np.pad(${x.py}.a, [${pads.map((p) => `(${p})`)}]), ${x.py}.d)`];
  },
  repeat: (dice, x) => {
    const axis = axisOf(dice, x);
    return axis === null ? null : [weft.repeat(x.t, 2, axis), `V(np.repeat(${x.py}.a, 2, ${axis}), ${x.py}.d)`];
  },
  tile: (dice, x) => {
    const counts = x.t.shape.map(() => 1 + dice.below(2));
    return x.t.rank === 0 ? null : [weft.tile(x.t, counts), `V(np.tile(${x.py}.a, [${counts}]), ${x.py}.d)`];
  },
  triangle: (dice, x) => {
    const k = dice.below(3) - 1;
    if (x.t.rank < 2) return null;
    return dice.chance(50)
      ? [weft.tril(x.t, k), `V(np.tril(${x.py}.a, ${k}), ${x.py}.d)`]
      : [weft.triu(x.t, k), `V(np.triu(${x.py}.a, ${k}), ${x.py}.d)`];
  },
  concat: (dice, x, y) => {
    const axis = axisOf(dice, x);
    if (axis === null || x.t.rank !== y.t.rank) return null;
    const at = (axis + x.t.rank) % x.t.rank;
    if (x.t.shape.some((n, i) => i !== at && n !== y.t.shape[i])) return null;
    return [weft.concat([x.t, y.t, x.t], axis), `joined(np.concatenate, [${x.py}, ${y.py}, ${x.py}], ${axis})`];
  },
  stack: (dice, x, y) => {
    if (String(x.t.shape) !== String(y.t.shape) || x.t.rank > 3) return null;
    const axis = dice.below(x.t.rank + 1);
    return [weft.stack([x.t, y.t], axis), `joined(np.stack, [${x.py}, ${y.py}], ${axis})`];
  },
  take: (dice, x, y) => {
    const axis = axisOf(dice, x);
    if (axis === null || !isInt(y) || y.t.size > 12) return null;
    const n = x.t.shape[(axis + x.t.rank) % x.t.rank];
    if (n === 0) return null;
    // Narrow dtypes hold every index; the range is [0, n).
    return [
      x.t.take(y.t.mod(n), axis),
      `V(np.take(${x.py}.a, np.mod(${y.py}.a, ${n}).astype(np.int64), ${axis}), ${x.py}.d)`,
    ];
  },
};

const numbers: Record<string, Step> = {
  arithmetic: (dice, x, y) =>
    fits(x.t.shape, y.t.shape) && !(isBool(x) && isBool(y)) ? tame(binary(dice, arithmetic, "promoted", x, y)) : null,
  extremum: (dice, x, y) =>
    fits(x.t.shape, y.t.shape) && isOrdered(x) && isOrdered(y) && !(isBool(x) && isBool(y))
      ? binary(dice, extrema, "promoted", x, y)
      : null,
  divide: (_dice, x, y) => {
    if (!fits(x.t.shape, y.t.shape) || !isFloat(x) || isComplex(y)) return null;
    const safe = weft.where(y.t.equal(0), weft.onesLike(y.t), y.t);
    return tame([
      x.t.div(safe),
      `promoted(np.divide, ${x.py}, V(np.where(${y.py}.a == 0, one(${y.py}), ${y.py}.a), ${y.py}.d))`,
    ]);
  },
  compare: (dice, x, y) =>
    fits(x.t.shape, y.t.shape) && isOrdered(x) && isOrdered(y) ? binary(dice, orders, "compared", x, y) : null,
  equality: (dice, x, y) => (fits(x.t.shape, y.t.shape) ? binary(dice, equalities, "compared", x, y) : null),
  logical: (dice, x, y) =>
    fits(x.t.shape, y.t.shape) && isBool(x) && isBool(y) ? binary(dice, logical, "compared", x, y) : null,
  where: (_dice, x, y) => {
    if (!fits(x.t.shape, y.t.shape)) return null;
    const test = isComplex(x) ? x.t.notEqual(0) : x.t.greater(0);
    return [weft.where(test, x.t, y.t), `chosen(${x.py}.a ${isComplex(x) ? "!=" : ">"} 0, ${x.py}, ${y.py})`];
  },
  number: (dice, x) => {
    const c = dice.pick([2, -1, 0.5, 0, 3]);
    if (isBool(x) || (x.t.dtype.startsWith("u") && c < 0)) return null;
    const [fn, py] = dice.pick(arithmetic);
    return tame([fn(x.t, tensor(c, { dtype: weft.resultType(x.t, c) })), `scaled(${py}, ${x.py}, ${c})`]);
  },
  scalar: (dice, x) => {
    const c = dice.pick([2, 0.5, 0, 3]);
    return isBool(x)
      ? null
      : tame(
          dice.chance(50)
            ? [x.t.mul(c), `scaled(np.multiply, ${x.py}, ${c})`]
            : [x.t.add(c), `scaled(np.add, ${x.py}, ${c})`],
        );
  },
  negative: (_dice, x) => (isBool(x) ? null : tame([x.t.neg(), `V(-${x.py}.a, ${x.py}.d)`])),
  absolute: (_dice, x) => (isInt(x) || isFloat(x) ? [x.t.abs(), `V(np.abs(${x.py}.a), ${x.py}.d)`] : null),
  sign: (_dice, x) => (isInt(x) || isFloat(x) ? [x.t.sign(), `V(np.sign(${x.py}.a), ${x.py}.d)`] : null),
  floor: (_dice, x) => (isFloat(x) ? [x.t.floor(), `V(np.floor(${x.py}.a), ${x.py}.d)`] : null),
  isNaN: (_dice, x) => (isFloat(x) ? [x.t.isNaN(), `V(np.isnan(${x.py}.a), "bool")`] : null),
  parts: (dice, x) =>
    !isComplex(x)
      ? null
      : dice.chance(50)
        ? [x.t.imag(), `part(${x.py}, "imag")`]
        : [x.t.conj(), `V(np.conj(${x.py}.a), ${x.py}.d)`],
  convert: (dice, x) => {
    // NaN and infinities have no integer, and the imaginary part is not dropped silently.
    if (isComplex(x)) return null;
    const to = dice.pick<DType>(isFloat(x) ? [...floats, "bool"] : [...floats, ...ints, "bool"]);
    return tame([x.t.cast(to), `converted(${x.py}, "${to}")`]);
  },
};

const reductions: Record<string, Step> = {
  sum: (dice, x) => {
    const axis = axisOf(dice, x);
    if (axis === null) return null;
    const keepDims = dice.chance(50);
    return tame([x.t.sum(axis, { keepDims }), `summed(${x.py}, ${axis}, ${keepDims ? "True" : "False"})`]);
  },
  total: (_dice, x) => tame([x.t.sum(), `summed(${x.py}, None, False)`]),
  cumsum: (dice, x) => {
    const axis = axisOf(dice, x);
    return axis === null ? null : tame([x.t.cumsum(axis), `accumulated(${x.py}, ${axis})`]);
  },
  extreme: (dice, x) => {
    const axis = axisOf(dice, x);
    if (axis === null || !isOrdered(x) || isBool(x) || x.t.shape.at(axis)! === 0) return null;
    const [fn, py] = dice.pick<[typeof weft.max, string]>([
      [weft.max, "np.max"],
      [weft.min, "np.min"],
    ]);
    return [fn(x.t, axis, { keepDims: true }), `V(${py}(${x.py}.a, axis=${axis}, keepdims=True), ${x.py}.d)`];
  },
  place: (dice, x) => {
    const axis = axisOf(dice, x);
    if (axis === null || !isOrdered(x) || isBool(x) || x.t.shape.at(axis)! === 0) return null;
    const py = `.astype(np.int32), "int32")`;
    return dice.chance(50)
      ? [weft.argmax(x.t, axis), `V(np.argmax(${x.py}.a, ${axis})${py}`]
      : [weft.argmin(x.t, axis), `V(np.argmin(${x.py}.a, ${axis})${py}`];
  },
  test: (dice, x) => {
    const axis = axisOf(dice, x);
    if (axis === null) return null;
    return dice.chance(50)
      ? [weft.any(x.t, axis), `V(np.any(${x.py}.a, axis=${axis}), "bool")`]
      : [weft.all(x.t, axis), `V(np.all(${x.py}.a, axis=${axis}), "bool")`];
  },
  sort: (dice, x) => {
    const axis = axisOf(dice, x);
    return axis === null || !isOrdered(x) || isBool(x)
      ? null
      : [x.t.sort(axis), `V(np.sort(${x.py}.a, ${axis}), ${x.py}.d)`];
  },
  matmul: (_dice, x, y) => {
    if (x.t.rank < 1 || y.t.rank !== 2 || x.t.shape.at(-1) !== y.t.shape[0] || x.t.size * y.t.size > 400) return null;
    // Sums of halves that leave the range where they are exact may round, and infinities meet zeros in any order.
    return isBool(x) || isBool(y) || isFloat(x) || isFloat(y)
      ? null
      : tame([x.t.matmul(y.t), `promoted(np.matmul, ${x.py}, ${y.py})`]);
  },
};

const kinds = [Object.entries(moves), Object.entries(numbers), Object.entries(reductions)];
const shapes: readonly (readonly number[])[] = [
  [],
  [1],
  [0],
  [3],
  [2, 3],
  [3, 1],
  [1, 4],
  [2, 0],
  [2, 1, 3],
  [1, 1],
  [3, 3],
  [0, 1, 2],
];

export interface MixedInput {
  shape: readonly number[];
  dtype: DType;
  /** Numbers; of complex dtypes the real and the imaginary parts in turn. */
  data: number[];
}

export interface MixedProgram {
  /** Two sets of arguments of the same shapes. */
  inputs: [MixedInput[], MixedInput[]];
  /** Makes the tensors, and writes the lines of Python on the way. */
  run: (inputs: readonly Tensor[], lines?: string[]) => Tensor[];
}

export function mixedProgram(seed: number): MixedProgram {
  const dice = new Dice(seed * 37 + 11);
  // Products of complex infinities depend on the formula: programs have complex numbers or infinities.
  const dtypes: readonly DType[] = ["bool", ...ints, ...floats, ...floats, ...(seed % 3 === 0 ? complexes : [])];
  const specials = seed % 3 === 0 ? 0 : 8;
  const kindsOf = [0, 1, 2, 3].map(() => ({ shape: dice.pick(shapes), dtype: dice.pick(dtypes) }));
  const number = (dtype: DType): number => {
    if (dtype === "bool") return dice.below(2);
    if (ints.includes(dtype)) return dtype.startsWith("u") ? dice.below(9) : dice.below(17) - 8;
    return dice.chance(specials) ? dice.pick([NaN, Infinity, -Infinity, -0]) : (dice.below(33) - 16) / 2;
  };
  const values = (): MixedInput[] =>
    kindsOf.map(({ shape, dtype }) => {
      const length = shape.reduce((n, d) => n * d, 1) * (complexes.includes(dtype) ? 2 : 1);
      return { shape, dtype, data: Array.from({ length }, () => number(dtype)) };
    });
  const inputs: [MixedInput[], MixedInput[]] = [values(), values()];
  const length = 6 + dice.below(12);
  const start = dice.below(2 ** 30);
  const run = (tensors: readonly Tensor[], lines: string[] = []): Tensor[] => {
    const again = new Dice(start);
    const pool: Twin[] = tensors.map((t, i) => ({ t, py: `v${i}` }));
    for (let i = 0; i < length; i++) {
      const x = again.chance(60) ? pool[pool.length - 1] : again.pick(pool);
      const [, step] = again.pick(again.pick(kinds));
      const made = step(again, x, again.pick(pool));
      if (made === null || made[0].size > 200 || made[0].rank > 5) continue;
      const py = `v${pool.length}`;
      lines.push(`${py} = ${made[1]}`);
      pool.push({ t: glimpse(made[0]), py });
    }
    const results = [pool[pool.length - 1], pool[Math.max(0, pool.length - 2)], again.pick(pool)];
    lines.push(`return [show(v) for v in [${results.map((r) => r.py)}]]`);
    return results.map((r) => r.t);
  };
  return { inputs, run };
}

/** An argument on the device. */
export function uploadMixed({ shape, dtype, data }: MixedInput): Tensor {
  if (!complexes.includes(dtype)) return tensor(Float64Array.from(data), { shape: [...shape], dtype }).realize();
  const parts = tensor(Float64Array.from(data), { shape: [data.length / 2, 2], dtype: "float64" });
  const [re, im] = [0, 1].map((i) => parts.index(":", i).reshape([...shape]));
  return weft.complex(re, im).cast(dtype).realize();
}

const shown = (x: number): string =>
  Number.isNaN(x) ? "nan" : Number.isFinite(x) ? (Object.is(x, -0) ? "-0.0" : String(x)) : x > 0 ? "inf" : "-inf";

/** A program as a function of Python, and calls of it with arguments. */
export function pythonOf(
  { inputs, run }: MixedProgram,
  name: string,
  calls: readonly (readonly MixedInput[])[],
): string {
  const lines: string[] = [];
  run(inputs[0].map(uploadMixed), lines);
  const made = ({ shape, dtype, data }: MixedInput): string => `given([${data.map(shown)}], [${shape}], "${dtype}")`;
  return [
    `def ${name}(v0, v1, v2, v3):`,
    ...lines.map((line) => `  ${line}`),
    `results.append([${calls.map((args) => `${name}(${args.map(made)})`)}])`,
  ].join("\n");
}
