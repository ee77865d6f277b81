// Vector forms of mathematical functions: digits, special values, and values that do not depend on their position in a loop.
// The oracle is V8's Math, which is another implementation.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import * as weft from "../../index.js";
import { findCompiler } from "./compiler.js";
import { callsVectorMath, vectorMathUnits, withPrelude } from "./native-units.js";
import { sharedObject } from "./toolchain.js";

const skip = weft.CpuDevice.available() ? false : "no C compiler";

type Pair = [op: (x: weft.Tensor) => weft.Tensor, of: (x: number) => number, from: number, to: number];
const functions: Record<string, Pair> = {
  exp: [weft.exp, Math.exp, -700, 700],
  log: [weft.log, Math.log, 0, 1e4],
  tanh: [weft.tanh, Math.tanh, -25, 25],
  expm1: [weft.expm1, Math.expm1, -40, 40],
  log1p: [weft.log1p, Math.log1p, -1, 100],
  sin: [weft.sin, Math.sin, -3e6, 3e6],
  cos: [weft.cos, Math.cos, -3e6, 3e6],
  tan: [weft.tan, Math.tan, -30, 30],
  asin: [weft.asin, Math.asin, -1, 1],
  acos: [weft.acos, Math.acos, -1, 1],
  atan: [weft.atan, Math.atan, -50, 50],
  sinh: [weft.sinh, Math.sinh, -700, 700],
  cosh: [weft.cosh, Math.cosh, -700, 700],
  asinh: [weft.asinh, Math.asinh, -1e3, 1e3],
  acosh: [weft.acosh, Math.acosh, 1, 1e3],
  atanh: [weft.atanh, Math.atanh, -1, 1],
  atan2: [(x) => weft.atan2(x, 0.75), (x) => Math.atan2(x, 0.75), -30, 30],
  "atan2 of a reversed pair": [(x) => weft.atan2(-2.5, x), (x) => Math.atan2(-2.5, x), -30, 30],
  mod: [(x) => weft.mod(x, 0.75), (x) => (x % 0.75 < 0 ? (x % 0.75) + 0.75 : Math.abs(x % 0.75)), -3000, 3000],
  pow: [(x) => weft.pow(weft.abs(x), 2.5), (x) => Math.abs(x) ** 2.5, -30, 30],
};
const special = [
  0,
  -0,
  Infinity,
  -Infinity,
  NaN,
  1,
  -1,
  0.5,
  -0.5,
  1e-310,
  5e-324,
  -5e-324,
  1e-30,
  710,
  -746,
  1e22,
  -1e300,
];

/** Distance in units of the last place of the expected value. */
function ulps(got: number, expected: number, dtype: "float32" | "float64"): number {
  if (Object.is(got, expected) || got === expected) return Object.is(got, expected) ? 0 : expected === 0 ? Infinity : 0;
  if (Number.isNaN(got) || Number.isNaN(expected) || !Number.isFinite(got) || !Number.isFinite(expected))
    return Infinity;
  const [digits, least] = dtype === "float32" ? [23, -149] : [52, -1074];
  const unit = 2 ** Math.max(Math.floor(Math.log2(Math.abs(expected))) - digits, least);
  return Math.abs(got - expected) / unit;
}

let seed = 7;
const random = (): number => {
  seed = (seed * 1664525 + 1013904223) >>> 0;
  return seed / 2 ** 32;
};

for (const dtype of ["float32", "float64"] as const) {
  const Values = dtype === "float32" ? Float32Array : Float64Array;
  for (const [name, [op, of, from, to]] of Object.entries(functions)) {
    test(`${name} of ${dtype} has its digits at every position`, { skip }, () => {
      weft.setDevice("cpu");
      const wide = Array.from({ length: 2000 }, () => from + (to - from) * random());
      const near = Array.from({ length: 500 }, () => (random() - 0.5) * 2 ** (-20 * random()));
      const values = Values.from([...special, ...wide, ...near]);
      const all = op(weft.tensor(values, { dtype })).dataSync() as Float64Array;
      values.forEach((x, i) => {
        const exact = of(x);
        const expected = dtype === "float32" ? Math.fround(exact) : exact;
        assert.ok(ulps(all[i], expected, dtype) <= 4, `${name}(${x}) is ${expected}, got ${all[i]}`);
      });
      for (const start of [1, 2, 3, 5, 13]) {
        const part = op(weft.tensor(values.slice(start, start + 40), { dtype })).dataSync() as Float64Array;
        for (const [i, y] of part.entries())
          assert.ok(Object.is(y, all[start + i]), `${name}(${values[start + i]}) depends on its position`);
      }
    });
  }
}

