// Products of elements and their updates on every device: dtypes, indices out of range, rows, zeros, and first and second derivatives.
// Oracles are loops in plain JavaScript and products of the other factors, written out.
import assert from "node:assert/strict";
import { before, test } from "node:test";
import { device as emulated, skip as noEmulator, prepareEmulator } from "../device/cuda/emulated/testkit.js";
import * as weft from "../index.js";
import { Mesh, partitionFunction } from "../shard/index.js";
import { simplify } from "../transform/index.js";
import { generator, randomPlacement, randomStrategy } from "./random-split.js";
import { shardedProblems } from "./sharded.js";
import { trace } from "./traced.js";

const devices: [name: string, use: () => weft.Device, skip: false | string][] = [
  ["reference", () => weft.setDevice(new weft.ReferenceDevice()), false],
  ["cpu", () => weft.setDevice("cpu"), weft.CpuDevice.available() ? false : "no C compiler"],
  ["emulated cuda", () => weft.setDevice(emulated()), noEmulator],
];
before(prepareEmulator);

const pseudo = (i: number): number => Math.floor(Math.abs(Math.sin(i * 12.9898) * 43758.5453) % 1000);
const bits = { int8: 8, uint16: 16, int32: 32, uint32: 32, int64: 64 } as const;
const wrap = (dtype: keyof typeof bits, x: bigint): bigint =>
  dtype.startsWith("u") ? BigInt.asUintN(bits[dtype], x) : BigInt.asIntN(bits[dtype], x);

for (const [name, use, skip] of devices) {
  test(`products of integers are exact modulo their range (${name})`, { skip }, () => {
    use();
    const [n, count] = [37, 500];
    const at = Array.from({ length: count }, (_, i) => (pseudo(i) % (n + 5)) - 2);
    for (const dtype of Object.keys(bits) as (keyof typeof bits)[]) {
      const [x, u] = [1, 7].map((seed) =>
        Array.from({ length: seed === 1 ? n : count }, (_, i) => 1 + (pseudo(i + 31 * seed) % 90)),
      );
      const wanted = x.map(BigInt);
      at.forEach((place, i) => {
        const from = place < 0 ? place + n : place;
        if (from < n) wanted[from] *= BigInt(u[i]);
      });
      const found = weft.scatter(
        weft.tensor(x, { dtype }),
        weft.tensor(at, { dtype: "int32" }),
        weft.tensor(u, { dtype }),
        { mode: "mul" },
      );
      assert.equal(found.dtype, dtype);
      assert.deepEqual(
        Array.from(found.dataSync() as Int32Array, BigInt),
        wanted.map((product) => wrap(dtype, product)),
        dtype,
      );
    }
  });

  test(`products of floats, of rows, and beside zeros, NaN and infinities (${name})`, { skip }, () => {
    use();
    // Few places, of which one has more updates than a warp, a list or a block takes; and many.
    for (const [n, count, width] of [
      [3, 9000, 1],
      [3, 700, 5],
      [400, 900, 1],
      [50, 900, 40],
    ])
      for (const dtype of ["float16", "bfloat16", "float32", "float64"] as const) {
        const ids = Array.from({ length: count }, (_, i) => (i % 4 === 0 ? 0 : (pseudo(i) % (n + 4)) - 2));
        const u = Array.from({ length: count * width }, (_, i) =>
          i % 977 === 5 && i > 2000 ? [Number.NaN, Infinity, 0, -0][i % 4] : [1, 2, 0.5, -1][pseudo(i) % 4],
        );
        const wanted = new Array<number>(n * width).fill(1);
        ids.forEach((row, i) => {
          if (row < 0 || row >= n) return;
          for (let k = 0; k < width; k++) wanted[row * width + k] *= u[i * width + k];
        });
        // Powers of two are exact in every order, as long as they stay in the range.
        const limit = { float16: 14, bfloat16: 120, float32: 120, float64: 1000 }[dtype];
        const found = Array.from(
          weft
            .segmentReduce(
              weft.tensor(Float64Array.from(u), { shape: [count, width] }).cast(dtype),
              weft.tensor(ids, { dtype: "int32" }),
              n,
              { mode: "mul" },
            )
            .cast("float64")
            .dataSync() as Float64Array,
        );
        wanted.forEach((product, i) => {
          const size = Math.abs(Math.log2(Math.abs(product)));
          if (Number.isFinite(size) && size > limit) return;
          assert.ok(
            Object.is(found[i] + 0, product + 0),
            `${dtype} ${n}x${width} from ${count}, ${i}: ${found[i]}, not ${product}`,
          );
        });
      }
  });

  test(`first and second derivatives of products, with none, one, two and three zeros (${name})`, { skip }, () => {
    use();
    // By place: no zero, one, three (the element too), two.
    const at = [0, 0, 1, 1, 2, 2, 3, 3, 9];
    const x = [2, 3, 0, 4];
    const u = [1.5, -2, 0, 5, 0, 0, 0, 0, 7];
    const factors = [...x, ...u];
    const places = [0, 1, 2, 3, ...at];
    const weights = [1, -2, 3, 0.5];
    const tangent = factors.map((_, i) => Math.sin(3 * i + 1));
    const others = (out: readonly number[]): number =>
      factors.reduce((p, f, i) => (places[i] === places[out[0]] && !out.includes(i) ? p * f : p), 1);
    const first = factors.map((_, i) => (places[i] > 3 ? 0 : weights[places[i]] * others([i])));
    const second = factors.map((_, i) =>
      factors.reduce(
        (sum, _f, j) =>
          i === j || places[i] !== places[j] || places[i] > 3
            ? sum
            : sum + weights[places[i]] * others([i, j]) * tangent[j],
        0,
      ),
    );
    const value = (all: weft.Tensor): weft.Tensor =>
      weft
        .scatter(all.slice([0], [4]), weft.tensor(at, { dtype: "int32" }), all.slice([4], [13]), { mode: "mul" })
        .mul(weft.tensor(weights, { dtype: "float64" }))
        .sum();
    const point = weft.tensor(factors, { dtype: "float64" });
    const slope = weft.grad(value);
    const close = (got: weft.Tensor, wanted: number[], what: string): void =>
      Array.from(got.dataSync() as Float64Array).forEach((v, i) => {
        assert.ok(Math.abs(v - wanted[i]) < 1e-12, `${what} ${i}: ${v}, not ${wanted[i]}`);
      });
    close(slope(point) as weft.Tensor, first, "first");
    const along = weft.grad((all: weft.Tensor) =>
      (slope(all) as weft.Tensor).mul(weft.tensor(tangent, { dtype: "float64" })).sum(),
    );
    close(along(point) as weft.Tensor, second, "second");
  });

  test(`complex products (${name})`, { skip }, () => {
    use();
    const found = weft.scatter(
      weft.complex(weft.tensor([1, 0]), weft.tensor([1, 2])),
      weft.tensor([0, 0, 1], { dtype: "int32" }),
      weft.complex(weft.tensor([0, 2, 3]), weft.tensor([1, 0, -1])),
      { mode: "mul" },
    );
    assert.deepEqual(Array.from(found.real().dataSync() as Float32Array), [-2, 2]);
    assert.deepEqual(Array.from(found.imag().dataSync() as Float32Array), [2, 6]);
  });
}

