// Products of bfloat16 matrices by the instructions for them, and conversions of float16 numbers in vectors. Whole numbers make sums
// exact, so that every result is known to the last bit. Where the processor lacks the instructions, the same tests check the float32 path.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import * as weft from "../../index.js";
import { build } from "../../ops/index.js";
import { processorHas } from "./compiler.js";
import { CpuDevice } from "./index.js";

const skip = CpuDevice.available() ? false : "no C compiler";
const lacking = processorHas("avx512_bf16") ? skip : "this processor has no AVX512-BF16: its path is not tested here";
type Tensor = weft.Tensor;

/** To the nearest bfloat16, ties to even, from the bits of a float32 number. */
function toBfloat(x: number): number {
  const [bits] = new Uint32Array(Float32Array.of(x).buffer);
  const kept = (bits + 0x7fff + ((bits >>> 16) & 1)) & 0xffff0000;
  return new Float32Array(Uint32Array.of(kept).buffer)[0];
}
const filled = (n: number, from: number): number[] =>
  Array.from({ length: n }, (_, i) => (((i + from) * 7919) % 31) - 15);
const bfloat = (values: readonly number[], shape: number[]): Tensor =>
  weft.tensor([...values], { shape, dtype: "float32" }).cast("bfloat16");
const read = (t: Tensor): number[] => Array.from(t.cast("float64").dataSync(), Number);

/** Rows, depth and columns: edges of strips (4, 8, 16, 32, 48, 64), of pairs, and of what is packed at once (768, 192 and 384). */
const sizes: [number, number, number][] = [
  [2, 1, 2],
  [7, 2, 3],
  [8, 3, 16],
  [17, 16, 17],
  [9, 31, 33],
  [16, 33, 48],
  [5, 64, 49],
  [33, 65, 64],
  [19, 40, 65],
  [3, 767, 130],
  [10, 769, 20],
  [200, 1537, 5],
  [2, 800, 400],
  [33, 65, 33],
  [100, 64, 8],
  [49, 31, 13],
  [65, 900, 16],
  [12, 20, 96],
  [2, 31, 64],
  [4, 66, 150],
  [7, 1001, 97],
];

/** The transposed matrix of one with so many columns. */
const turned = (values: readonly number[], columns: number): number[] => {
  const rows = values.length / columns;
  return values.map((_, at) => values[(at % rows) * columns + Math.floor(at / rows)]);
};

test("bfloat16 products of every layout are sums, rounded once", { skip }, () => {
  weft.setDevice("cpu");
  const operands = sizes.map(([m, k, n]) => ({ a: filled(m * k, 1), b: filled(k * n, 2), m, k, n }));
  // All in one program: compiling takes longer than computing.
  const results = weft.jit((all: Tensor[][]) =>
    all.map((given) => {
      const [a, b, at, bt] = given.map((t) => t.cast("bfloat16"));
      const [left, right] = [at.transpose(), bt.transpose()];
      return [a.matmul(b), left.matmul(right), left.matmul(b), a.matmul(right)].map((t) => t.cast("float32"));
    }),
  )(
    operands.map(({ a, b, m, k, n }) => [
      weft.tensor(a, { shape: [m, k], dtype: "float32" }),
      weft.tensor(b, { shape: [k, n], dtype: "float32" }),
      weft.tensor(turned(a, k), { shape: [k, m], dtype: "float32" }),
      weft.tensor(turned(b, n), { shape: [n, k], dtype: "float32" }),
    ]),
  );
  operands.forEach(({ a, b, m, k, n }, at) => {
    const expected = Array.from({ length: m * n }, (_, i) => {
      let sum = 0;
      for (let p = 0; p < k; p++) sum += a[Math.floor(i / n) * k + p] * b[p * n + (i % n)];
      return toBfloat(sum) + 0;
    });
    results[at].forEach((result, layout) => {
      const got = Array.from(result.dataSync(), Number).map((v) => v + 0);
      assert.deepEqual(got, expected, `layout ${layout} of ${m} x ${k} x ${n}`);
    });
  });
});

