// Whole models of the general suite at small sizes, as a GPU would run them: numbers of launches, of fused attention kernels, and
// the scratch memory beside parameters and optimizer state. Larger numbers mean that something is no longer fused.
import assert from "node:assert/strict";
import { test } from "node:test";
import * as weft from "@weft/core";
import { fusedOf, Recorder } from "@weft/testing/cuda-schedule";
import { modelRows } from "./general-models.js";
import { sizer } from "./general-row.js";

interface Limits {
  launches: number;
  attention: number;
  scratchKiB: number;
}

const limits: Record<string, Limits> = {
  "gpt2-bf16": { launches: 168, attention: 16, scratchKiB: 200 },
  "gpt2-tf32": { launches: 168, attention: 16, scratchKiB: 350 },
  llama: { launches: 296, attention: 16, scratchKiB: 62 },
  lstm: { launches: 6, attention: 0, scratchKiB: 40 },
  "resnet50-bf16": { launches: 240, attention: 0, scratchKiB: 92 },
  "resnet50-tf32": { launches: 240, attention: 0, scratchKiB: 215 },
};

/** The plan with the most launches: a row without a training step also compiles what compares its results. */
const longest = (device: Recorder) =>
  device.graphs.map((_, i) => device.planOf(i)).reduce((a, b) => (a.steps.length >= b.steps.length ? a : b));

for (const row of modelRows(sizer(2 ** 30, 8)))
  test(`${row.id}: launches and memory`, async () => {
    const device = new Recorder();
    weft.setDevice(device as never);
    const made = await row.make();
    const isStep = device.graphs.some(({ options }) => options.donated?.some(Boolean));
    const plan = isStep ? device.plan(({ donated }) => donated?.some(Boolean) ?? false) : longest(device);
    made.release?.();
    const { launches, attention, scratchKiB } = limits[row.id];
    assert.equal(fusedOf(plan).length, attention);
    assert.ok(plan.steps.length <= launches, `${plan.steps.length} launches`);
    assert.ok(plan.scratchBytes <= scratchKiB * 1024, `${Math.ceil(plan.scratchBytes / 1024)} KiB of scratch memory`);
  });
