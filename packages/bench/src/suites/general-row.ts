// What rows of the general suite are made of. Every row computes from the same numbers as its peer (peers/torch_general.py), and
// the results are compared by a digest before anything is timed.
import type { DType, Tensor } from "@weft/core";
import * as weft from "@weft/core";
import type { Answers, ContestRow } from "./contest.js";
import type { PreparedRow } from "./contestant.js";

export interface GeneralRow extends ContestRow {
  make(): PreparedRow | Promise<PreparedRow>;
}

/** Sizes of a run from those of a large GPU; peers/torch_general.py has the same rule. */
export type Sizer = (n: number) => number;

/** Divides sizes above a floor, which stays the least. */
export const sizer =
  (divide: number, floor: number): Sizer =>
  (n) =>
    n <= floor ? n : Math.max(floor, Math.floor(n / divide));

/** Numbers in [-1, 1) from the index of an element, computed on the device; torch_general.py has the same. */
export function numbers(shape: readonly number[], salt: number, dtype: DType = "float32"): Tensor {
  const size = shape.reduce((a, b) => a * b, 1);
  // The shift is an argument: one kernel serves all salts.
  const made = weft.jit((shift: Tensor) => {
    const index = weft.arange(0, size, 1, { dtype: "int64" });
    const hash = index
      .mul(2654435761)
      .add(shift)
      .mod(2 ** 32);
    return hash
      .cast("float64")
      .mul(2 ** -31)
      .sub(1)
      .cast("float32")
      .cast(dtype)
      .reshape([...shape]);
  });
  return made(weft.tensor(salt * 40503, { dtype: "int64" })).realize();
}

/** Whole numbers below a bound from the index of an element. */
export const indices = (shape: readonly number[], salt: number, below: number): Tensor =>
  weft
    .jit((x: Tensor) =>
      x
        .add(1)
        .mul(below / 2)
        .cast("int32")
        .clip(0, below - 1),
    )(numbers(shape, salt))
    .realize();

/** Numbers by which results are compared: mean, mean of squares, and a few elements of each. */
function digest(tensors: readonly Tensor[]): number[] {
  const parts = tensors.flatMap((t) => (t.dtype.startsWith("complex") ? [weft.real(t), weft.imag(t)] : [t]));
  return parts.flatMap((t) => {
    const flat = t.cast("float64").reshape([t.size]);
    const places = [0, Math.min(1, t.size - 1), Math.floor(t.size / 3), Math.floor(t.size / 2), t.size - 1];
    const few = places.map((at) => Number(flat.index(at).dataSync()));
    return [Number(flat.mean().dataSync()[0]), Number(flat.square().mean().dataSync()[0]), ...few];
  });
}

/** Compares digests of Weft and every peer. */
export function sameDigest(tolerance: number): (answers: Answers) => string | null {
  return ({ weft: own, ...peers }) => {
    for (const [name, other] of Object.entries(peers)) {
      if (other.length !== own.length) return `${name} has ${other.length} numbers to compare, Weft ${own.length}`;
      for (let i = 0; i < own.length; i++) {
        const group = other.slice(i - (i % 7), i - (i % 7) + 7);
        const scale = Math.max(Math.sqrt(Math.abs(group[1])), Math.abs(other[i]), 1e-30);
        const off = Math.abs(own[i] - other[i]) / scale;
        if (!(off <= tolerance)) return `number ${i} is ${own[i]}, ${name} has ${other[i]} (off by ${off})`;
      }
    }
    return null;
  };
}

const drop = (tree: unknown): void => {
  for (const leaf of weft.treeLeaves(tree as Tensor)) leaf.dispose();
};
const finish = (): void => weft.session().device.synchronize();

/** A jitted function of fixed arguments as a row. */
export function prepared(f: (...args: Tensor[]) => unknown, args: readonly Tensor[], compare = true): PreparedRow {
  const call = weft.jit(f as never) as unknown as (...args: readonly Tensor[]) => unknown;
  const result = call(...args);
  const leaves = weft.treeLeaves(result as Tensor);
  const check = compare ? digest(leaves) : [];
  drop(result);
  return { check, call: () => drop(call(...args)), finish, release: () => drop([...args]) };
}

/** Peers of a row that users run as it is, and of one that they compile. */
export const eager = { torch: 1 } as const;
export const compiled = { torch: 1, "torch.compile": 1 } as const;

interface RowOptions {
  peers?: Record<string, number | null>;
  tolerance?: number;
  /** Bytes that must move. */
  bytes?: number;
  flops?: number;
  /** Whether results are compared; random draws are not. */
  compare?: boolean;
}
type RowFunction = (...args: Tensor[]) => unknown;

/** A row of a function and its operands. */
export function rowOf(
  id: string,
  title: string,
  f: RowFunction,
  operands: () => Tensor[],
  options: RowOptions = {},
): GeneralRow {
  const { peers = eager, tolerance = 1e-4, compare = true, ...rates } = options;
  return {
    id,
    title,
    peers,
    ...rates,
    ...(compare && { check: sameDigest(tolerance) }),
    make: () => prepared(f, operands(), compare),
  };
}

/** A row of one operand of uniform numbers. */
export function unaryRow(
  id: string,
  title: string,
  shape: readonly number[],
  f: (x: Tensor) => unknown,
  options: RowOptions & { dtype?: DType } = {},
): GeneralRow {
  const { dtype, ...others } = options;
  return rowOf(id, title, f as RowFunction, () => [numbers(shape, 1, dtype)], others);
}

/** A function in tf32. */
export const tf32 =
  (f: RowFunction): RowFunction =>
  (...args) =>
    weft.withPrecision("tf32", () => f(...args));
