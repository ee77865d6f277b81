// Running sums and argsort on the emulated GPU: every dtype, lengths around the sizes of rounds, segments and tiles, NaN and
// ties. Oracles are loops in plain JavaScript.
import assert from "node:assert/strict";
import { before, test } from "node:test";
import * as weft from "../../../index.js";
import { agree, calls, data, device, prepareEmulator, skip } from "./testkit.js";

before(prepareEmulator);

/** Whole numbers, so that sums are exact in every dtype. */
const whole = (n: number, seed: number, most: number): number[] =>
  Array.from({ length: n }, (_, i) => Math.floor(Math.abs(Math.sin(i * 12.9898 + seed) * 43758.5453) % most));

const values = (t: weft.Tensor): number[] => Array.from(t.cast("float64").dataSync() as Float64Array);

test("running sums along every axis, forward and in reverse", { skip }, () => {
  weft.setDevice(device());
  const shapes: [number[], number][] = [
    [[1], 0],
    [[0], 0],
    [[5, 0], 0],
    [[2047], 0],
    [[2049], 0],
    [[40007], 0],
    [[3, 4099], 1],
    [[300, 7], 1],
    [[131, 5], 0],
    [[2, 97, 3], 1],
    [[1, 3000, 2], 1],
  ];
  for (const [shape, axis] of shapes) {
    const n = shape.reduce((a, b) => a * b, 1);
    const x = whole(n, 1, 7);
    const inner = shape.slice(axis + 1).reduce((a, b) => a * b, 1);
    for (const reverse of [false, true]) {
      const t = weft.tensor(Float32Array.from(x), { shape });
      const got = values(reverse ? weft.flip(weft.cumsum(weft.flip(t, axis), axis), axis) : weft.cumsum(t, axis));
      const want = [...x];
      const length = shape[axis];
      for (let start = 0; start < n; start++) {
        if (Math.floor(start / inner) % Math.max(1, length) !== 0) continue;
        for (let s = 1; s < length; s++) {
          const at = start + (reverse ? length - 1 - s : s) * inner;
          want[at] += want[at + (reverse ? inner : -inner)];
        }
      }
      assert.deepEqual(got, want, `${shape} along ${axis}${reverse ? ", reversed" : ""}`);
    }
  }
});

test("running sums of long lines add what the segments before have", { skip }, () => {
  weft.setDevice(device());
  for (const [lines, n] of [
    [1, 2048 * 1030 + 77],
    [3, 2048 * 33 + 5],
    [2, 4096],
  ])
    for (const reverse of [false, true]) {
      const x = Float64Array.from(whole(lines * n, 7, 5));
      const t = weft.tensor(x, { shape: [lines, n] });
      calls.log.length = 0;
      const got = (
        reverse ? weft.flip(weft.cumsum(weft.flip(t, 1), 1), 1) : weft.cumsum(t, 1)
      ).dataSync() as Float64Array;
      assert.ok(calls.log.includes("w_scan_sums_f64"), calls.log.join());
      for (let line = 0; line < lines; line++)
        for (let k = 0, sum = 0; k < n; k++) {
          const at = line * n + (reverse ? n - 1 - k : k);
          sum += x[at];
          if (got[at] !== sum) assert.fail(`element ${at} of [${lines}, ${n}]: ${got[at]}, not ${sum}`);
        }
    }
});

test("rows of every length up to 300 are sorted, with places and without", { skip }, () => {
  weft.setDevice(device());
  for (const [dtype, lengths] of [
    ["float32", [1, 8, 9, 31, 64, 65, 255, 257]],
    ["int64", [2, 16, 33, 129, 256]],
    ["float16", [7, 17, 32, 100, 128]],
  ] as const)
    for (const n of lengths) {
      const rows = 5;
      const x = whole(rows * n, n, 11).map((v, i) => (dtype.startsWith("float") && i % 13 === 5 ? Number.NaN : v - 5));
      const t = weft.tensor(x, { shape: [rows, n] }).cast(dtype);
      const held = values(t);
      for (const descending of [n % 3 === 0]) {
        const places = values(weft.argsort(t, 1, { descending }));
        const sorted = values(weft.sort(t, 1, { descending }));
        for (let row = 0; row < rows; row++) {
          const own = held.slice(row * n, (row + 1) * n);
          const rank = (v: number): number => (Number.isNaN(v) ? 1e9 : v);
          const want = own
            .map((_, i) => i)
            .sort((a, b) => (rank(own[a]) - rank(own[b])) * (descending ? -1 : 1) || a - b);
          const name = `${dtype} row of ${n}${descending ? ", descending" : ""}`;
          assert.deepEqual(places.slice(row * n, (row + 1) * n), want, name);
          assert.deepEqual(
            sorted.slice(row * n, (row + 1) * n),
            want.map((i) => own[i]),
            name,
          );
        }
      }
    }
});