/** Arguments, and the error function and its complement there, by mpmath with 40 digits. */
const errorFunctions = [
  [1e-310, 1.1283791670955e-310, 1.0],
  [1e-9, 1.1283791670955127e-9, 0.9999999988716208],
  [0.1, 0.1124629160182849, 0.887537083981715],
  [0.47, 0.4937450508860821, 0.5062549491139179],
  [0.84, 0.7651427114549945, 0.23485728854500548],
  [0.999, 0.8422852702064969, 0.15771472979350307],
  [1.0, 0.8427007929497149, 0.15729920705028513],
  [1.001, 0.8431154854780762, 0.15688451452192373],
  [1.25, 0.9229001282564583, 0.07709987174354177],
  [1.556, 0.9722297154562728, 0.02777028454372717],
  [1.99, 0.995111413199617, 0.004888586800383003],
  [2.0, 0.9953222650189527, 0.004677734981047266],
  [2.857, 0.9999466417399131, 5.3358260086846374e-5],
  [3.5, 0.9999992569016276, 7.430983723414128e-7],
  [4.9, 0.999999999995781, 4.218936524005766e-12],
  [5.92, 0.9999999999999999, 5.657910571379924e-17],
  [8.0, 1.0, 1.1224297172982926e-29],
  [12.5, 1.0, 6.231942781979911e-70],
  [17.06775, 1.0, 1.0116038963269335e-128],
  [22.2, 1.0, 2.3277703713110524e-216],
  [25.9, 1.0, 1.0202833184732667e-293],
  [26.5, 1.0, 2.2109076642637343e-307],
  [26.9, 1.0, 1.1522406e-316],
  [27.2, 1.0, 1e-323],
  [-0.3, -0.3286267594591274, 1.3286267594591274],
  [-0.99, -0.8385080695553698, 1.8385080695553697],
  [-1.7, -0.9837904585907745, 1.9837904585907746],
  [-3.1, -0.9999883513426328, 1.9999883513426329],
  [-6.5, -1.0, 2.0],
] as const;

test("error functions of float64 have their digits at every position", { skip }, () => {
  weft.setDevice("cpu");
  const ends = [0, -0, Infinity, -Infinity, NaN, 28, 1e300, -1e300];
  // Plain numbers around them fill vectors in every order.
  const values = Float64Array.from([...ends, ...errorFunctions.map(([x]) => x)]);
  const both = weft.jit((x: weft.Tensor) => [weft.erf(x), weft.erfc(x)]);
  const [erf, erfc] = both(weft.tensor(values, { dtype: "float64" })).map((t) => t.dataSync() as Float64Array);
  assert.deepEqual([...erf.slice(0, ends.length)], [0, -0, 1, -1, NaN, 1, 1, -1]);
  assert.deepEqual([...erfc.slice(0, ends.length)], [1, 1, 0, 2, NaN, 0, 0, 2]);
  errorFunctions.forEach(([x, exact, rest], i) => {
    assert.ok(ulps(erf[ends.length + i], exact, "float64") <= 2, `erf(${x}) is ${exact}, got ${erf[ends.length + i]}`);
    assert.ok(ulps(erfc[ends.length + i], rest, "float64") <= 4, `erfc(${x}) is ${rest}, got ${erfc[ends.length + i]}`);
  });
  for (let start = 1; start < 9; start++) {
    const part = both(weft.tensor(values.slice(start), { dtype: "float64" }));
    assert.deepEqual([...part[0].dataSync()], [...erf.slice(start)]);
    assert.deepEqual([...part[1].dataSync()], [...erfc.slice(start)]);
  }
});

