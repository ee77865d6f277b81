// Sums of updates by place on the emulated GPU: rows with few, with some hundred and with many updates, results that fit into shared memory,
// and rows of which a thread adds several neighbors. Oracles are loops in plain JavaScript.
import assert from "node:assert/strict";
import { before, test } from "node:test";
import * as weft from "../../../index.js";
import { calls, data, device, prepareEmulator, skip } from "./testkit.js";

before(prepareEmulator);

interface Case {
  places: number;
  updates: number;
  after: number;
  dtype?: weft.DType;
  base?: boolean;
  /** Nine of ten updates have one place, such as padding. */
  isSkewed?: boolean;
  kernel: RegExp;
}
const cases: Record<string, Case> = {
  "few updates per row, one column per thread": { places: 50, updates: 200, after: 33, kernel: /^w_scatter_light_f32/ },
  "few updates per row, two columns": {
    places: 50,
    updates: 200,
    after: 66,
    base: true,
    kernel: /^w_scatter_light_f32/,
  },
  "few updates per row, four columns": {
    places: 40,
    updates: 100,
    after: 132,
    base: true,
    kernel: /^w_scatter_light_f32/,
  },
  "few updates of doubles": { places: 40, updates: 100, after: 128, dtype: "float64", kernel: /^w_scatter_light_f64/ },
  "few updates of halves": { places: 40, updates: 100, after: 256, dtype: "bfloat16", kernel: /^w_scatter_light_bf16/ },
  "some hundred updates per row": { places: 3, updates: 700, after: 40, base: true, kernel: /^w_scatter_heavy_f32/ },
  "most updates in one row": {
    places: 40,
    updates: 6000,
    after: 70,
    dtype: "float64",
    isSkewed: true,
    kernel: /^w_scatter_order/,
  },
  "most updates in one row, sorted in shared memory": {
    places: 40,
    updates: 3000,
    after: 33,
    dtype: "float64",
    base: true,
    isSkewed: true,
    kernel: /^w_scatter_heavy_f64/,
  },
  "many numbers in few places": { places: 300, updates: 70000, after: 1, kernel: /^w_scatter_sums_f32/ },
  "many numbers in one place": { places: 1, updates: 70000, after: 1, base: true, kernel: /^w_scatter_sums_f32/ },
  "many numbers in many places": { places: 5000, updates: 70000, after: 1, kernel: /^w_scatter_wide_f32/ },
};

for (const [name, { places, updates, after, dtype = "float32", base = false, isSkewed, kernel }] of Object.entries(
  cases,
))
  test(`sums by place: ${name}`, { skip }, () => {
    weft.setDevice(device());
    // Some updates have no place.
    const at = Int32Array.from({ length: updates }, (_, i) =>
      isSkewed && i % 10 !== 0 ? 1 : ((i * 7919) % (base ? places : places + 1)) - (!base && i % 17 === 3 ? 1 : 0),
    );
    const numbers = data([updates, after], 1).cast(dtype).realize();
    const start = (base ? data([places, after], 2) : weft.zeros([places, after])).cast(dtype);
    const read = (t: weft.Tensor): Float64Array => t.cast("float64").dataSync() as Float64Array;
    const [held, want] = [read(numbers), Float64Array.from(read(start))];
    for (let i = 0; i < updates; i++)
      if (at[i] >= 0 && at[i] < places) for (let c = 0; c < after; c++) want[at[i] * after + c] += held[i * after + c];
    calls.log.length = 0;
    const got = base
      ? weft.indexAdd(start, weft.tensor(at), numbers)
      : weft.segmentReduce(numbers, weft.tensor(at), places);
    const values = read(got);
    assert.ok(
      calls.log.some((call) => kernel.test(call)),
      calls.log.join(", "),
    );
    const off = dtype === "bfloat16" ? 2e-2 : dtype === "float64" ? 1e-13 : 1e-5;
    for (const [i, value] of want.entries())
      if (!(Math.abs(values[i] - value) <= off * (1 + Math.abs(value))))
        assert.fail(`${i}: ${values[i]}, not ${value}`);
  });