test("running sums of narrower integers read them without a cast", { skip }, () => {
  for (const dtype of ["int32", "uint8", "bool"] as const)
    for (const [shape, axis] of [
      [[70000], 0],
      [[3, 4099], 1],
      [[64, 40], 0],
    ] as const) {
      const launched = agree(() => [
        weft.cumsum(
          data([...shape], 3, 300)
            .round()
            .abs()
            .cast(dtype),
          axis,
        ),
        weft.flip(
          weft.cumsum(
            weft.flip(
              data([...shape], 4, 300)
                .round()
                .abs()
                .cast(dtype),
              axis,
            ),
            axis,
          ),
          axis,
        ),
      ]);
      assert.ok(
        launched.some((name) => /^w_scan_\w+_(i32|u8)[iu]64$/.test(name)),
        launched.join(", "),
      );
    }
});

test("running sums in every dtype", { skip }, () => {
  weft.setDevice(device());
  for (const dtype of ["uint8", "int32", "int64", "float16", "bfloat16", "float32", "float64"] as const) {
    const x = whole(700, 3, 2).map((v, i) => (i % 20 === 0 ? v : 0));
    let sum = 0;
    const want = x.map((v) => (sum += v));
    assert.deepEqual(values(weft.cumsum(weft.tensor(x, { dtype: "float64" }).cast(dtype), 0)), want, dtype);
  }
  const z = weft.complex(weft.tensor(whole(50, 1, 5)), weft.tensor(whole(50, 2, 5)));
  const scanned = weft.cumsum(z, 0);
  assert.deepEqual(values(weft.imag(scanned)), values(weft.cumsum(weft.tensor(whole(50, 2, 5)), 0)));
});

/** Stable order with NaN last (first if descending) and equal zeros. */
function order(x: readonly number[], descending: boolean): number[] {
  const key = (v: number): number => (Number.isNaN(v) ? Number.POSITIVE_INFINITY : v);
  const rank = (v: number): number => (Number.isNaN(v) ? 1 : 0);
  return x
    .map((_, i) => i)
    .sort((a, b) => {
      const by = rank(x[a]) - rank(x[b]) || (key(x[a]) === key(x[b]) ? 0 : key(x[a]) - key(x[b]));
      return (descending ? -by : by) || a - b;
    });
}

const special = [Number.NaN, 0, -0, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY, 1.5, -1.5, Number.NaN, 0];

test("argsort of rows in one block: ties, NaN, zeros and infinities", { skip }, () => {
  weft.setDevice(device());
  for (const n of [1, 2, 31, 33, 257, 1000, 2100]) {
    const x = whole(2 * n, n, 40).map((v, i) => (i % 11 === 0 ? special[(i / 11) % special.length] : v - 20));
    const t = weft.tensor(Float32Array.from(x), { shape: [2, n] });
    for (const descending of [false, true]) {
      const want = [0, 1].flatMap((r) => order(x.slice(r * n, (r + 1) * n), descending));
      assert.deepEqual(values(weft.argsort(t, -1, { descending })), want, `${n}, ${descending}`);
    }
  }
  assert.deepEqual(weft.argsort(weft.zeros([3, 0]), -1).shape, [3, 0]);
});

test("argsort in every dtype", { skip }, () => {
  weft.setDevice(device());
  for (const dtype of ["bool", "uint8", "int32", "int64", "float16", "bfloat16", "float32", "float64"] as const) {
    const x = whole(130, 5, dtype === "bool" ? 2 : 90).map((v) => (dtype === "bool" || dtype === "uint8" ? v : v - 45));
    const t = weft.tensor(x, { dtype: "float64" }).cast(dtype);
    assert.deepEqual(values(weft.argsort(t, -1)), order(x, false), dtype);
  }
});

// GPUs fault at addresses that are no multiple of the operand's size; the emulated kernels trap there too.
test("argsort of odd rows of narrow numbers", { skip }, () => {
  weft.setDevice(device());
  for (const dtype of ["bool", "uint8", "int8", "int16", "float16"] as const)
    for (const n of [1, 3, 7, 33, 255, 1001]) {
      const x = Array.from({ length: n }, (_, i) => (i * 37) % 2);
      const t = weft.tensor(dtype === "bool" ? x.map(Boolean) : x, { dtype });
      assert.deepEqual(values(weft.argsort(t, -1)), order(x, false), `${dtype} ${n}`);
    }
});

test("argsort of rows that need passes over memory", { skip }, () => {
  weft.setDevice(device());
  const n = 8200;
  const x = whole(2 * n, 9, 500).map((v, i) => (i % 1013 === 0 ? Number.NaN : v - 250));
  const want = [0, 1].flatMap((r) => order(x.slice(r * n, (r + 1) * n), true));
  const t = weft.tensor(Float32Array.from(x), { shape: [2, n] });
  assert.deepEqual(values(weft.argsort(t, -1, { descending: true })), want);
  const wide = whole(4100, 2, 300).map((v) => v - 150);
  assert.deepEqual(values(weft.argsort(weft.tensor(wide, { dtype: "float64" }), -1)), order(wide, false));
});