/** Bases, exponents and powers, by mpmath with 45 digits. */
const powers = [
  [1.0000060986989874, 111212693.09726627, 3.635160319383898e294],
  [0.9999999999999865, 5.230186641853992e16, 2.1858951660480983e-308],
  [43242940722374.8, -17.99861715726993, 3.735789181180457e-246],
  [2.5, 2.5, 9.882117688026186],
  [1e-310, 0.5, 9.999999999999986e-156],
  [3e-320, -0.9, 3.720447857293525e287],
  [7.3e300, 1.02, 7.596076280686621e306],
  [0.0019329353781398773, -1.498269384272092, 11640.656731513905],
  [1.9999999999999998, 1023.5, 1.2711610061535019e308],
  [0.1, 322.9, 1.5e-323],
] as const;

test("powers of float64 have their digits far from 1, whole ones are exact, and others follow C99", { skip }, () => {
  weft.setDevice("cpu");
  const rules = [
    ...[
      [0, 0, 1],
      [-0, 3, -0],
      [-0, -3, -Infinity],
      [0, -0.5, Infinity],
      [-8, 3, -512],
      [-8, 0.5, NaN],
      [-2, -1, -0.5],
    ],
    ...[
      [1, NaN, 1],
      [NaN, 0, 1],
      [NaN, 1, NaN],
      [-1, Infinity, 1],
      [0.5, Infinity, 0],
      [2, -Infinity, 0],
    ],
    ...[
      [Infinity, -1, 0],
      [-Infinity, 3, -Infinity],
      [-Infinity, 2, Infinity],
      [2, 1e6, Infinity],
      [0.5, 1e6, 0],
    ],
  ];
  const whole: number[][] = [];
  for (let a = 1; a < 120; a++)
    for (let b = 0n; a ** Number(b) < 2 ** 53 && b < 12n; b++) whole.push([a, Number(b), Number(BigInt(a) ** b)]);
  const all = [...rules, ...whole, ...powers];
  const column = (at: number): weft.Tensor => weft.tensor(Float64Array.from(all, (row) => row[at]));
  const [x, y] = [column(0), column(1)];
  const got = weft
    .jit((a: weft.Tensor, b: weft.Tensor) => weft.pow(a, b))(x, y)
    .dataSync() as Float64Array;
  all.forEach(([a, b, power], i) => {
    const most = i < rules.length + whole.length ? 0 : 1;
    assert.ok(ulps(got[i], power, "float64") <= most, `${a} ** ${b} is ${power}, got ${got[i]}`);
  });
});

test("loops call the vector forms where the compiler can", { skip: process.arch !== "x64" }, (t) => {
  const compiler = findCompiler();
  if (compiler === null || !compiler.flags.includes("-DW_VECTOR_MATH")) return t.skip("the compiler is not gcc");
  const loop = 'extern __attribute__((simd("notinbranch"), const, nothrow)) double w_sin_d(double);\n';
  const body =
    "void k(const double* a, double* b) {\n#pragma omp simd\nfor (int i = 0; i < 64; i++) b[i] = w_sin_d(a[i]); }";
  const { path } = sharedObject([loop + body]);
  assert.match(readFileSync(path, "latin1"), /_ZGV[bcde]N\d+v_w_sin_d/);
  assert.ok(vectorMathUnits().length >= 14);
  assert.ok(!callsVectorMath("float t1 = w_exp_f(t0);") && callsVectorMath("w_cexp_f(t0, t1, &t2, &t3);"));
});

test("programs without these functions are not linked with their vector forms", () => {
  assert.ok(!callsVectorMath(withPrelude("float t1 = t0 + 1.0f;")));
  assert.ok(callsVectorMath(withPrelude("float t1 = w_atan2_f(t0, 1.0f); float t2 = w_mod_f(t1, t0);")));
});
