// The rows of the sharding benchmark: shapes, arithmetic, and how a result is checked. Sizes are those of GPU benchmarks; on
// CPUs every edge is a quarter, so that the whole table takes minutes.
import { type GraphFn, WeftError } from "@weft/core/internal/graph";
import { build } from "@weft/core/internal/ops";
import { jit, key, randn, relu, Tensor } from "@weft/core/internal/tensor";

/** One row of the sharding benchmark: a matrix product, the forward pass of an MLP, or an element-wise pass. */
export type RowSpec =
  | { kind: "product"; group: string; m: number; k: number; n: number }
  | { kind: "mlp"; group: string; batch: number; dims: number[] }
  | { kind: "elementwise"; group: string; rows: number; columns: number };

const groups = {
  square: "Square matrix products",
  batch: "Large batch products",
  mlp: "MLP forward passes",
  elementwise: "Element-wise",
} as const;

const square = (n: number): RowSpec => ({ kind: "product", group: groups.square, m: n, k: n, n });
const batch = (m: number, k: number, n: number): RowSpec => ({ kind: "product", group: groups.batch, m, k, n });
const mlp = (rows: number, dims: number[]): RowSpec => ({ kind: "mlp", group: groups.mlp, batch: rows, dims });

const full: RowSpec[] = [
  ...[4096, 8192, 16384].map(square),
  batch(8192, 4096, 4096),
  batch(16384, 4096, 4096),
  batch(32768, 2048, 2048),
  mlp(4096, [4096, 4096, 4096]),
  mlp(8192, [4096, 8192, 4096]),
  mlp(16384, [2048, 4096, 2048]),
];
const quick: RowSpec[] = [
  square(16384),
  batch(32768, 4096, 4096),
  { kind: "elementwise", group: groups.elementwise, rows: 32768, columns: 8192 },
];

/** Divides every edge; a product with a quarter of the edges has a sixty-fourth of the arithmetic. */
function shrink(row: RowSpec, by: number): RowSpec {
  const edge = (x: number): number => Math.max(1, Math.round(x / by));
  switch (row.kind) {
    case "product":
      return { ...row, m: edge(row.m), k: edge(row.k), n: edge(row.n) };
    case "mlp":
      return { ...row, batch: edge(row.batch), dims: row.dims.map(edge) };
    case "elementwise":
      return { ...row, rows: edge(row.rows), columns: edge(row.columns) };
    default:
      return row satisfies never;
  }
}

/** The nine rows of the table, or three of them. */
type SuiteName = "shard" | "quick";

/** Rows of a suite for a kind of device ("cpu" or "cuda"). */
export function rowsOf(suite: SuiteName, deviceKind: string): RowSpec[] {
  const rows = suite === "quick" ? quick : full;
  if (deviceKind === "cuda") return rows;
  // A pass over memory is fast: it stays large enough to be worth a message to the workers.
  return rows.map((row) => shrink(row, suite === "quick" && row.kind !== "elementwise" ? 8 : 4));
}

/**
 * Parses the size of a row.
 *
 * @param text "2048" (a square product), "8192x4096x4096" (a product), "4096:4096-8192-4096" (an MLP: batch and widths) or
 * "8192x2048" (element-wise)
 */
export function parseSize(text: string): RowSpec {
  const whole = (parts: string[]): number[] =>
    parts.map((part) => {
      const value = Number(part);
      if (!Number.isInteger(value) || value < 1)
        throw new WeftError(
          `size "${text}": "${part}" is not a whole number above 0; write 2048 (a square), 8192x4096x4096 (a product), ` +
            "4096:4096-8192-4096 (an MLP: batch and layer widths) or 8192x2048 (element-wise)",
        );
      return value;
    });
  if (text.includes(":")) {
    const [rows, dims] = text.split(":", 2);
    const widths = whole(dims.split("-"));
    if (widths.length < 2) throw new WeftError(`size "${text}": an MLP has at least two widths, 4096:4096-4096`);
    return mlp(whole([rows])[0], widths);
  }
  const edges = whole(text.split("x"));
  if (edges.length === 1) return square(edges[0]);
  if (edges.length === 2) return { kind: "elementwise", group: groups.elementwise, rows: edges[0], columns: edges[1] };
  if (edges.length === 3) return batch(edges[0], edges[1], edges[2]);
  throw new WeftError(`size "${text}" has ${edges.length} edges; a product has three: 8192x4096x4096`);
}

/** Label of a row in tables, such as "2048x2048". */
export function labelOf(row: RowSpec): string {
  if (row.kind === "product")
    return row.m === row.k && row.k === row.n ? `${row.m}x${row.n}` : `(${row.m},${row.k})@(${row.k},${row.n})`;
  if (row.kind === "mlp") return `batch=${row.batch}, [${row.dims.join(", ")}]`;
  return `relu, *2 on (${row.rows},${row.columns})`;
}

const pairs = (dims: readonly number[]): [number, number][] => dims.slice(1).map((out, i) => [dims[i], out]);

/** Floating-point operations of one call; 0 for element-wise rows, whose rate has no meaning. */
export function flopsOf(row: RowSpec): number {
  if (row.kind === "product") return 2 * row.m * row.k * row.n;
  if (row.kind === "mlp")
    return pairs(row.dims).reduce((sum, [i, o]) => sum + 2 * row.batch * i * o + row.batch * o, 0);
  return 0;
}

export const batchOf = (row: RowSpec): number =>
  row.kind === "product" ? row.m : row.kind === "mlp" ? row.batch : row.rows;

