// Forms of kernels that only larger sizes take: transposed tiles, several accumulators per row, several rows per column sum, rows whose
// guard is the same for all elements, linear algebra that threads share. Values are computed here in plain JavaScript.
import assert from "node:assert/strict";
import { test } from "node:test";
import * as weft from "../../index.js";
import { numbers, skip } from "./forms.testkit.js";

type Tensor = weft.Tensor;

/** Small whole numbers, so that sums are exact in every dtype. */
const numberAt = (i: number): number => ((i * 7919) % 11) - 5;
const filled = (shape: readonly number[], dtype: weft.DType): Tensor =>
  weft.tensor(
    Array.from({ length: shape.reduce((a, b) => a * b, 1) }, (_, i) => Math.abs(numberAt(i))),
    { shape, dtype },
  );

test("transposed operands of every width and odd sizes", { skip }, async () => {
  weft.setDevice("cpu");
  const dtypes = ["uint8", "bfloat16", "float32", "float64", "complex128"] as const;
  const shapes = [
    [9, 17],
    [65, 130],
    [16, 8],
    [31, 60],
    [44, 25],
  ];
  const inputs = shapes.flatMap((shape) => dtypes.map((dtype) => filled(shape, dtype)));
  const all = weft.jit((...xs: Tensor[]) => xs.map((x) => weft.real(x.transpose().add(1))));
  const results = await Promise.all(all(...inputs).map(numbers));
  results.forEach((result, k) => {
    const [m, n] = inputs[k].shape;
    const expected = Array.from({ length: m * n }, (_, i) => Math.abs(numberAt((i % m) * n + Math.floor(i / m))) + 1);
    assert.deepEqual(result, expected, `${inputs[k].dtype} ${m} x ${n}`);
  });
});

test("an operand that is transposed between other axes, beside one that is not", { skip }, async () => {
  weft.setDevice("cpu");
  const [a, b] = [filled([12, 9, 33], "float32"), filled([33, 12, 9], "float32")];
  const result = await numbers(weft.jit((x: Tensor, y: Tensor) => x.permute([2, 0, 1]).mul(10).add(y))(a, b));
  const [x, y] = [await numbers(a), await numbers(b)];
  const expected = y.map((v, i) => 10 * x[(i % (12 * 9)) * 33 + Math.floor(i / (12 * 9))] + v);
  assert.deepEqual(result, expected);
});

test("long rows and columns, with NaN and infinities anywhere", { skip }, async () => {
  weft.setDevice("cpu");
  const lengths = [256, 1003, 8192, 40001];
  const f = weft.jit((...xs: Tensor[]) =>
    xs.flatMap((x) => [x.sum(1), x.max(1), x.min(1), x.sum(0), x.max(0)].map((y) => y.reshape([-1]))),
  );
  const inputs = lengths.map((n) => {
    const values = Array.from({ length: 3 * n }, (_, i) => numberAt(i));
    // The second row has a NaN near its end, the third both infinities.
    values[2 * n - 2] = Number.NaN;
    values[2 * n + 5] = Number.POSITIVE_INFINITY;
    values[3 * n - 1] = Number.NEGATIVE_INFINITY;
    return { n, values };
  });
  const results = await Promise.all(
    f(...inputs.map(({ n, values }) => weft.tensor(values, { shape: [3, n], dtype: "float32" }))).map(numbers),
  );
  inputs.forEach(({ n, values }, k) => {
    const rows = [0, 1, 2].map((r) => values.slice(r * n, (r + 1) * n));
    const columns = rows[0].map((_, c) => rows.map((row) => row[c]));
    const sum = (list: number[]): number => list.reduce((a, b) => a + b, 0);
    const max = (list: number[]): number => list.reduce((a, b) => Math.max(a, b), Number.NEGATIVE_INFINITY);
    const min = (list: number[]): number => list.reduce((a, b) => Math.min(a, b), Number.POSITIVE_INFINITY);
    const expected = [rows.map(sum), rows.map(max), rows.map(min), columns.map(sum), columns.map(max)];
    expected.forEach((list, i) => {
      assert.deepEqual(results[5 * k + i], list, `${n}, result ${i}`);
    });
  });
});

test("sums over many rows of odd widths", { skip }, async () => {
  weft.setDevice("cpu");
  const x = filled([101, 37], "float32");
  const [sum, largest] = weft.jit((t: Tensor) => [t.sum(0), t.square().max(0)])(x);
  const values = await numbers(x);
  const column = (c: number): number[] => Array.from({ length: 101 }, (_, r) => values[37 * r + c]);
  assert.deepEqual(
    await numbers(sum),
    Array.from({ length: 37 }, (_, c) => column(c).reduce((a, b) => a + b)),
  );
  assert.deepEqual(
    await numbers(largest),
    Array.from({ length: 37 }, (_, c) => Math.max(...column(c)) ** 2),
  );
});

