// Position of the sums over ranks in a compiled step: with buckets they overlap the backward pass, without overlap they
// start after it. Read from the schedule.
import assert from "node:assert/strict";
import { test } from "node:test";
import * as weft from "@weft/core";
import { type ScheduleStep, scheduleFunction } from "@weft/core/internal/compile";
import type { CompileOptions, Executable } from "@weft/core/internal/device";
import type { GraphFn } from "@weft/core/internal/graph";
import { headColumns } from "../data/index.js";
import { freshState, StepExecutables } from "./step.js";
import { rankBatch, textStepOptions, tinyRaw } from "./testkit.js";

/** Captures the graph of the step without running it: there is no second rank. */
class Recorder extends weft.ReferenceDevice {
  step: { fn: GraphFn; donated: readonly boolean[] } | null = null;
  override compile(fn: GraphFn, options: CompileOptions = {}): Executable {
    const { donated } = options;
    if (donated?.some(Boolean)) {
      this.step = { fn, donated };
      throw new Error("recorded");
    }
    return super.compile(fn);
  }
}

function stepsOf(bucketBytes: number): ScheduleStep[] {
  const device = new Recorder();
  const before = weft.session().device;
  weft.setDevice(device);
  try {
    const raw = tinyRaw({ model: { num_layers: 3 } });
    const options = textStepOptions(raw, { group: { rank: 0, size: 2 }, gradientClip: 1, bucketBytes });
    const state = freshState(options, options.task.init(weft.key(1)));
    const packed = weft.tensor(new Int32Array(20 * (headColumns + 32)), {
      shape: [20, headColumns + 32],
      dtype: "int32",
    });
    assert.throws(() => new StepExecutables(options).whole(state, rankBatch(packed, 2)), /recorded/);
    const { fn, donated } = device.step!;
    return scheduleFunction(fn, { donated, parallelRows: 1, longReduction: 1 << 20 }).steps;
  } finally {
    weft.setDevice(before);
  }
}

const placesOf = (steps: readonly ScheduleStep[]): { starts: number[]; finishes: number[]; products: number[] } => {
  const at = (test: (step: ScheduleStep) => boolean): number[] => steps.flatMap((step, i) => (test(step) ? [i] : []));
  return {
    starts: at((s) => s.kind === "collective" && s.phase === "start"),
    finishes: at((s) => s.kind === "collective" && s.phase === "finish"),
    products: at((s) => s.kind === "library" && s.node.op === "matmul"),
  };
};

test("buckets are sent during the backward pass and awaited after it", () => {
  const { starts, finishes, products } = placesOf(stepsOf(4000));
  assert.ok(starts.length > 3, `${starts.length} collectives`);
  const last = products.at(-1)!;
  const early = starts.filter((at) => at < last);
  assert.ok(early.length >= 2, `starts at ${starts.join(" ")}, the last product at ${last}`);
  // Work between start and wait hides the communication.
  early.forEach((from, k) => {
    const between = products.filter((at) => at > from && at < finishes[k]).length;
    assert.ok(between >= 1, `bucket ${k} has no product between its start (${from}) and its wait (${finishes[k]})`);
  });
});

test("without overlap nothing is sent before the backward pass ends", () => {
  const { starts, products } = placesOf(stepsOf(Number.POSITIVE_INFINITY));
  assert.equal(starts.length, 1, "gradients and loss together");
  assert.ok(starts[0] > products.at(-1)!);
});
