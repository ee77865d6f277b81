// Forms of kernels for many short rows, for places of extremes, for parts of concatenations and for scattered single elements. Values are
// computed here in plain JavaScript.
import assert from "node:assert/strict";
import { test } from "node:test";
import * as weft from "../../index.js";
import { build } from "../../ops/index.js";
import { make, numberAt, numbers, skip } from "./forms.testkit.js";
import { CpuDevice } from "./index.js";

type Tensor = weft.Tensor;

const chunks = (values: readonly number[], n: number): number[][] =>
  Array.from({ length: values.length / n }, (_, i) => values.slice(i * n, (i + 1) * n));

test("sums, products and extremes of short rows of every dtype", { skip }, async () => {
  weft.setDevice("cpu");
  const dtypes = ["float32", "float64", "float16", "bfloat16", "int32", "int64", "uint8", "int16"] as const;
  for (const [rows, n] of [
    [256, 2],
    [300, 17],
    [321, 33],
    [1000, 7],
    [257, 63],
    [300, 28],
    [290, 44],
  ]) {
    const values = Array.from({ length: rows * n }, (_, i) => Math.abs(numberAt(i)) % 5);
    const inputs = dtypes.map((dtype) => make([rows, n], dtype, values));
    const f = weft.jit((...xs: Tensor[]) => xs.flatMap((x) => [x.sum(-1), x.max(-1), x.min(-1), x.prod(-1)]));
    const results = await Promise.all(f(...inputs).map(numbers));
    const expected = [
      (row: number[]) => row.reduce((a, b) => a + b, 0),
      (row: number[]) => Math.max(...row),
      (row: number[]) => Math.min(...row),
      (row: number[]) => row.reduce((a, b) => a * b, 1),
    ];
    results.forEach((result, k) => {
      // Products of whole numbers leave the range of most dtypes where no factor is zero.
      if (k % 4 === 3 && n > 7) return;
      assert.deepEqual(result, chunks(values, n).map(expected[k % 4]), `${dtypes[k >> 2]} ${rows} x ${n}, ${k % 4}`);
    });
  }
});

test("NaN and infinities stay in their own short rows", { skip }, async () => {
  weft.setDevice("cpu");
  const [rows, n] = [323, 19];
  const values = Array.from({ length: rows * n }, (_, i) => numberAt(i));
  values[5 * n + 18] = Number.NaN;
  values[64 * n] = Number.POSITIVE_INFINITY;
  values[322 * n + 3] = Number.NEGATIVE_INFINITY;
  for (let i = 0; i < n; i++) values[100 * n + i] = Number.NEGATIVE_INFINITY;
  const x = make([rows, n], "float32", values);
  const f = weft.jit((t: Tensor) => [t.max(-1), t.min(-1), weft.logsumexp(t, -1), weft.softmax(t, -1)]);
  const [most, least, logs, soft] = await Promise.all(f(x).map(numbers));
  chunks(values, n).forEach((row, i) => {
    const nan = row.some(Number.isNaN);
    assert.equal(most[i], nan ? Number.NaN : Math.max(...row));
    assert.equal(least[i], nan ? Number.NaN : Math.min(...row));
    const top = Math.max(...row);
    const total = row.reduce((sum, v) => sum + Math.exp(v - top), 0);
    if (!Number.isFinite(top)) return;
    assert.ok(Math.abs(logs[i] - (top + Math.log(total))) < 1e-5, `row ${i}`);
    row.forEach((v, k) => {
      assert.ok(Math.abs(soft[i * n + k] - Math.exp(v - top) / total) < 1e-6, `row ${i}, ${k}`);
    });
  });
  assert.equal(logs[100], Number.NEGATIVE_INFINITY);
  assert.ok(Number.isNaN(soft[5 * n]) && !Number.isNaN(soft[6 * n]));
});

test("norms of short rows with numbers of rows and of columns", { skip }, async () => {
  weft.setDevice("cpu");
  for (const dtype of ["float32", "bfloat16"] as const) {
    const [rows, n] = [330, 21];
    const values = Array.from({ length: rows * n }, (_, i) => numberAt(i));
    const gains = Array.from({ length: n }, (_, i) => 1 + (i % 3));
    const shifts = Array.from({ length: rows }, (_, i) => i % 5);
    const f = weft.jit((x: Tensor, g: Tensor, s: Tensor) => {
      const wide = x.cast("float32");
      const centered = wide.sub(wide.mean(-1, { keepDims: true }));
      return centered
        .div(centered.square().mean(-1, { keepDims: true }).add(1).sqrt())
        .mul(g)
        .add(s.unsqueeze(1))
        .cast(dtype);
    });
    const result = await numbers(
      f(make([rows, n], dtype, values), make([n], "float32", gains), make([rows], "float32", shifts)),
    );
    chunks(values, n).forEach((row, i) => {
      const mean = row.reduce((a, b) => a + b, 0) / n;
      const deviation = Math.sqrt(row.reduce((a, b) => a + (b - mean) ** 2, 0) / n + 1);
      row.forEach((v, k) => {
        const expected = ((v - mean) / deviation) * gains[k] + shifts[i];
        const off = Math.abs(result[i * n + k] - expected);
        assert.ok(off <= (dtype === "float32" ? 1e-5 : 0.02 * Math.abs(expected) + 0.02), `${dtype} ${i} ${k}`);
      });
    });
  }
});