test("numbers of half types keep their bits through conversions, selections and signs", { skip }, async () => {
  weft.setDevice("cpu");
  // All halves and bfloats, as float32 values.
  const all = Uint16Array.from({ length: 65536 }, (_, i) => i);
  for (const dtype of ["float16", "bfloat16"] as const) {
    const x = weft.tensor(all, { dtype, shape: [65536] });
    const f = weft.jit((t: Tensor) => [t.cast("float32").cast(dtype), weft.where(t.less(1), t, t.neg()), t.abs()]);
    const [again, chosen, size] = await Promise.all(f(x).map(numbers));
    const values = await numbers(x);
    assert.deepEqual(again, values);
    assert.deepEqual(
      chosen,
      values.map((v) => (v < 1 ? v : -v)),
    );
    assert.deepEqual(size, values.map(Math.abs));
  }
});

test("gradients of maxima over windows with steps go to the first maximum", { skip }, async () => {
  weft.setDevice("cpu");
  const [h, w, channels] = [11, 13, 5];
  const x = filled([1, h, w, channels], "float32");
  const weights = filled([1, 6, 7, channels], "float32");
  const loss = (t: Tensor): Tensor =>
    weft.maxPool2d(t, { kernel: 3, stride: 2, padding: 1, channelsLast: true }).mul(weights).sum();
  const gradient = await numbers(weft.jit(weft.grad(loss))(x));
  const [values, factors] = [await numbers(x), await numbers(weights)];
  const expected = values.map(() => 0);
  for (let i = 0; i < 6; i++)
    for (let j = 0; j < 7; j++)
      for (let c = 0; c < channels; c++) {
        let best = -1;
        for (let di = -1; di < 2; di++)
          for (let dj = -1; dj < 2; dj++) {
            const [row, column] = [2 * i + di, 2 * j + dj];
            if (row < 0 || row >= h || column < 0 || column >= w) continue;
            const at = (row * w + column) * channels + c;
            if (best < 0 || values[at] > values[best]) best = at;
          }
        expected[best] += factors[(i * 7 + j) * channels + c];
      }
  assert.deepEqual(gradient, expected);
});

test("one large matrix is factorized by several threads", { skip }, async () => {
  weft.setDevice("cpu");
  weft.manualSeed(3);
  const n = 203;
  for (const dtype of ["float64", "complex128"] as const) {
    const random = (...shape: number[]): Tensor => {
      const part = (): Tensor => weft.randn(shape, { dtype: "float64" });
      return dtype === "float64" ? part() : weft.complex(part(), part());
    };
    const a = random(n, n);
    const b = random(n, 70);
    const definite = a.matmul(weft.conj(a).transpose()).add(weft.eye(n, { dtype: "float64" }).cast(dtype));
    const lower = weft.cholesky(definite);
    const close = async (x: Tensor, y: Tensor, what: string): Promise<void> => {
      const error = Number(await weft.abs(x.sub(y)).max().item());
      assert.ok(error < 1e-8, `${what}, ${dtype}: ${error}`);
    };
    await close(a.matmul(weft.solve(a, b)), b, "solve");
    await close(lower.matmul(weft.conj(lower).transpose()), definite, "cholesky");
    await close(lower.matmul(weft.triangularSolve(lower, b)), b, "triangular solve");
    assert.equal(await weft.abs(weft.det(weft.zerosLike(a))).item(), 0);
    assert.ok(
      Number.isNaN(
        Number(
          await weft
            .abs(weft.solve(weft.zerosLike(a), b))
            .max()
            .item(),
        ),
      ),
    );
  }
});

test("gradients of means over windows with steps, rows first", { skip }, async () => {
  weft.setDevice("cpu");
  for (const [h, w, stride] of [
    [12, 32, 2],
    [9, 33, 2],
    [15, 30, 3],
  ]) {
    const x = filled([1, 2, h, w], "float32");
    const pool = (t: Tensor): Tensor => weft.avgPool2d(t, { kernel: 3, stride, padding: 1 });
    const weights = filled(pool(x).shape, "float32");
    const gradient = await numbers(weft.jit(weft.grad((t: Tensor) => pool(t).mul(weights).sum()))(x));
    const factors = await numbers(weights);
    const [rows, columns] = weights.shape.slice(2);
    const expected = gradient.map(() => 0);
    for (let c = 0; c < 2; c++)
      for (let i = 0; i < rows; i++)
        for (let j = 0; j < columns; j++)
          for (let di = -1; di < 2; di++)
            for (let dj = -1; dj < 2; dj++) {
              const [row, column] = [stride * i + di, stride * j + dj];
              if (row >= 0 && row < h && column >= 0 && column < w)
                expected[(c * h + row) * w + column] += factors[(c * rows + i) * columns + j] / 9;
            }
    gradient.forEach((value, i) => {
      assert.ok(Math.abs(value - expected[i]) < 1e-5, `${h} x ${w}, element ${i}: ${value}, not ${expected[i]}`);
    });
  }
});

