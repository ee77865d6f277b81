// Edge values on the reference, the CPU and the emulated GPU against mpmath's and NumPy's answers (testdata/edges.ts), compared in
// units in the last place, so that tails count as much as middles; and gradients there against closed forms.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { device as emulated, skip as noEmulator, prepareEmulator } from "../device/cuda/emulated/testkit.js";
import * as weft from "../index.js";
import { CpuDevice, type DType, ReferenceDevice, type Tensor, useDevice } from "../index.js";
import { type Edge, edges } from "./cases/edges.js";
import { isComplexDType, type Result, toResult } from "./compare.js";
import { edgeJobs } from "./golden.js";
import { list, upload } from "./jobs.js";
import { edgeAnswers } from "./testdata/edges.js";

/** Bits of the mantissa and the exponent of the smallest denormal number. */
const formats: Partial<Record<DType, [bits: number, lowest: number]>> = {
  float16: [11, -24],
  float32: [24, -149],
  float64: [53, -1074],
  complex64: [24, -149],
  complex128: [53, -1074],
};

function unit(size: number, dtype: DType): number {
  const [bits, lowest] = formats[dtype]!;
  const exponent = size === 0 ? lowest : Math.floor(Math.log2(size)) - bits + 1;
  return 2 ** Math.max(exponent, lowest);
}

const same = (a: number, b: number): boolean => a === b || (Number.isNaN(a) && Number.isNaN(b));

/** What is wrong with a result, or null. */
function wrong(actual: Result, [shape, expected]: [number[], number[]], ulps: number): string | null {
  if (String(actual.shape) !== String(shape)) return `shape [${actual.shape}], expected [${shape}]`;
  const { dtype, data } = actual;
  const step = isComplexDType(dtype) ? 2 : 1;
  for (let i = 0; i < data.length; i += step) {
    const [a, e] = [data.slice(i, i + step), expected.slice(i, i + step)];
    const text = `element ${i / step}: ${a.join(" + i ")}, expected ${e.join(" + i ")}`;
    if (formats[dtype] === undefined || ulps === 0) {
      // Signs of zeros count too, where the arithmetic is exact.
      const isSame = (x: number, k: number) => Object.is(x, e[k]) || (same(x, e[k]) && (x !== 0 || ulps > 0));
      if (!a.every(formats[dtype] === undefined ? (x, k) => same(x, e[k]) : isSame)) return text;
      continue;
    }
    const size = Math.max(...e.map((x) => (Number.isFinite(x) ? Math.abs(x) : 0)));
    // Infinite parts must agree; a NaN that NumPy leaves open beside them may be anything.
    const isClose = a.every((x, k) => same(x, e[k]) || Math.abs(x - e[k]) <= ulps * unit(size, dtype));
    const overflows = step === 2 && e.some((x) => !Number.isFinite(x));
    if (!isClose && !(overflows && e.every((x, k) => Number.isFinite(x) || Number.isNaN(x) || a[k] === x))) return text;
  }
  return null;
}

const jobs = edgeJobs();
const perProgram = 20;

function check(): void {
  const problems: string[] = [];
  for (let at = 0; at < jobs.length; at += perProgram) {
    const group = jobs.slice(at, at + perProgram);
    const program = weft.jit((args: Tensor[][]) => group.map(({ edge }, i) => list(edge.fn(...args[i]))));
    const outputs = program(group.map(({ edge }) => edge.inputs.map(upload))) as Tensor[][];
    group.forEach(({ edge, dump }, i) => {
      const known = edgeAnswers[edge.name];
      if (known?.[0] !== dump.digest) problems.push(`${edge.name}: run packages/core/testdata/make_edges.py`);
      else
        outputs[i].forEach((t, k) => {
          const problem = wrong(toResult(t), known[1][k], edge.ulps);
          if (problem !== null) problems.push(`${edge.name}, result ${k}: ${problem}`);
        });
    });
  }
  assert.equal(problems.length, 0, `${problems.length} mismatches\n${problems.slice(0, 40).join("\n")}`);
}