test("top-k by selection: ties, NaN, every dtype, and rows that are cut into parts", { skip }, () => {
  weft.setDevice(device());
  const first = (x: number[], n: number, k: number): number[] =>
    Array.from({ length: x.length / n }, (_, r) => order(x.slice(r * n, (r + 1) * n), true).slice(0, k)).flat();
  for (const [rows, n, k] of [
    [2, 1030, 1],
    [2, 2000, 257],
    [1, 9001, 40],
    [1, 17000, 1024],
    [3, 1100, 900],
    [2, 40, 7],
    [1, 9000, 8000],
    [2, 2000, 0],
  ]) {
    const x = whole(rows * n, n, 300).map((v, i) => (i % 97 === 0 ? special[(i / 97) % special.length] : v - 150));
    const { values: best, indices } = weft.topk(weft.tensor(Float32Array.from(x), { shape: [rows, n] }), k);
    const want = first(x, n, k);
    assert.deepEqual(values(indices), want, `${rows} x ${n}, ${k}`);
    const row = (i: number): number => Math.floor(i / Math.max(1, k)) * n;
    assert.deepEqual(
      values(best),
      want.map((at, i) => x[row(i) + at]),
    );
  }
  for (const dtype of ["int8", "int64", "bfloat16"] as const) {
    const x = whole(1500, 5, 90).map((v) => v - 45);
    const t = weft.tensor(x, { dtype: "float64" }).cast(dtype);
    assert.deepEqual(values(weft.topk(t, 60).indices), first(x, 1500, 60), dtype);
  }
  const equal = weft.topk(weft.zeros([1, 3000]), 20).indices;
  assert.deepEqual(
    values(equal),
    Array.from({ length: 20 }, (_, i) => i),
  );
});

test("places of an order are selected in rows of every length", { skip }, () => {
  weft.setDevice(device());
  for (const n of [3, 500, 513, 700, 4500, 9000]) {
    const rows = [whole(n, 1, 50), whole(n, 2, 1000), whole(n, 3, 2)];
    rows[1][0] = Number.NaN;
    for (const q of [0.5, 0.25, 0.9]) {
      const low = Math.floor(q * (n - 1));
      const x = weft.tensor(Float32Array.from(rows.flat()), { shape: [3, n] });
      const got = values(weft.quantile(x, q, 1, { method: "lower" }));
      const want = rows.map((row) => (row.some(Number.isNaN) ? Number.NaN : [...row].sort((a, b) => a - b)[low]));
      assert.deepEqual(got, want, `${n} elements, ${q}`);
      // Stable, descending and NaN first, as a slice of the order.
      const order = rows.map((row) =>
        row
          .map((v, i) => [Number.isNaN(v) ? Number.POSITIVE_INFINITY : v, i])
          .sort((a, b) => b[0] - a[0] || a[1] - b[1])
          .slice(low, low + 2)
          .flatMap(([, i]) => i),
      );
      const places = weft.argsort(x, -1, { descending: true }).index(":", `${low}:${low + 2}`);
      assert.deepEqual(values(places), order.flat(), `order of ${n} elements from ${low}`);
    }
  }
  const wide = weft.tensor(Float64Array.from(whole(6000, 5, 3000)), { dtype: "float64" });
  assert.equal(values(weft.sort(wide).index("3000:3001"))[0], [...whole(6000, 5, 3000)].sort((a, b) => a - b)[3000]);
});

test("running products and extremes of long lines are scans, where NaN wins", { skip }, () => {
  const shapes: [number[], number][] = [
    [[5003], 0],
    [[3, 700], 1],
    [[600, 5], 0],
  ];
  for (const [shape, axis] of shapes) {
    const log = agree(() => {
      const x = data(shape, 3);
      const odd = x.where(x.notEqual(x.max()), Number.NaN);
      const near = x.mul(0.01).add(1);
      const program = weft.jit((a: weft.Tensor, b: weft.Tensor) => [
        weft.cumprod(a, axis),
        weft.cumprod(a.cast("float64"), axis),
        weft.cumprod(a.sub(1).mul(600).floor().cast("int32").bitwiseOr(1), axis).mod(1009),
        weft.cummax(b, axis),
        weft.cummin(b.cast("float64"), axis),
        weft.cummax(a.mul(100000).cast("int64"), axis),
        weft.flip(weft.cummin(weft.flip(a, axis), axis), axis),
      ]);
      return program(near, odd);
    }, 1e-4);
    for (const type of ["prodf32", "prodf64", "prodi64", "maxf32", "minf64", "maxi64", "minf32"])
      assert.ok(
        log.some((name) => /^w_scan_(lines|columns)_/.test(name) && name.endsWith(`_${type}`)),
        `${shape}: ${log}`,
      );
  }
  const short = agree(() => weft.jit((x: weft.Tensor) => weft.cumprod(x, 1))(data([4, 100], 1)));
  assert.ok(!short.some((name) => name.startsWith("w_scan")), "short lines are loops");
});
