import assert from "node:assert/strict";
import { test } from "node:test";
import { CpuDevice } from "@weft/core/internal/device";
import { runJitBench } from "./index.js";
import { batchOf, errorOf, flopsOf, labelOf, parseSize, resizeBatch, rowsOf } from "./rows.js";
import { type BenchOptions, runBench } from "./run.js";

const options = (sizes: string[], more: Partial<BenchOptions> = {}): BenchOptions => ({
  suite: "shard",
  rows: sizes.map(parseSize),
  counts: [1],
  device: CpuDevice.available() ? "cpu" : "reference",
  coresPerWorker: 1,
  cores: [0],
  precision: "float32",
  warmup: 1,
  repeats: 2,
  independent: false,
  sameCores: false,
  ...more,
});

test("rows have their published sizes and arithmetic, and a quarter of each edge on CPUs", () => {
  const rows = rowsOf("shard", "cuda");
  assert.deepEqual(
    rows.map((row) => Number((flopsOf(row) / 1e12).toFixed(4))),
    [0.1374, 1.0995, 8.7961, 0.2749, 0.5498, 0.2749, 0.2749, 1.0996, 0.5499],
  );
  assert.deepEqual(rowsOf("shard", "cpu").map(batchOf), [1024, 2048, 4096, 2048, 4096, 8192, 1024, 2048, 4096]);
  assert.deepEqual(rowsOf("quick", "cuda").map(labelOf), [
    "16384x16384",
    "(32768,4096)@(4096,4096)",
    "relu, *2 on (32768,8192)",
  ]);
});

test("sizes are parsed, and invalid ones are refused", () => {
  assert.equal(labelOf(parseSize("2048")), "2048x2048");
  assert.equal(labelOf(parseSize("8x4x2")), "(8,4)@(4,2)");
  assert.equal(labelOf(parseSize("16:4-8-4")), "batch=16, [4, 8, 4]");
  assert.equal(batchOf(resizeBatch(parseSize("16:4-8-4"), 99)), 99);
  for (const bad of ["0", "2.5", "4x", "4x4x4x4", "8:4", "cat"]) assert.throws(() => parseSize(bad), /size "/);
});

test("the error of a wrong result is large for every kind of row", () => {
  const product = parseSize("2x2x2");
  assert.equal(
    errorOf(
      product,
      [
        [1, 2, 3, 4],
        [5, 6, 7, 8],
      ],
      [],
      [19, 22, 43, 50],
    ),
    0,
  );
  assert.ok(
    errorOf(
      product,
      [
        [1, 2, 3, 4],
        [5, 6, 7, 8],
      ],
      [],
      [19, 22, 43, 51],
    ) > 0.1,
  );
  assert.ok(
    Number.isNaN(
      errorOf(
        product,
        [
          [1, 2, 3, 4],
          [5, 6, 7, 8],
        ],
        [],
        [Number.NaN, 22, 43, 50],
      ),
    ),
  );
  const mlp = parseSize("1:2-2");
  assert.equal(errorOf(mlp, [[1, 1]], [[1, -1, 2, -2]], [3, 0]), 0);
  assert.equal(errorOf(mlp, [[1, 1]], [[1, -1, 2, -2]], [3, 1]), 1);
  const pass = parseSize("1x3");
  assert.equal(errorOf(pass, [[-1, 0, 2]], [], [0, 0, 4]), 0);
  assert.equal(errorOf(pass, [[-1, 0, 2]], [], [-2, 0, 4]), 2);
});

test("a row is measured in its own process with both clocks, a checked result and the BLAS library", async () => {
  const seen: string[] = [];
  const rows = await runBench(options(["64", "32:16-32-16", "64x8"], { onProgress: (what) => seen.push(what) }));
  assert.deepEqual(
    rows.map(({ results: [r] }) => [r.status, r.endToEnd.length, r.compute.length, r.devicesUsed]),
    rows.map(() => ["ok", 2, 2, 1]),
  );
  for (const { results } of rows) assert.ok(results[0].error !== null && results[0].error < 1e-5);
  if (CpuDevice.available()) assert.equal(rows[0].raw?.length, 2);
  assert.ok(seen.some((what) => what.includes("64x64")));
});

test("a row that does not fit into memory is recorded with its reason, and the others are measured", {
  skip: !CpuDevice.available() && "no C compiler: the reference device has no memory limit",
}, async () => {
  process.env.WEFT_CPU_MEMORY = "4000000";
  try {
    const rows = await runBench(options(["2048x1024", "16"]));
    assert.equal(rows[0].results[0].status, "failed");
    assert.match(rows[0].results[0].message ?? "", /memory.*--sizes 1024x1024/);
    assert.equal(rows[1].results[0].status, "ok");
  } finally {
    delete process.env.WEFT_CPU_MEMORY;
  }
});

test("compiled programs agree with single operations and launch fewer kernels", async () => {
  const rows = await runJitBench(options([]));
  assert.equal(rows.length, 4);
  for (const row of rows) {
    assert.ok(row.error < 1e-5, row.label);
    if (CpuDevice.available()) assert.ok(row.jit.kernelsPerCall < row.opByOp.kernelsPerCall / 1.9, row.label);
  }
});

test("an aborted signal ends the measuring process", async () => {
  const abort = new AbortController();
  const running = runBench(options(["2048"], { repeats: 1000, signal: abort.signal, onProgress: () => abort.abort() }));
  await assert.rejects(running, /stopped/);
});

test("times of another machine are predicted and labeled so; unknown machines are refused", async () => {
  const rows = await runBench(options(["4096", "64x8"], { counts: [1, 8], simulate: "h200" }));
  assert.ok(rows.every((row) => row.results.every((r) => r.simulated && r.endToEnd.length === 0 && r.error === null)));
  const [one, eight] = rows[0].results;
  assert.equal(eight.devicesUsed, 8);
  assert.ok(one.compute[0] / eight.compute[0] > 4 && one.compute[0] / eight.compute[0] <= 8);
  // Too small to divide: one device, however many there are.
  assert.equal(rows[1].results[1].devicesUsed, 1);
  await assert.rejects(runBench(options(["16"], { simulate: "cray" })), /known machines are h200/);
});

test("rows on real workers report devices, bytes, a prediction and the batch from which they pay", {
  skip: !CpuDevice.available() && "no C compiler",
}, async () => {
  process.env.WEFT_FORCE_SHARD = "1";
  try {
    const [row] = await runBench(
      options(["600x256x128"], { counts: [1, 2], cores: [0, 1], independent: true, sameCores: true }),
    );
    const [one, two] = row.results;
    assert.deepEqual([one.status, two.status, one.devicesUsed, two.devicesUsed], ["ok", "ok", 1, 2]);
    assert.ok(two.error !== null && two.error < 1e-5);
    assert.ok(two.predictedSeconds !== undefined && two.predictedSeconds > 0 && one.predictedSeconds === undefined);
    assert.equal(two.predictedBy, "kernels");
    assert.match(two.plan, /2 of 2 workers/);
    // One device with both cores, calls back to back and single calls are all recorded for comparison.
    assert.deepEqual(
      [one.sameCores, two.sameCores?.length, two.independent?.length, two.alone.length],
      [undefined, 2, 2, 2],
    );
    assert.ok(one.inFlight > 1 && two.inFlight > 1);
    assert.ok(row.paysFrom !== null && row.paysFrom > 1, `pays from ${row.paysFrom}`);
  } finally {
    delete process.env.WEFT_FORCE_SHARD;
  }
});