const at = (x: number | readonly number[], dtype: DType): Tensor =>
  weft.tensor(typeof x === "number" ? [x] : [...x], { dtype });
type Slope = [name: string, fn: (x: Tensor) => Tensor, x: number, dtype: DType, slope: number];

/** Slopes where a formula that loses range or digits gives 0, infinity or NaN. */
const slopes: Slope[] = [
  ["sigmoid in its lower tail", weft.sigmoid, -100, "float64", Math.exp(-100)],
  ["sigmoid in its upper tail", weft.sigmoid, 100, "float64", Math.exp(-100)],
  ["sigmoid at 0", weft.sigmoid, 0, "float64", 0.25],
  ["log of sigmoid", (x) => x.sigmoid().log(), -30, "float64", 1],
  ["softplus at 0", weft.softplus, 0, "float64", 0.5],
  ["softplus in its tail", weft.softplus, -100, "float64", Math.exp(-100)],
  ["logSigmoid", weft.logSigmoid, 40, "float64", Math.exp(-40)],
  ["silu at 0", weft.silu, 0, "float64", 0.5],
  ["erfc in its tail", weft.erfc, 5, "float64", (-2 / Math.sqrt(Math.PI)) * Math.exp(-25)],
  ["atan2 of large numbers", (x) => weft.atan2(x, 1e25), 1e25, "float32", 0.5e-25],
  ["atan2 of small numbers", (x) => weft.atan2(x, 1e-25), 1e-25, "float32", 0.5e25],
  ["the size of a large complex number", (x) => weft.complex(x, x).abs(), 1e25, "float32", Math.SQRT2],
  ["the size of a small complex number", (x) => weft.complex(x, x).abs(), 1e-30, "float32", Math.SQRT2],
  ["the inverse of a large complex number", (x) => weft.complex(x, 1e12).reciprocal().imag(), 1e12, "float32", 5e-25],
];

function checkSlopes(): void {
  for (const [name, fn, x, dtype, slope] of slopes) {
    const got = weft
      .grad((t: Tensor) => fn(t).sum())(at(x, dtype))
      .itemSync();
    const tolerance = dtype === "float32" ? 4e-6 : 1e-13;
    assert.ok(Math.abs(got - slope) <= tolerance * Math.abs(slope), `${name}: ${got}, expected ${slope}`);
  }
}

/** A folded constant gives what the same numbers give as data. */
function checkFolding(): void {
  const pairs: [string, () => Tensor, () => Tensor][] = [
    ["int32 sum", () => weft.full([2 ** 20], 5000, { dtype: "int32" }).sum(), () => ones("int32", 2 ** 20, 5000).sum()],
    ["uint8 sum", () => weft.full([300], 255, { dtype: "uint8" }).sum(), () => ones("uint8", 300, 255).sum()],
    ...(["add", "mul", "sub"] as const).map((name): [string, () => Tensor, () => Tensor] => [
      `int32 ${name}`,
      () => weft.full([2], 2147483647, { dtype: "int32" })[name](weft.full([2], -65537, { dtype: "int32" })),
      () => ones("int32", 2, 2147483647)[name](ones("int32", 2, -65537)),
    ]),
    [
      "int32 to uint8",
      () => weft.full([1], 300, { dtype: "int32" }).cast("uint8"),
      () => ones("int32", 1, 300).cast("uint8"),
    ],
    [
      "int64 to int32",
      () => weft.full([1], 2 ** 33 + 5, { dtype: "int64" }).cast("int32"),
      () => ones("int64", 1, 2 ** 33 + 5).cast("int32"),
    ],
    [
      "0 - 0",
      () =>
        weft
          .full([1], 0)
          .sub(weft.full([1], 0))
          .reciprocal(),
      () =>
        ones("float32", 1, 0)
          .sub(ones("float32", 1, 0))
          .reciprocal(),
    ],
    ["-0 + 0", () => weft.full([1], -0).add(0).reciprocal(), () => ones("float32", 1, -0).add(0).reciprocal()],
    [
      "x * 0",
      () => weft.full([1], Number.POSITIVE_INFINITY).mul(0),
      () => ones("float32", 1, Number.POSITIVE_INFINITY).mul(0),
    ],
    [
      "0.1 + 0.2",
      () => weft.full([1], 0.1).add(weft.full([1], 0.2)),
      () => ones("float32", 1, 0.1).add(ones("float32", 1, 0.2)),
    ],
    ["rsqrt", () => weft.full([1], 3).rsqrt(), () => ones("float32", 1, 3).rsqrt()],
    [
      "neg of 0",
      () => weft.full([1], 0, { dtype: "int32" }).neg().cast("float32").reciprocal(),
      () => ones("int32", 1, 0).neg().cast("float32").reciprocal(),
    ],
  ];
  for (const [name, folded, computed] of pairs) {
    const [a, b] = [folded(), computed()].map((t) => [t.dtype, ...t.dataSync()].map(String));
    assert.deepEqual(a, b, name);
  }
}
const ones = (dtype: DType, n: number, value: number): Tensor =>
  weft.tensor(new Float64Array(n).fill(value), { dtype }).realize();

