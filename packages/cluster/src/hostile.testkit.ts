// Valid functions that together use every op with every attribute, and values that no attribute should accept. The
// attack tests and the fuzzer start from them.
import { type GraphFn, type OpAttrs, type OpName, type PlainFunction, toPlain } from "@weft/core/internal/graph";
import { build, make } from "@weft/core/internal/ops";

const { input } = build;
const f32 = (...shape: number[]) => input(shape, "float32");
const i32 = (...shape: number[]) => input(shape, "int32");

function loopBody(): GraphFn {
  const [n, c, x] = [i32(), f32(), f32(3)];
  return { params: [n, c, x], outputs: [build.add(c, build.reduce("sum", x, [0])), x] };
}

/** Builds one valid node per op; typed over the union, so a new op must be added here. */
const samples: { [K in OpName]: (() => [inputs: ReturnType<typeof f32>[], attrs: OpAttrs[K]]) | null } = {
  input: null,
  data: null,
  const: () => [[], { value: { re: 1, im: -2.5 }, dtype: "complex64" }],
  iota: () => [[], { shape: [3, 4], axis: 1, dtype: "int32" }],
  random: () => [
    [i32(2)],
    { kind: "uniform", shape: [2, 3], dtype: "float32", within: { shape: [4, 3], start: [1, 0] } },
  ],
  alias: () => [[f32(3)], { name: "layers.0/w" }],
  barrier: () => [[f32(3)], { tag: 7 }],
  pin: () => [[f32(3, 2)], { dims: [["batch"], []], backward: [[], ["model"]] }],
  unary: () => [[f32(3)], { fn: "exp" }],
  binary: () => [[f32(3), f32(3)], { fn: "add" }],
  where: () => [[input([3], "bool"), f32(3), f32(3)], {}],
  cast: () => [[f32(3)], { dtype: "float64" }],
  reshape: () => [[f32(6)], { shape: [2, 3] }],
  permute: () => [[f32(2, 3)], { axes: [1, 0] }],
  expand: () => [[f32(1, 3)], { shape: [4, 3] }],
  slice: () => [[f32(6)], { start: [1], stop: [5], step: [2] }],
  pad: () => [[f32(3)], { low: [1], high: [2] }],
  flip: () => [[f32(2, 3)], { axes: [1] }],
  concat: () => [[f32(2, 3), f32(1, 3)], { axis: 0 }],
  reduce: () => [[f32(4, 8)], { fn: "max", axes: [1] }],
  argreduce: () => [[f32(4, 8)], { fn: "argmax", axis: 1 }],
  cumsum: () => [[f32(4, 8)], { axis: 1, reverse: true }],
  matmul: () => [[f32(2, 3), f32(3, 4)], { precision: "tf32" }],
  conv: () => [
    [f32(2, 4, 6, 5), f32(6, 2, 3, 3)],
    {
      kind: "forward",
      size: [3, 5],
      stride: [2, 1],
      dilation: [1, 1],
      low: [1, 1],
      groups: 2,
      channelsLast: false,
      precision: "tf32",
    },
  ],
  gather: () => [[f32(4, 3), i32(2)], { axis: 0, batch: 0 }],
  scatterAdd: () => [[f32(4, 3), i32(2), f32(2, 3)], { axis: 0, batch: 0 }],
  scatterReduce: () => [[f32(4, 3), i32(2), f32(2, 3)], { axis: 0, batch: 0, fn: "max" }],
  fft: () => [[input([2, 5], "complex64")], { kind: "c2r", inverse: true, axes: 1, size: 8 }],
  updateSlice: () => [[f32(2, 5, 3), i32(2), f32(2, 4, 3)], { axis: 1, batch: 1 }],
  argsort: () => [[f32(5)], { descending: false }],
  cholesky: () => [[f32(3, 3)], {}],
  triangularSolve: () => [[f32(3, 3), f32(3, 2)], { lower: true, adjoint: false, unit: false }],
  solve: () => [[f32(3, 3), f32(3, 2)], {}],
  det: () => [[f32(3, 3)], {}],
  eigh: () => [[f32(3, 3)], {}],
  qr: () => [[f32(3, 2)], {}],
  lu: () => [[f32(3, 2)], {}],
  eig: () => [[f32(3, 3)], {}],
  svd: () => [[f32(3, 2)], {}],
  scan: () => [
    [i32(), f32(), f32(5, 3)],
    { body: loopBody(), consts: 1, carries: 1, length: 5, reverse: false, stop: "count" },
  ],
  custom: () => {
    const [q, k, v] = [f32(4, 2, 8), f32(4, 2, 8), f32(4, 2, 8)];
    const rows = build.reduce("sum", build.permute(q, [1, 0, 2]), [2]);
    const body = { params: [q, k, v], outputs: [build.add(q, build.add(k, v)), rows] };
    const kernel = { kind: "attention", gradient: false, packed: false, scale: 0.5, mask: "none", dropout: 0 } as const;
    const rule = { name: "attention", backward: () => [] };
    return [[f32(4, 2, 8), f32(4, 2, 8), f32(4, 2, 8)], { body, rule, kernel: { ...kernel, precision: "float32" } }];
  },
  collective: () => [
    [f32(4)],
    {
      kind: "exchange",
      fn: "sum",
      groups: [[0, 1]],
      rank: 0,
      sequence: 0,
      axis: 0,
      splitAxis: 0,
      sizes: [2, 2],
      splitSizes: [2, 2],
      sends: [{ rank: 1, start: [0], stop: [2] }],
      receives: [{ rank: 1, start: [2], stop: [4] }],
      shape: [4],
      dtype: "float32",
    },
  ],
  pick: () => [[make("eigh", [f32(3, 3)], {})], { index: 1 }],
};

/** A valid function around each serializable op, as parsed JSON. */
export function sampleFunctions(): Map<OpName, PlainFunction> {
  const found = new Map<OpName, PlainFunction>();
  for (const [op, sample] of Object.entries(samples) as [OpName, (() => [ReturnType<typeof f32>[], never]) | null][]) {
    if (sample === null) continue;
    const [inputs, attrs] = sample();
    const node = make(op, inputs, attrs);
    const params = inputs.flatMap((x) => (x.op === "input" ? [x] : x.inputs));
    const outputs = node.outputs === null ? [node] : build.picks(node);
    found.set(op, JSON.parse(JSON.stringify(toPlain({ params, outputs }))) as PlainFunction);
  }
  return found;
}

/** A path in plain data. */
export type Path = readonly (string | number)[];

export const at = (root: unknown, path: Path): unknown =>
  path.reduce<unknown>((value, key) => (value as Record<string | number, unknown>)[key], root);

/** A copy with another value at a path. */
export function withValue<T>(root: T, path: Path, value: unknown): T {
  const copy = structuredClone(root);
  const parent = at(copy, path.slice(0, -1)) as Record<string | number, unknown>;
  parent[path[path.length - 1]] = value;
  return copy;
}

/** Every path below a value, leaves and containers. */
export function places(value: unknown, path: Path = []): Path[] {
  if (typeof value !== "object" || value === null) return [path];
  const below = Object.keys(value).flatMap((key) => {
    const step = Array.isArray(value) ? Number(key) : key;
    return places((value as Record<string | number, unknown>)[step], [...path, step]);
  });
  return path.length === 0 ? below : [path, ...below];
}

/** The paths of the attributes of a sample's op. */
export function attributePlaces(fn: PlainFunction, op: OpName): Path[] {
  const index = fn.nodes.findIndex(([name]) => name === op);
  return places(fn.nodes[index][2]).map((path) => ["nodes", index, 2, ...path]);
}