test("places of extremes of long rows: the first of equals, the first NaN", { skip }, async () => {
  weft.setDevice("cpu");
  for (const dtype of ["float32", "float64", "int32", "bfloat16"] as const)
    for (const n of [128, 1000, 4097]) {
      const rows = 6;
      const values = Array.from({ length: rows * n }, (_, i) => numberAt(i) % 7);
      const isFloat = dtype !== "int32";
      if (isFloat) {
        values[n + n - 1] = Number.NaN;
        values[2 * n + 70] = Number.NaN;
        values[2 * n + 90] = Number.NaN;
        for (let i = 0; i < n; i++) values[3 * n + i] = Number.NEGATIVE_INFINITY;
        for (let i = 0; i < n; i++) values[4 * n + i] = i % 2 === 0 ? -0 : 0;
      }
      const f = weft.jit((x: Tensor) => [x.argmax(-1), x.argmin(-1), x.reshape([-1]).argmax(0)]);
      const [most, least, all] = await Promise.all(f(make([rows, n], dtype, values)).map(numbers));
      const place = (row: readonly number[], better: (a: number, b: number) => boolean): number => {
        const nan = row.findIndex(Number.isNaN);
        return nan >= 0 ? nan : row.reduce((best, v, i) => (better(v, row[best]) ? i : best), 0);
      };
      const label = `${dtype} ${n}`;
      assert.deepEqual(
        most,
        chunks(values, n).map((row) => place(row, (a, b) => a > b)),
        label,
      );
      assert.deepEqual(
        least,
        chunks(values, n).map((row) => place(row, (a, b) => a < b)),
        label,
      );
      assert.deepEqual(all, [place(values, (a, b) => a > b)], label);
    }
});

test("rows of parts of a concatenation, and running extremes along columns", { skip }, async () => {
  weft.setDevice("cpu");
  const [m, n] = [50, 65];
  const values = Array.from({ length: m * n }, (_, i) => numberAt(i));
  values[20 * n + 3] = Number.NaN;
  for (const dtype of ["float32", "float16"] as const) {
    const f = weft.jit((x: Tensor) => [
      weft.cummin(x, 0),
      weft.concat([x.mul(2), x.add(1), x.neg()], 0),
      weft.pad(x, [
        [2, 3],
        [0, 0],
      ]),
    ]);
    const [least, joined, padded] = await Promise.all(f(make([m, n], dtype, values)).map(numbers));
    const running = [...values];
    for (let i = n; i < m * n; i++) running[i] = Math.min(running[i - n], values[i]);
    assert.deepEqual(least, running, dtype);
    assert.deepEqual(joined, [...values.map((v) => 2 * v), ...values.map((v) => v + 1), ...values.map((v) => -v)]);
    assert.deepEqual(padded, [...Array(2 * n).fill(0), ...values, ...Array(3 * n).fill(0)]);
  }
});

/** The number that 16 bits are. */
function halfOf(bits: number, dtype: "float16" | "bfloat16"): number {
  const [exponents, fraction, bias] = dtype === "float16" ? [5, 10, 15] : [8, 7, 127];
  const sign = bits >> 15 ? -1 : 1;
  const exponent = (bits >> fraction) & (2 ** exponents - 1);
  const rest = (bits & (2 ** fraction - 1)) / 2 ** fraction;
  if (exponent === 2 ** exponents - 1) return rest === 0 ? sign * Number.POSITIVE_INFINITY : Number.NaN;
  return sign * (exponent === 0 ? rest * 2 ** (1 - bias) : (1 + rest) * 2 ** (exponent - bias));
}