test("batches, strided operands and what follows a product", { skip }, () => {
  weft.setDevice("cpu");
  const [x, y] = [filled(3 * 20 * 34, 3), filled(3 * 17 * 18, 4)];
  const f = weft.jit((a: Tensor, b: Tensor) => {
    // Every other column: the operand has no contiguous axis.
    const left = a.slice([0, 0, 0], [3, 20, 34], [1, 1, 2]);
    return weft.relu(left.matmul(b)).mul(0.5);
  });
  const got = read(f(bfloat(x, [3, 20, 34]), bfloat(y, [3, 17, 18])));
  for (let at = 0; at < got.length; at++) {
    const [i, row, j] = [Math.floor(at / 360), Math.floor(at / 18) % 20, at % 18];
    let sum = 0;
    for (let p = 0; p < 17; p++) sum += x[(i * 20 + row) * 34 + 2 * p] * y[(i * 17 + p) * 18 + j];
    assert.equal(got[at] + 0, toBfloat(Math.max(0, toBfloat(sum)) * 0.5) + 0, `element ${at}`);
  }
});

test("infinities and NaN reach the elements that read them, and no others", { skip }, () => {
  weft.setDevice("cpu");
  // An odd depth: the packed pairs end with a zero that must not meet the infinity.
  const [m, k, n] = [9, 35, 50];
  const a = filled(m * k, 5)
    .map(Math.abs)
    .map((v) => v + 1);
  a[2 * k + k - 1] = Number.POSITIVE_INFINITY;
  a[4 * k] = Number.NaN;
  const got = read(
    weft.jit((x: Tensor, y: Tensor) => x.matmul(y))(
      bfloat(a, [m, k]),
      bfloat(a.map(() => 1).concat(new Array(k * n - m * k).fill(1)), [k, n]),
    ),
  );
  got.forEach((v, at) => {
    const row = Math.floor(at / n);
    if (row === 2) assert.equal(v, Number.POSITIVE_INFINITY);
    else assert.equal(Number.isNaN(v), row === 4, `row ${row}: ${v}`);
  });
});

test("the library multiplies bfloat16 numbers as they are", { skip: lacking }, () => {
  const [a, b] = [build.input([64, 48], "bfloat16"), build.input([48, 64], "bfloat16")];
  assert.match(new CpuDevice().source({ params: [a, b], outputs: [build.matmul(a, b)] }), /rt->gemm\(4, 64, 64, 48/);
});

test("without the instructions, float32 blocks give the same", {
  skip: lacking || process.env.WEFT_NO_PAIRS === "1",
}, () => {
  const env = { ...process.env, WEFT_CC_FLAGS: "-Og -DW_NO_BF16", WEFT_NO_PAIRS: "1", NODE_TEST_CONTEXT: undefined };
  const done = spawnSync(process.execPath, ["--test", fileURLToPath(import.meta.url)], { encoding: "utf8", env });
  assert.equal(done.status, 0, done.stdout.slice(-3000));
});

test("float16: every number is kept, and what lies between two goes to the nearest, ties to even", { skip }, () => {
  weft.setDevice("cpu");
  const valueOf = (bits: number): number => {
    const [sign, exponent, fraction] = [bits >> 15 === 1 ? -1 : 1, (bits >> 10) & 31, bits & 1023];
    if (exponent === 31) return fraction === 0 ? sign * Number.POSITIVE_INFINITY : Number.NaN;
    return sign * (exponent === 0 ? fraction * 2 ** -24 : (1024 + fraction) * 2 ** (exponent - 25));
  };
  const given: number[] = [];
  const expected: number[] = [];
  const add = (x: number, y: number): void => {
    given.push(x, -x);
    expected.push(y, -y);
  };
  for (let bits = 0; bits < 0x7c00; bits += 7) {
    const [low, high] = [valueOf(bits), bits + 1 === 0x7c00 ? 65536 : valueOf(bits + 1)];
    const top = high === 65536 ? Number.POSITIVE_INFINITY : high;
    const middle = (low + high) / 2;
    add(low, low);
    add(middle, bits % 2 === 0 ? low : top);
    add(middle * (1 + 2 ** -20), top);
    add(middle * (1 - 2 ** -20), low);
  }
  add(65519.99, 65504);
  add(65520, Number.POSITIVE_INFINITY);
  add(Number.POSITIVE_INFINITY, Number.POSITIVE_INFINITY);
  add(2 ** -25, 0);
  add(2 ** -26, 0);
  given.push(Number.NaN);
  expected.push(Number.NaN);
  const f = weft.jit((x: Tensor) => [x.cast("float16"), x.cast("float16").cast("float32").neg()]);
  const [got, negated] = f(weft.tensor(given, { dtype: "float32" })).map(read);
  given.forEach((x, i) => {
    assert.ok(Object.is(got[i], expected[i]), `${x} became ${got[i]}, expected ${expected[i]}`);
    assert.ok(
      Object.is(negated[i], -expected[i]),
      `the opposite of ${x} became ${negated[i]}, expected ${-expected[i]}`,
    );
  });
});