test("rows that end with an expensive function of their sums, in odd numbers of rows", { skip }, async () => {
  weft.setDevice("cpu");
  for (const [rows, n] of [
    [15, 100],
    [16, 1000],
    [33, 129],
    [100, 2048],
    [257, 70],
  ]) {
    for (const dtype of ["float32", "float64", "bfloat16"] as const) {
      const values = Array.from({ length: rows * n }, (_, i) => numberAt(i) / 4);
      values[3 * n + 7] = Number.NaN;
      values[5 * n + 1] = Number.NEGATIVE_INFINITY;
      const x = weft.tensor(values, { shape: [rows, n], dtype });
      const f = weft.jit((t: Tensor) => {
        const w = t.cast(dtype === "float64" ? "float64" : "float32");
        return [
          w
            .abs()
            .pow(3)
            .sum(-1)
            .pow(1 / 3),
          weft.logsumexp(w, -1),
          w.square().mean(-1).log().add(w.max(-1)),
        ];
      });
      const results = await Promise.all(f(x).map(numbers));
      const each = (of: (row: number[]) => number): number[] =>
        Array.from({ length: rows }, (_, k) => of(values.slice(k * n, (k + 1) * n)));
      const sum = (row: number[]): number => row.reduce((a, b) => a + b, 0);
      const expected = [
        each((row) => sum(row.map((v) => Math.abs(v) ** 3)) ** (1 / 3)),
        each((row) => Math.log(sum(row.map((v) => Math.exp(v))))),
        each((row) => Math.log(sum(row.map((v) => v * v)) / n) + Math.max(...row)),
      ];
      results.forEach((result, k) => {
        result.forEach((v, i) => {
          const e = expected[k][i];
          const isSame = Object.is(v, e) || Math.abs(v - e) <= 2e-6 * Math.abs(e) + 1e-6;
          assert.ok(isSame, `${dtype} ${rows} x ${n}, ${k}: row ${i} is ${v}, not ${e}`);
        });
      });
    }
  }
});

test("exponentials and error functions for results of half types", { skip }, async () => {
  weft.setDevice("cpu");
  const ends = [0, -0, Infinity, -Infinity, NaN, 80, -80, 88.5, 100, -100, -1000];
  const values = [...ends, ...Array.from({ length: 701 }, (_, i) => (i - 350) / 32)];
  for (const [dtype, digits, largest] of [
    ["float16", 10, 65504],
    ["bfloat16", 7, 3.3e38],
  ] as const) {
    const x = weft.tensor(values, { dtype });
    const f = weft.jit((t: Tensor) => [t.exp(), weft.silu(t), weft.sigmoid(t), weft.erfc(t), weft.gelu(t)]);
    const [inputs, ...results] = await Promise.all([x, ...f(x)].map(numbers));
    const sigmoid = (v: number): number => 1 / (1 + Math.exp(-v));
    // Erfc of whole quarters, by a continued fraction beyond 3 and a series below.
    const erfc = (v: number): number => {
      if (Math.abs(v) > 3) {
        let tail = 0;
        for (let k = 60; k > 0; k--) tail = k / 2 / (Math.abs(v) + tail);
        const right = Math.exp(-v * v) / (Math.abs(v) + tail) / Math.sqrt(Math.PI);
        return v > 0 ? right : 2 - right;
      }
      let [term, total] = [v, v];
      for (let k = 1; k < 100; k++) {
        term *= (-v * v) / k;
        total += term / (2 * k + 1);
      }
      return 1 - (2 / Math.sqrt(Math.PI)) * total;
    };
    const expected = [
      (v: number) => Math.exp(v),
      (v: number) => (v === Number.NEGATIVE_INFINITY ? Number.NaN : v * sigmoid(v)),
      sigmoid,
      (v: number) => (Math.abs(v) > 1e3 ? (v > 0 ? 0 : 2) : erfc(v)),
      (v: number) => (Math.abs(v) > 1e3 ? (v > 0 ? v : 0) : 0.5 * v * erfc(-v * Math.SQRT1_2)),
    ];
    results.forEach((result, k) => {
      result.forEach((y, i) => {
        const e = expected[k](inputs[i]);
        if (k === 1 && inputs[i] === Number.NEGATIVE_INFINITY) return;
        if (k === 4 && !Number.isFinite(inputs[i])) return;
        const isSame =
          (Number.isNaN(y) && Number.isNaN(e)) ||
          (e > largest ? y === Number.POSITIVE_INFINITY || y > largest * 0.99 : false) ||
          Math.abs(y - e) <= Math.abs(e) * 2 ** -digits + (dtype === "float16" ? 1e-7 : 1e-37);
        assert.ok(isSame, `${dtype} ${k}: of ${inputs[i]} is ${y}, not ${e}`);
      });
    });
  }
});
