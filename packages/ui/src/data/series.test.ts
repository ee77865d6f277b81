// Curves in bounded memory against the plain list of values; lines of a file that grows, shrinks and is replaced.
import assert from "node:assert/strict";
import { appendFileSync, mkdtempSync, realpathSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { seriesFields } from "../wire/index.js";
import { Tail } from "./files.js";
import { StepSeries } from "./series.js";

const loss = (step: number): number => Math.sin(step * 1.7) * 10 + (step === 4321 ? 500 : 0);

test("extremes and means of 10000 steps survive in 64 buckets", () => {
  const series = new StepSeries(64);
  for (let step = 0; step < 10_000; step++) {
    const fields = new Float64Array(seriesFields.length).fill(Number.NaN);
    fields[0] = loss(step);
    series.add(step, step / 10, fields);
  }
  const { step, t, values, width } = series.part(["loss", "samples"], 1000);
  assert.ok(step.length <= 64 && step.length >= 32);
  assert.equal(values.samples, undefined, "a field that no step has is left out");
  assert.equal(t.at(-1), 999.9);
  step.forEach((start, i) => {
    const steps = Array.from({ length: Math.min(width, 10_000 - start) }, (_, k) => loss(start + k));
    assert.ok(Math.abs(values.loss!.low![i]! - Math.min(...steps)) < 1e-3);
    assert.ok(Math.abs(values.loss!.high![i]! - Math.max(...steps)) < 1e-2);
    assert.ok(Math.abs(values.loss!.mean[i]! - steps.reduce((a, b) => a + b) / steps.length) < 1e-3);
  });
});

test("few steps stay as they are, and a part is a part", () => {
  const series = new StepSeries(1024);
  for (let step = 0; step < 100; step++) series.add(step, step, new Float64Array(seriesFields.length).fill(step));
  series.add(50, 0, new Float64Array(seriesFields.length).fill(1e9)); // a repeated step is ignored
  const part = series.part(["loss"], 1000, 10, 20);
  assert.deepEqual(part.step, [10, 11, 12, 13, 14, 15, 16, 17, 18, 19]);
  assert.deepEqual(part.values.loss, { mean: part.step });
  assert.deepEqual(series.recent("loss", 9), { sum: 945, count: 10 });
});

test("a file's lines arrive once, and a replaced file starts over", async () => {
  const folder = realpathSync(mkdtempSync(join(tmpdir(), "weft-tail-")));
  const path = join(folder, "x.jsonl");
  try {
    const tail = new Tail(folder, path);
    const lines: string[] = [];
    let restarts = 0;
    const read = async (): Promise<string[]> => {
      lines.length = 0;
      await tail.read(
        (some) => void lines.push(...some),
        () => restarts++,
      );
      return lines;
    };
    assert.deepEqual(await read(), []);
    writeFileSync(path, "one\ntw");
    assert.deepEqual(await read(), ["one"]);
    appendFileSync(path, "o\nthree\n");
    assert.deepEqual(await read(), ["two", "three"]);
    assert.deepEqual(await read(), []);
    assert.equal(restarts, 0);
    // Longer than before, so that only the first bytes tell.
    writeFileSync(path, "another run\nwith more lines\nthan the first one\n");
    assert.deepEqual(await read(), ["another run", "with more lines", "than the first one"]);
    assert.equal(restarts, 1);
    writeFileSync(path, "x\n");
    assert.deepEqual(await read(), ["x"]);
    appendFileSync(path, `${"y".repeat(5 << 20)}\nz\n`);
    assert.deepEqual(await read(), ["z"], "a line of 5 MiB is not a record");
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});