test("all numbers of half types are moved unchanged", { skip }, async () => {
  weft.setDevice("cpu");
  const bits = Uint16Array.from({ length: 1 << 16 }, (_, i) => i);
  for (const dtype of ["float16", "bfloat16"] as const) {
    const x = weft.fromBuffer(bits.buffer, { shape: [256, 256], dtype });
    const order = make(
      [256],
      "int32",
      Array.from({ length: 256 }, (_, i) => 255 - i),
    );
    const f = weft.jit((t: Tensor, i: Tensor) => [weft.take(t, i, 0), t.transpose(), weft.where(i.greater(100), t, 0)]);
    const [taken, transposed, chosen] = await Promise.all(f(x, order).map(numbers));
    const expect = (at: (i: number) => number): number[] => Array.from(bits, (_, i) => halfOf(at(i), dtype));
    assert.deepEqual(
      taken,
      expect((i) => 256 * (255 - (i >> 8)) + (i & 255)),
      dtype,
    );
    assert.deepEqual(
      transposed,
      expect((i) => 256 * (i & 255) + (i >> 8)),
      dtype,
    );
    assert.deepEqual(
      chosen,
      expect((i) => ((i & 255) < 155 ? i : 0)),
      dtype,
    );
  }
});

test("scattered single elements: batches, many updates of few places, indices outside", { skip }, async () => {
  weft.setDevice("cpu");
  const count = 70000;
  const places = Array.from({ length: count }, (_, i) => (i * 7919) % 977);
  const values = places.map((_, i) => (i % 7) - 3);
  const f = weft.jit((i: Tensor, v: Tensor) => [
    weft.zeros([977]).scatterAdd(i, v),
    weft.bincount(i, { length: 1000 }),
  ]);
  const [sums, counts] = await Promise.all(
    f(make([count], "int32", places), make([count], "float32", values)).map(numbers),
  );
  const expected = Array<number>(977).fill(0);
  const counted = Array<number>(1000).fill(0);
  places.forEach((p, i) => {
    expected[p] += values[i];
    counted[p]++;
  });
  assert.deepEqual(sums, expected);
  assert.deepEqual(counts, counted);
});

test("log determinants and factors of small matrices in batches, singular ones among them", { skip }, async () => {
  weft.setDevice("cpu");
  for (const dtype of ["float32", "float64"] as const) {
    const [batch, n] = [40, 12];
    const values = Array.from({ length: batch * n * n }, (_, i) => ((Math.sin(i * 12.9898) * 43758.5453) % 1) * 2);
    for (let i = 0; i < n; i++) values[7 * n * n + 3 * n + i] = 0;
    const f = weft.jit((a: Tensor) => {
      const { sign, logabsdet } = weft.slogdet(a);
      return [sign, logabsdet];
    });
    const [signs, logs] = await Promise.all(f(make([batch, n, n], dtype, values)).map(numbers));
    for (let b = 0; b < batch; b++) {
      // Gauss without regard to speed, by the largest pivot.
      const a = Array.from({ length: n }, (_, i) => values.slice((b * n + i) * n, (b * n + i + 1) * n));
      let [sign, log] = [1, 0];
      for (let j = 0; j < n; j++) {
        const pivot = a.slice(j).reduce((best, row, i) => (Math.abs(row[j]) > Math.abs(a[best][j]) ? j + i : best), j);
        if (pivot !== j) {
          [a[j], a[pivot]] = [a[pivot], a[j]];
          sign = -sign;
        }
        sign *= Math.sign(a[j][j]);
        log += Math.log(Math.abs(a[j][j]));
        for (let i = j + 1; i < n; i++) {
          const factor = a[i][j] / a[j][j];
          for (let k = j; k < n; k++) a[i][k] -= factor * a[j][k];
        }
      }
      if (b === 7) {
        assert.equal(logs[b], Number.NEGATIVE_INFINITY);
        assert.equal(signs[b], 0);
        continue;
      }
      assert.ok(Math.abs(signs[b] - sign) < 1e-6, `${dtype} ${b}`);
      assert.ok(Math.abs(logs[b] - log) < (dtype === "float32" ? 1e-3 : 1e-10), `${dtype} ${b}`);
    }
  }
});

