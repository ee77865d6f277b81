// The plan of a training step on the GPU, made without one: how many launches it is, and that no score matrix is in it.
import assert from "node:assert/strict";
import { test } from "node:test";
import { libraryEpilogue, type Schedule } from "../../compile/index.js";
import { type GraphFn, numel } from "../../graph/index.js";
import * as weft from "../../index.js";
import * as nn from "../../nn/index.js";
import * as optim from "../../optim/index.js";
import type { CompileOptions } from "../contract.js";
import { assertSmallerThan, fusedOf, Recorder } from "./schedule.testkit.js";
import { writeCudaProgram } from "./source.js";

interface Size {
  batch: number;
  length: number;
  heads: number;
  width: number;
  feedForward: number;
}

/** Runs (or only traces, where the device refuses) a training step of two layers. */
function trainOn(device: Recorder, { batch, length, heads, ...shape }: Size, dtype: "float32" | "bfloat16"): void {
  weft.setDevice(device);
  const params = nn.textClassifier.init({ vocabulary: 30, heads, layers: 2, classes: 3, ...shape }, weft.key(0));
  const optimizer = optim.adam();
  const step = weft.jit(
    (p: nn.TextClassifier, state: optim.AdamState, ids: weft.Tensor, labels: weft.Tensor, key: weft.Key) => {
      const loss = (q: nn.TextClassifier): weft.Tensor => {
        const used = nn.castParameters(q, dtype);
        return weft.crossEntropy(nn.textClassifier.apply(used, ids, { heads, dropout: 0.1, key }), labels);
      };
      const [value, grads] = weft.valueAndGrad(loss)(p);
      return [...optimizer.update(p, grads, state), value];
    },
    { donate: [0, 1] },
  );
  const ids = weft.zeros([batch, length], { dtype: "int32" });
  step(params, optimizer.init(params), ids, weft.zeros([batch], { dtype: "int32" }), weft.key(1));
}

const planOf = (device: Recorder): Schedule => device.plan(({ donated }) => donated?.some(Boolean) ?? false);

test("a training step of two layers is some sixty launches, one of them for all updates, none with scores", () => {
  const device = new Recorder();
  const [batch, length, heads] = [2, 40, 2];
  trainOn(device, { batch, length, heads, width: 8, feedForward: 12 }, "float32");
  const plan = planOf(device);
  assert.ok(plan.steps.length <= 66, `${plan.steps.length} launches`);
  assert.equal(fusedOf(plan).length, 4, "attention and its gradient in each layer");
  const largest = Math.max(...plan.steps.map((s) => (s.kind === "batch" ? s.kernels.length : 0)));
  assert.ok(largest >= 28, `the largest batch has ${largest} kernels, the model 28 parameters`);
  assertSmallerThan(plan, batch * heads * length * length);
});

/** The plan of a step in bfloat16 whose tensors are large enough for vectors; nothing is computed. */
function halfPlan(): { plan: Schedule; tokens: number; width: number; feedForward: number } {
  class Planned extends Recorder {
    override compile(fn: GraphFn, options: CompileOptions = {}) {
      if (!options.donated?.some(Boolean)) return super.compile(fn, options);
      this.graphs.push({ fn, options });
      throw new Error("planned");
    }
  }
  const device = new Planned();
  const size = { batch: 64, length: 256, heads: 4, width: 128, feedForward: 256 };
  assert.throws(() => trainOn(device, size, "bfloat16"), /planned/);
  return { plan: planOf(device), tokens: size.batch * size.length, ...size };
}

test("in bfloat16 nothing as large as the activations is kept in float32, and masks of hidden layers are not kept", () => {
  const { plan, tokens, width, feedForward } = halfPlan();
  const kernels = plan.steps.flatMap((s) =>
    s.kind === "kernel" ? [s.kernel] : s.kind === "batch" ? s.kernels : s.kind === "library" ? (s.epilogue ?? []) : [],
  );
  const large = kernels.flatMap((k) => k.buffers.filter((node) => numel(node.shape) >= tokens * width));
  const wide = large.filter(({ dtype, op }) => dtype === "float32" && op !== "input");
  // The gradient of the embeddings is in float32; so is one product of the last norm's gradient.
  assert.ok(new Set(wide).size <= 2, wide.map(({ op, shape }) => `${op} ${shape}`).join("; "));
  const masks = large.filter(({ dtype, shape }) => dtype === "bool" && numel(shape) === tokens * feedForward);
  assert.deepEqual(masks, []);
  // Queries, keys and values get their bias inside the product.
  const inside = plan.steps.flatMap((s) =>
    s.kind === "library" && s.epilogue !== null ? (libraryEpilogue(s.epilogue, s.node) ?? []) : [],
  );
  assert.equal(inside.filter(({ bias }) => bias?.dtype === "bfloat16").length, 2, "one a layer");
});

test("large half tensors are moved in vectors, their masks drawn in whole blocks", () => {
  const { source } = writeCudaProgram(halfPlan().plan, 2112, "bfloat16");
  const scalar = /= w_from_bfloat\(p\d+\[/g;
  assert.ok(source.includes("w_dropout_mask_vector<8>("));
  assert.ok((source.match(/w_load<[48]>\(/g) ?? []).length >= 40);
  assert.ok((source.match(/w_store<[48]>\(/g) ?? []).length >= 20);
  // What is left are the few rows of the loss.
  assert.ok((source.match(scalar) ?? []).length <= 20, String(source.match(scalar)?.length));
});