const devices: [string, () => weft.Device, false | string][] = [
  ["reference", () => new ReferenceDevice(), false],
  ["cpu", () => new CpuDevice(), CpuDevice.available() ? false : "no C compiler"],
  ["emulated cuda", emulated as () => weft.Device, noEmulator],
];

before(prepareEmulator);
after(() => void useDevice(new ReferenceDevice()));

for (const [name, make, skip] of devices)
  describe(`edge values on ${name}`, { skip }, () => {
    before(() => void useDevice(make()));
    test("against exact answers", check);
    test("slopes against closed forms", checkSlopes);
    test("constants as data", checkFolding);
    test("the larger and the smaller of zeros", () => {
      for (const dtype of ["float16", "float32", "float64"] as const) {
        const [a, b] = [at([-0, 0, -0, 0, Number.NaN, 1], dtype), at([0, -0, -0, 0, 1, Number.NaN], dtype)];
        const program = weft.jit((x: Tensor, y: Tensor) => [
          [weft.maximum(x, y), weft.maximum(x, 0), weft.maximum(-0, x), weft.relu(x)],
          [weft.minimum(x, y), weft.minimum(x, -0), weft.minimum(0, x)],
        ]);
        const [larger, smaller] = program(a, b).map((row) => row.map((t) => Array.from(t.dataSync(), Number)));
        const nan = Number.NaN;
        assert.deepEqual(larger, [
          [0, 0, -0, 0, nan, nan],
          [0, 0, 0, 0, nan, 1],
          [-0, 0, -0, 0, nan, 1],
          [0, 0, 0, 0, nan, 1],
        ]);
        assert.deepEqual(smaller, [
          [-0, -0, -0, 0, nan, nan],
          [-0, -0, -0, -0, nan, -0],
          [-0, 0, -0, 0, nan, 0],
        ]);
      }
    });
    test("a row divided by a number that has no inverse", () => {
      const tiny = at([1e-40, 2e-40, -3e-40, 0], "float32").reshape([2, 2]);
      const quotient = weft.jit((x: Tensor) => x.div(x.abs().sum(1, { keepDims: true })));
      const got = Array.from(quotient(tiny).dataSync() as Float32Array);
      [1 / 3, 2 / 3, -1, 0].forEach((want, i) => void assert.ok(Math.abs(got[i] - want) < 1e-4, `${got}`));
    });
  });

test("every edge has an answer", () => {
  assert.deepEqual(
    edges.map((edge: Edge) => edge.name).filter((name) => edgeAnswers[name] === undefined),
    [],
  );
  assert.equal(new Set(edges.map(({ name }) => name)).size, edges.length);
});