test("long lines in both orders: equals keep their order, NaN comes last in rising order", { skip }, async () => {
  weft.setDevice("cpu");
  const n = 70001;
  for (const dtype of ["float32", "int32", "float16", "int16", "uint32", "float64"] as const) {
    const isFloat = dtype.startsWith("float");
    const values = Array.from({ length: n }, (_, i) => ((i * 7919) % 1009) - (dtype === "uint32" ? 0 : 500));
    if (isFloat) {
      values[3] = Number.NaN;
      values[n - 2] = Number.NaN;
      values[70] = Number.NEGATIVE_INFINITY;
      values[80] = Number.POSITIVE_INFINITY;
      values[90] = -0;
    }
    const f = weft.jit((x: Tensor) => [weft.argsort(x), weft.argsort(x, -1, { descending: true })]);
    const [rising, falling] = await Promise.all(f(make([n], dtype, values)).map(numbers));
    const order = (a: number, b: number): number =>
      Number.isNaN(a) || Number.isNaN(b)
        ? Number(Number.isNaN(a)) - Number(Number.isNaN(b))
        : a < b
          ? -1
          : Number(a > b);
    const places = values.map((_, i) => i);
    assert.deepEqual(
      rising,
      [...places].sort((i, k) => order(values[i], values[k]) || i - k),
      dtype,
    );
    assert.deepEqual(
      falling,
      [...places].sort((i, k) => order(values[k], values[i]) || i - k),
      dtype,
    );
  }
});

test("places of extremes along axes that are not the last", { skip }, async () => {
  weft.setDevice("cpu");
  const dtypes = ["float32", "float64", "float16", "bfloat16", "int32", "int64", "uint8", "int16", "uint64"] as const;
  for (const [before, n, after] of [
    [1, 5, 16],
    [3, 21, 17],
    [2, 1, 33],
    [1, 300, 259],
    [2, 9, 600],
  ]) {
    const values = Array.from({ length: before * n * after }, (_, i) => Math.abs(numberAt(i * 31)));
    const f = weft.jit((...xs: Tensor[]) => xs.flatMap((x) => [x.argmax(1), x.argmin(1), x.max(1)]));
    const results = await Promise.all(
      f(...dtypes.map((dtype) => make([before, n, after], dtype, values))).map(numbers),
    );
    const columns = Array.from({ length: before * after }, (_, c) =>
      Array.from({ length: n }, (_, k) => values[(Math.floor(c / after) * n + k) * after + (c % after)]),
    );
    const expected = [
      (column: number[]) => column.indexOf(Math.max(...column)),
      (column: number[]) => column.indexOf(Math.min(...column)),
      (column: number[]) => Math.max(...column),
    ];
    results.forEach((result, k) => {
      const message = `${dtypes[Math.floor(k / 3)]} ${before} x ${n} x ${after}, ${k % 3}`;
      assert.deepEqual(result, columns.map(expected[k % 3]), message);
    });
  }
});

test("the first NaN of a column is its extreme, and the first of equal infinities", { skip }, async () => {
  weft.setDevice("cpu");
  const [n, after] = [37, 50];
  const values = Array.from({ length: n * after }, (_, i) => numberAt(i));
  const set = (row: number, column: number, value: number): void => {
    values[row * after + column] = value;
  };
  for (const row of [4, 9]) set(row, 3, Number.NaN);
  set(36, 49, Number.NaN);
  for (let row = 0; row < n; row++) set(row, 7, Number.NEGATIVE_INFINITY);
  for (let row = 0; row < n; row++) set(row, 8, Number.POSITIVE_INFINITY);
  for (let row = 0; row < n; row++) set(row, 9, row === 20 ? -3e38 : Number.NEGATIVE_INFINITY);
  for (const dtype of ["float32", "float64", "bfloat16"] as const) {
    const f = weft.jit((t: Tensor) => [t.argmax(0), t.argmin(0)]);
    const [most, least] = await Promise.all(f(make([n, after], dtype, values)).map(numbers));
    for (const found of [most, least])
      assert.deepEqual([found[3], found[49], found[7], found[8]], [4, 36, 0, 0], dtype);
    assert.deepEqual([most[9], least[9]], [20, 0], dtype);
  }
});