test("products of updates and rows that are divided among devices", () => {
  weft.setDevice(new weft.ReferenceDevice());
  const numbers = (n: number, seed: number): weft.Tensor =>
    weft.tensor(
      Float64Array.from({ length: n }, (_, i) => [1, 2, 0.5, -1, 3][pseudo(i + seed) % 5]),
      { shape: [n / 2, 2] },
    );
  const ids = weft.tensor(Int32Array.from({ length: 24 }, (_, i) => pseudo(i) % 7));
  const { fn: whole, args } = trace(
    (x, u, at) => [
      weft.scatter(x, at.reshape([24, 1]).expand([24, 2]), u, { axis: 0, mode: "mul" }),
      weft.segmentReduce(u, at, 6, { mode: "mul" }),
    ],
    [numbers(12, 0), numbers(48, 5), ids],
  );
  const fn = simplify(whole);
  const draw = generator("products");
  let divided = 0;
  for (let round = 0; round < 40; round++) {
    const mesh = [Mesh.of({ a: 2 }), Mesh.of({ a: 3 }), Mesh.of({ a: 2, b: 2 })][round % 3];
    const params = fn.params.map(({ shape }) => randomPlacement(mesh, shape, draw));
    const parts = partitionFunction(fn, { mesh, params, strategy: randomStrategy(mesh, draw) });
    const { problems, run } = shardedProblems(`round ${round}`, fn, args, parts);
    assert.deepEqual(problems, []);
    if (run.bytes > 0) divided++;
  }
  assert.ok(divided > 10, `only ${divided} of 40 rounds exchanged anything`);
});
