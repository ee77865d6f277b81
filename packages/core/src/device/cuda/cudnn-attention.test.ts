// Which attention cuDNN is asked for, and with what. Its kernels themselves run on GPUs alone.
import assert from "node:assert/strict";
import { test } from "node:test";
import * as weft from "../../index.js";
import { cudnnCallOf } from "./attention.js";
import type { CudnnAttentionCall } from "./cudnn-attention.js";
import { Recorder } from "./schedule.testkit.js";

/** The calls of the forward and the backward pass with a bias of a shape. */
function callsOf(shape: number[], dtype: weft.DType, gradient: boolean): (CudnnAttentionCall | null)[] {
  const recorder = new Recorder();
  weft.setDevice(recorder);
  const attend = (q: weft.Tensor, bias: weft.Tensor): weft.Tensor =>
    weft.scaledDotProductAttention(q, q, q, { mask: bias }).cast("float32").sum();
  const f = weft.jit(gradient ? weft.grad(attend) : attend);
  f(weft.ones([2, 4, 16, 8], { dtype: "bfloat16" }), weft.ones(shape, { dtype })).realize();
  return recorder
    .plan()
    .steps.flatMap((step) =>
      step.kind === "library" && step.node.op === "custom" ? [cudnnCallOf(step.node, step.operands!)] : [],
    );
}

test("an added mask goes to cuDNN as it is where no gradient is taken", () => {
  for (const [shape, dims, strides] of [
    [
      [4, 16, 16],
      [1, 4, 16, 16],
      [1024, 256, 16, 1],
    ],
    [
      [2, 1, 1, 16],
      [2, 1, 1, 16],
      [16, 16, 16, 1],
    ],
    [[16], [1, 1, 1, 16], [16, 16, 16, 1]],
  ])
    for (const dtype of ["bfloat16", "float16", "float32"] as const) {
      const [call] = callsOf(shape, dtype, false);
      assert.deepEqual(call?.bias, { dtype, dims, strides }, `${dtype} ${shape}`);
    }
});

test("gradients with numbers that all queries add alike stay with the own kernels", () => {
  assert.deepEqual(
    callsOf([2, 1, 1, 16], "float32", true).map((call) => call?.kernel.gradient),
    [false, undefined],
  );
  assert.deepEqual(
    callsOf([4, 16, 16], "float32", true).map((call) => call?.kernel.gradient),
    [false, true],
  );
});