test("places of extremes of columns are found in the order of memory", { skip }, () => {
  const x = build.input([20, 32], "float32");
  const y = build.make("argreduce", [x], { fn: "argmax", axis: 0 });
  assert.match(new CpuDevice().source({ params: [x], outputs: [y] }), /int32_t ia0\[/);
});

test("reductions of rows that overlap or are compared in pairs", { skip }, async () => {
  weft.setDevice("cpu");
  // Whole and partial blocks of windows; a NaN and an infinity stay in the windows that have them.
  for (const [lines, size, window, stride] of [
    [3, 200, 7, 1],
    [2, 641, 25, 3],
    [1, 70, 3, 1],
    [2, 90, 90, 1],
    [2, 16_000, 100, 150],
  ]) {
    const values = Array.from({ length: lines * size }, (_, i) => numberAt(i));
    values[11] = Number.NaN;
    values[size - 1] = Number.POSITIVE_INFINITY;
    const f = weft.jit((x: Tensor) => {
      const rows = weft.slidingWindow(x, [window], { stride });
      const mean = rows.mean(-1);
      return [rows.max(-1), mean, rows.sub(mean.unsqueeze(-1)).square().sum(-1), rows.mul(2)];
    });
    const [most, mean, spread, doubled] = await Promise.all(f(make([lines, size], "float32", values)).map(numbers));
    const rows = chunks(values, size).flatMap((line) =>
      Array.from({ length: Math.floor((size - window) / stride) + 1 }, (_, i) =>
        line.slice(i * stride, i * stride + window),
      ),
    );
    assert.deepEqual(
      doubled,
      rows.flat().map((v) => 2 * v),
    );
    rows.forEach((row, i) => {
      const about = row.reduce((a, b) => a + b, 0) / window;
      const squares = row.reduce((a, b) => a + (b - about) ** 2, 0);
      assert.ok(Object.is(most[i], row.some(Number.isNaN) ? Number.NaN : Math.max(...row)), `${i}`);
      assert.ok(Object.is(mean[i], about) || Math.abs(mean[i] - about) < 1e-5, `${i}`);
      assert.ok(Object.is(spread[i], squares) || Math.abs(spread[i] - squares) < 1e-3, `${i}`);
    });
  }
  const [a, b, width] = [5, 131, 13];
  const [x, y] = [a, b].map((n, k) => Array.from({ length: n * width }, (_, i) => numberAt(i + 3 * k)));
  const apart = weft.jit((p: Tensor, q: Tensor) => p.unsqueeze(1).sub(q.unsqueeze(0)).square().sum(-1));
  const got = await numbers(apart(make([a, width], "float32", x), make([b, width], "float32", y)));
  const expected = chunks(x, width).flatMap((p) =>
    chunks(y, width).map((q) => p.reduce((sum, v, i) => sum + (v - q[i]) ** 2, 0)),
  );
  assert.deepEqual(got, expected);
});

test("gathers at positions that are computed from positions are views", { skip }, async () => {
  weft.setDevice("cpu");
  const values = Array.from({ length: 40 }, (_, i) => numberAt(i));
  const f = weft.jit((x: Tensor) => {
    const at = weft.arange(0, 10, 1, { dtype: "int32" });
    return [
      x.take(at.mul(3).add(2), 0),
      // Negative ones count from the end, and those out of range are clamped: these stay gathers.
      x.take(at.sub(20), 0),
      x.take(at.mul(7), 0),
      x.take(at.sub(5), 0),
      x.take(at.cast("int8").mul(60).cast("int32"), 0),
    ];
  });
  const results = await Promise.all(f(make([40], "float32", values)).map(numbers));
  const places = [
    (i: number) => 3 * i + 2,
    (i: number) => i + 20,
    (i: number) => Math.min(7 * i, 39),
    (i: number) => (i < 5 ? i + 35 : i - 5),
    (i: number) => {
      const wrapped = ((i * 60) << 24) >> 24;
      return wrapped < 0 ? Math.max(0, wrapped + 40) : Math.min(39, wrapped);
    },
  ];
  results.forEach((result, k) => {
    const expected = Array.from({ length: 10 }, (_, i) => values[places[k](i)]);
    assert.deepEqual(result, expected, `${k}`);
  });
});

test("copies whose axes are joined and then moved", { skip }, async () => {
  weft.setDevice("cpu");
  for (const [a, b, c] of [
    [50, 20, 24],
    [3, 16, 5],
    [17, 32, 33],
    [4, 2, 64],
  ]) {
    const values = Array.from({ length: a * b * c }, (_, i) => numberAt(i));
    const f = weft.jit((x: Tensor) => [
      x
        .permute([1, 0, 2])
        .reshape([a * b, c])
        .transpose()
        .add(0),
      x
        .permute([2, 0, 1])
        .reshape([c * a, b])
        .transpose()
        .mul(2),
      x
        .permute([1, 2, 0])
        .reshape([b, c * a])
        .transpose()
        .reshape([c, a * b])
        .add(1),
    ]);
    const results = await Promise.all(f(make([a, b, c], "float32", values)).map(numbers));
    const at = (i: number, j: number, k: number): number => values[(i * b + j) * c + k];
    const expected = [
      (q: number) => at(q % a, Math.floor(q / a) % b, Math.floor(q / a / b)),
      (q: number) => 2 * at(q % a, Math.floor(q / a / c), Math.floor(q / a) % c),
      (q: number) => 1 + at(Math.floor(q / b) % a, q % b, Math.floor(q / b / a)),
    ];
    results.forEach((result, k) => {
      assert.deepEqual(
        result,
        Array.from(values, (_, q) => expected[k](q)),
        `${a} x ${b} x ${c}, ${k}`,
      );
    });
  }
});