/** The same row with another batch, to find the batch from which more devices pay. */
export const resizeBatch = (row: RowSpec, rows: number): RowSpec =>
  row.kind === "product" ? { ...row, m: rows } : row.kind === "mlp" ? { ...row, batch: rows } : { ...row, rows };

/** A row as a function of tensors: shapes of inputs and weights, and the computation. */
interface RowFunction {
  inputs: number[][];
  weights: number[][];
  compute(inputs: Tensor[], weights: Tensor[]): Tensor;
}

function functionOf(row: RowSpec): RowFunction {
  switch (row.kind) {
    case "product":
      return {
        inputs: [
          [row.m, row.k],
          [row.k, row.n],
        ],
        weights: [],
        compute: ([a, b]) => a.matmul(b),
      };
    case "mlp":
      return {
        inputs: [[row.batch, row.dims[0]]],
        weights: pairs(row.dims),
        compute: ([x], weights) => weights.reduce((h, w) => relu(h.matmul(w)), x),
      };
    case "elementwise":
      return { inputs: [[row.rows, row.columns]], weights: [], compute: ([x]) => relu(x).mul(2) };
    default:
      return row satisfies never;
  }
}

/** A row as a graph, for the planner. */
export function graphOf(row: RowSpec): GraphFn {
  const { inputs, weights, compute } = functionOf(row);
  const placeholder = (shape: number[], i: number): Tensor => new Tensor(build.input(shape, "float32", `a${i}`));
  const xs = inputs.map(placeholder);
  const ws = weights.map((shape, i) => placeholder(shape, inputs.length + i));
  return { params: [...xs, ...ws].map((t) => t.node), outputs: [compute(xs, ws).node] };
}

/** A row as a program: weights, inputs that each call creates, and the compiled computation. */
export interface RowProgram {
  weights: Tensor[];
  create(): Tensor[];
  compute(inputs: Tensor[], weights: Tensor[]): Tensor;
}

export function rowProgram(row: RowSpec, seed = 0): RowProgram {
  const { inputs, weights, compute } = functionOf(row);
  const draw = (shape: number[], i: number): Tensor => randn(shape, { key: key(seed * 8 + i) });
  return {
    // Scaled so that activations keep their size through the layers.
    weights: weights.map((shape, i) => draw(shape, inputs.length + i).mul(1 / Math.sqrt(shape[0]))),
    create: () => inputs.map(draw),
    compute: jit(compute),
  };
}

type Numbers = ArrayLike<number>;

/** out = matrix [rows, columns] times a vector, in float64. */
function timesVector(matrix: Numbers, columns: number, vector: Float64Array, rows: number): Float64Array {
  const out = new Float64Array(rows);
  for (let i = 0; i < rows; i++) {
    let sum = 0;
    for (let j = 0, at = i * columns; j < columns; j++, at++) sum += matrix[at] * vector[j];
    out[i] = sum;
  }
  return out;
}

/** Freivalds' test: with a vector of signs v, C v must be A (B v). Largest difference relative to the size of the terms. */
function productError(a: Numbers, b: Numbers, c: Numbers, m: number, k: number, n: number): number {
  // A fixed pattern of signs is enough to detect mistakes.
  const signs = Float64Array.from({ length: n }, (_, j) => (((j * 2654435761) >>> 7) & 1 ? 1 : -1));
  const expected = timesVector(a, k, timesVector(b, n, signs, k), m);
  const found = timesVector(c, n, signs, m);
  const scale = Math.sqrt(k * n);
  let worst = 0;
  for (let i = 0; i < m; i++) worst = Math.max(worst, Math.abs(found[i] - expected[i]) / scale);
  return Number.isNaN(found.reduce((x, y) => x + y, 0)) ? Number.NaN : worst;
}

/** Largest error of some rows of an MLP, against float64. */
function mlpError(x: Numbers, weights: Numbers[], y: Numbers, dims: readonly number[], rows: number): number {
  const last = dims[dims.length - 1];
  const picks = [...new Set([0, Math.floor(rows / 3), Math.floor((2 * rows) / 3), rows - 1])];
  let worst = 0;
  for (const row of picks) {
    let h = Float64Array.from({ length: dims[0] }, (_, j) => x[row * dims[0] + j]);
    pairs(dims).forEach(([from, to], layer) => {
      const next = new Float64Array(to);
      for (let i = 0; i < from; i++) for (let j = 0; j < to; j++) next[j] += h[i] * weights[layer][i * to + j];
      h = next.map((v) => Math.max(0, v));
    });
    for (let j = 0; j < last; j++) {
      const difference = Math.abs(y[row * last + j] - h[j]);
      if (!(difference <= worst)) worst = difference;
    }
  }
  return worst;
}

/** Largest relative error of a result; NaN if the result has NaN. */
export function errorOf(row: RowSpec, inputs: Numbers[], weights: Numbers[], result: Numbers): number {
  if (row.kind === "product") return productError(inputs[0], inputs[1], result, row.m, row.k, row.n);
  if (row.kind === "mlp") return mlpError(inputs[0], weights, result, row.dims, row.batch);
  let worst = 0;
  for (let i = 0; i < result.length; i++) {
    const difference = Math.abs(result[i] - 2 * Math.max(0, inputs[0][i]));
    if (!(difference <= worst)) worst = difference;
  }
  return worst;
}

/** Allowed error: of float32 sums, or of operands rounded to 10 bits (tf32). */
export const errorBound = (precision: string): number => (precision === "float32" ? 1e-4 : 2e-2);
