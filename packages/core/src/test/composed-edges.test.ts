// Functions that are composed of others at the edges of their domains: dtypes that they do not have, infinities, zeros, large images.
// Expected values are written out.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import * as weft from "../index.js";
import { type Tensor, useDevice } from "../index.js";
import { testDevices } from "./devices.js";

const int32 = { dtype: "int32" } as const;
const f64 = { dtype: "float64" } as const;

for (const device of testDevices())
  describe(`edges of composed functions (${device.name})`, () => {
    test("segments need ids that are integers, and extremes numbers with an order", () => {
      useDevice(device.make());
      const ids = weft.tensor([0, 1, 1], int32);
      const complex = weft.ones([3]).cast("complex64");
      assert.throws(() => weft.segmentReduce(complex, ids, 2, { mode: "max" }), /no order/);
      assert.throws(() => weft.segmentReduce(weft.ones([3]), weft.tensor([0, 1.5, 1]), 2), /ids are integers/);
    });

    test("powers of whole matrices are whole, and inverses are not", () => {
      useDevice(device.make());
      const fibonacci = weft.tensor([1, 1, 1, 0], int32).reshape([2, 2]);
      const powers = [45, 0, -1].map((exponent) => weft.matrixPower(fibonacci, exponent));
      assert.deepEqual(
        powers.map((t) => [t.dtype, t.arraySync()]),
        [
          // 1836311903 needs 31 bits.
          [
            "int32",
            [
              [1836311903, 1134903170],
              [1134903170, 701408733],
            ],
          ],
          [
            "int32",
            [
              [1, 0],
              [0, 1],
            ],
          ],
          [
            "float32",
            [
              [0, 1],
              [1, -1],
            ],
          ],
        ],
      );
    });

    test("qr and eigenvalues of matrices of zeros, of tiny and of huge numbers", () => {
      useDevice(device.make());
      for (const unit of [1e-200, 1, 1e200]) {
        const a = weft
          .tensor(
            [1, 2, 3, -1].map((x) => x * unit),
            f64,
          )
          .reshape([2, 2]);
        const inUnits = (t: Tensor): number[] => [...(t.dataSync() as Float64Array)].map((x) => x / unit);
        const values = inUnits(weft.eigvals(a).real()).sort((x, y) => x - y);
        const r = inUnits(weft.qr(a).r);
        const expected = [-Math.sqrt(7), Math.sqrt(7), Math.sqrt(10), -1 / Math.sqrt(10), 0, 7 / Math.sqrt(10)];
        [...values, ...r].forEach((x, i) => void assert.ok(Math.abs(x - expected[i]) < 1e-14, `${unit}: ${x}`));
      }
      const { values, vectors } = weft.eig(weft.zeros([3, 3], f64));
      assert.deepEqual(values.real().arraySync(), [0, 0, 0]);
      assert.deepEqual(weft.vectorNorm(vectors, { axes: 0 }).arraySync(), [1, 1, 1]);
    });

    test("complex numbers are rounded part by part", () => {
      useDevice(device.make());
      const z = weft.complex(weft.tensor([1.5, -0.25, 2.344], f64), weft.tensor([2.5, -1.75, 6.786], f64));
      const parts = weft.jit((t: Tensor) => [t.round(), weft.round(t, 1)].flatMap((r) => [r.real(), r.imag()]));
      assert.deepEqual(
        parts(z).map((t) => t.arraySync()),
        [
          [2, -0, 2],
          [2, -2, 7],
          [1.5, -0.2, 2.3],
          [2.5, -1.8, 6.8],
        ],
      );
    });

    test("sinc of complex numbers", () => {
      useDevice(device.make());
      const z = weft.complex(weft.tensor([1.5, -0.5, 0, 0.01, 0], f64), weft.tensor([2.5, -1.5, 0, 0.02, 2], f64));
      // np.sinc, and sinh(2 pi) / (2 pi) on the imaginary axis.
      const expected = [
        [-72.34914698414939, 3.543640887168104, 1, 1.0004934233757654, Math.sinh(2 * Math.PI) / (2 * Math.PI)],
        [120.58191164024893, -10.630922661504313, 0, -0.0006581684533135666, 0],
      ];
      const got = weft.jit((t: Tensor) => [weft.sinc(t).real(), weft.sinc(t).imag()])(z);
      got.forEach((t, k) => {
        for (const [i, x] of (t.arraySync() as number[]).entries())
          assert.ok(Math.abs(x - expected[k][i]) <= 1e-13 * Math.max(1, Math.abs(expected[k][i])), `${i}: ${x}`);
      });
    });

    test("linspace rounds integers down", () => {
      useDevice(device.make());
      const rows = [weft.linspace(0, 10, 4, int32), weft.linspace(-1, 1, 4, int32), weft.linspace(0, -3, 5, int32)];
      const open = weft.linspace(-2.5, 2.5, 6, { ...int32, endpoint: false });
      assert.deepEqual(
        [...rows, open].map((t) => t.arraySync()),
        [
          [0, 3, 6, 10],
          [-1, -1, 0, 1],
          [0, -1, -2, -3, -3],
          [-3, -2, -1, 0, 0, 1],
        ],
      );
    });

    test("gammaln and quantiles of infinities", () => {
      useDevice(device.make());
      const inf = Number.POSITIVE_INFINITY;
      assert.deepEqual(weft.gammaln(weft.tensor([-inf, inf])).arraySync(), [inf, inf]);
      const quantiles = (x: number[]): unknown =>
        weft
          .jit((t: Tensor) => weft.quantile(t, [0, 0.25, 0.5, 0.75, 1]))(weft.tensor(x, f64))
          .arraySync();
      assert.deepEqual(quantiles([1, 2, inf]), [1, 1.5, 2, inf, inf]);
      assert.deepEqual(quantiles([-inf, 1, 2]), [-inf, -inf, 1, 1.5, 2]);
      assert.deepEqual(quantiles([inf, inf]), [inf, inf, inf, inf, inf]);
      assert.deepEqual(quantiles([-inf, inf]), [-inf, Number.NaN, Number.NaN, Number.NaN, inf]);
    });

    test("fold refuses integers, which have no pullback", () => {
      useDevice(device.make());
      assert.throws(() => weft.fold(weft.ones([1, 4, 4], int32), [3, 3], { kernel: 2 }), /fold: needs floats/);
    });

    test("gridSample finds pixels beyond 2^24, and zeros at infinite places", () => {
      useDevice(device.make());
      const size = 4100;
      const image = weft.arange(size, { dtype: "float32" }).reshape([1, 1, 1, size]).expand([1, 1, size, size]);
      const center = (i: number): number => (2 * i + 1) / size - 1;
      const grid = weft.tensor([[[[center(4097), center(4099)]]]]);
      assert.equal(weft.gridSample(image, grid, { mode: "nearest" }).itemSync(), 4097);
      const far = weft.tensor([[[[Number.POSITIVE_INFINITY, 0]]]]);
      assert.equal(weft.gridSample(weft.ones([1, 1, 2, 2]), far).itemSync(), 0);
    });

    test("gradients of interpolation are 0 where no element of the result uses one", () => {
      useDevice(device.make());
      const nearest = (x: Tensor): Tensor => weft.interpolate(x, { size: 2, mode: "nearest" }).log().sum();
      const slope = weft.grad(nearest)(weft.tensor([[[0, 1, 2, 3]]]));
      assert.deepEqual(slope.arraySync(), [[[Number.POSITIVE_INFINITY, 0, 0.5, 0]]]);
    });

    test("the derivative of ldexp at 0 is the power of two", () => {
      useDevice(device.make());
      const slope = weft.grad((x: Tensor) => weft.ldexp(x, weft.tensor(3, int32)).sum())(weft.tensor([0, 1]));
      assert.deepEqual(slope.arraySync(), [8, 8]);
      const [zero, infinite] = weft.ldexp(weft.tensor([-0, Number.NEGATIVE_INFINITY]), 5000).arraySync() as number[];
      assert.ok(Object.is(zero, -0) && infinite === Number.NEGATIVE_INFINITY);
    });

    test("narrow places count from the end of wide shapes", () => {
      useDevice(device.make());
      const [row, column] = weft.unravelIndex(weft.tensor([-1], { dtype: "int8" }), [1, 1000]);
      assert.deepEqual([row.arraySync(), column.arraySync(), column.dtype], [[0], [999], "int32"]);
    });

    test("asynchronous calls keep their numbers when another one evicts their program", async () => {
      useDevice(device.make());
      const scaled = weft.jit((x: Tensor, by: number) => x.mul(by), { maxPrograms: 1 });
      const x = weft.tensor([1, 2], { dtype: "float64" });
      const results = await Promise.all([0.1, 0.2, 0.3].map((by) => scaled.runAsync(x, by)));
      assert.deepEqual(
        results.map((t) => t.arraySync()),
        [
          [0.1, 0.2],
          [0.2, 0.4],
          [0.3, 0.6],
        ],
      );
    });
  });
