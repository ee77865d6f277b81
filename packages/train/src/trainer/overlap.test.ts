// Position of the sums over ranks in a compiled step: with buckets they overlap the backward pass, without overlap they
// start after it. Read from the schedule.
import assert from "node:assert/strict";
import { test } from "node:test";
import * as weft from "@weft/core";
import { type ScheduleStep, scheduleFunction } from "@weft/core/internal/compile";
import { barrierOf, type CompileOptions, type Executable } from "@weft/core/internal/device";
import type { GraphFn } from "@weft/core/internal/graph";
import { make } from "@weft/core/internal/ops";
import { nextCollective } from "@weft/core/internal/runtime";
import { headColumns } from "../data/index.js";
import { type RankGroup, singleRank } from "./group.js";
import { makeModel } from "./model.js";
import { makeOptimizer } from "./optimizer.js";
import { freshState, makeStepExecutables, type StepOptions } from "./step.js";
import { tinyRaw } from "./testkit.js";

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

const pair: RankGroup = {
  ...singleRank,
  size: 2,
  kind: "shm",
  sum: (t) =>
    new weft.Tensor(
      make("collective", [t.node], {
        ...barrierOf(0, 2),
        fn: "sum",
        sequence: nextCollective() ?? 0,
        shape: t.shape,
        dtype: t.dtype,
      }),
    ),
};

function stepsOf(bucketBytes: number): ScheduleStep[] {
  const device = new Recorder();
  const before = weft.session().device;
  weft.setDevice(device);
  try {
    const raw = tinyRaw({ model: { num_layers: 3 } });
    const options: StepOptions = {
      ...makeOptimizer(raw, 10),
      model: makeModel(raw, 4, "float32"),
      group: pair,
      dtype: "float32",
      dropout: true,
      labelSmoothing: 0,
      gradientClip: 1,
      bucketBytes,
      window: 1,
    };
    const state = freshState(options, options.model.init(weft.key(1)));
    const packed = weft.tensor(new Int32Array(20 * (headColumns + 32)), {
      shape: [20, headColumns + 32],
      dtype: "int32",
    });
    assert.throws(() => makeStepExecutables(options).whole(state, packed), /recorded/);
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
  assert.equal(starts.length, 2, "the gradients, and the loss");
  assert.ok(starts.some((at) => at > products.at(-1)!));
});
