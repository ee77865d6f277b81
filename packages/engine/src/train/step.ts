// The compiled programs of a run: one optimiser step (forward, backward, sum over ranks, update) as one program, its
// micro-steps where gradients are accumulated, and evaluation.
import type { DType } from "../graph/index.js";
import { embedding, type TextClassifier } from "../nn/index.js";
import { globalNorm, type Optimizer } from "../optim/index.js";
import {
  crossEntropy,
  type Jitted,
  jit,
  logicalAnd,
  minimum,
  stack,
  type Tensor,
  treeMap,
  valueAndGrad,
  where,
} from "../tensor/index.js";
import { sumGradients, sumRows, travelsAsRows } from "./buckets.js";
import type { Group } from "./group.js";
import { type ClassifierModel, type Unpacked, unpack } from "./model.js";

export interface StepOptions {
  model: ClassifierModel;
  optimizer: Optimizer<unknown>;
  group: Group;
  /** Of losses and sums. */
  dtype: DType;
  dropout: boolean;
  labelSmoothing: number;
  gradientClip: number | undefined;
  bucketBytes: number;
}

/** What a run carries from step to step; donated to each. */
export interface TrainState {
  params: TextClassifier;
  optimizer: unknown;
  /** int32: 1 after a step whose loss or gradient was no number. From then on nothing changes any more. */
  halted: Tensor;
}

/** Gradients and losses that wait for the last micro-step. */
export interface Pending {
  grads: TextClassifier;
  loss: Tensor;
}

/** What a step says, in one small tensor: loss, gradient norm, ranks that want to stop, whether it was taken. */
export const said = { loss: 0, norm: 1, stop: 2, taken: 3 } as const;

export interface Programs {
  whole: Jitted<(state: TrainState, packed: Tensor) => [TrainState, Tensor]>;
  first: Jitted<(params: TextClassifier, packed: Tensor) => Pending>;
  more: Jitted<(pending: Pending, params: TextClassifier, packed: Tensor) => Pending>;
  last: Jitted<(state: TrainState, pending: Pending, packed: Tensor) => [TrainState, Tensor]>;
  /** Sums over this rank's rows: loss, right answers, rows. */
  evaluate: Jitted<(params: TextClassifier, packed: Tensor) => Tensor>;
}

/** The loss of this rank's rows, as its part of the mean over the whole step. */
export function lossOf(options: StepOptions, params: TextClassifier, batch: Unpacked, tokens?: Tensor): Tensor {
  const { model, dtype, dropout, labelSmoothing } = options;
  const logits = model.logits(params, batch, dropout ? batch.keys : null, tokens);
  const each = crossEntropy(logits, batch.labels, { reduction: "none", labelSmoothing });
  return where(batch.real, each, 0).sum().cast(dtype).div(batch.total.cast(dtype));
}

export function makePrograms(options: StepOptions): Programs {
  const { model, optimizer, group, dtype, gradientClip, bucketBytes } = options;

  const gradients = (params: TextClassifier, packed: Tensor): Pending => {
    const batch = unpack(packed);
    const [loss, grads] = valueAndGrad((p: TextClassifier) => lossOf(options, p, batch))(params);
    return { grads, loss };
  };
  const join = (a: Pending, b: Pending): Pending => ({
    grads: treeMap((x, y) => x.add(y), a.grads, b.grads),
    loss: a.loss.add(b.loss),
  });

  /** As `gradients`, summed over ranks, with the table's part sent as the rows that were touched. */
  const gradientsByRows = (params: TextClassifier, packed: Tensor): Pending => {
    const batch = unpack(packed);
    const looked = embedding.apply(params.embedding, batch.ids);
    const [loss, [grads, rows]] = valueAndGrad(
      (p: TextClassifier, tokens: Tensor) => lossOf(options, p, batch, tokens),
      { argument: [0, 1] },
    )(params, looked) as unknown as [Tensor, [TextClassifier, Tensor]];
    const { embedding: _, ...others } = grads;
    const table = params.embedding.weight;
    const count = batch.ids.size;
    const summed = sumGradients(others, group, bucketBytes);
    const weight = sumRows(table, batch.ids.reshape([count]), rows.reshape([count, table.shape[1]]), group);
    return { grads: { ...summed, embedding: { weight } }, loss };
  };

  const wholeStep = (state: TrainState, packed: Tensor): [TrainState, Tensor] => {
    const { ids } = unpack(packed);
    if (travelsAsRows(ids.size, group.size, state.params.embedding.weight.shape[0]))
      return update(state, gradientsByRows(state.params, packed), packed);
    return finish(state, gradients(state.params, packed), packed);
  };

  const finish = (state: TrainState, own: Pending, packed: Tensor): [TrainState, Tensor] =>
    update(state, { grads: sumGradients(own.grads, group, bucketBytes), loss: own.loss }, packed);

  /** From gradients that are summed over ranks and this rank's part of the loss. */
  const update = (state: TrainState, { grads, loss: own }: Pending, packed: Tensor): [TrainState, Tensor] => {
    const { stop } = unpack(packed);
    const [loss, stops] = parts(group.sum(stack([own, stop.cast(dtype)])), 2);
    const norm = globalNorm(grads).cast(dtype);
    const good = logicalAnd(logicalAnd(loss.isFinite(), norm.isFinite()), state.halted.equal(0));
    // As torch's clip_grad_norm_.
    const scale = gradientClip === undefined ? null : minimum(norm.add(1e-6).reciprocal().mul(gradientClip), 1);
    const used = scale === null ? grads : treeMap((g) => g.mul(scale.cast(g.dtype)), grads);
    const [params, inner] = optimizer.update(state.params, used, state.optimizer);
    const choose = <T>(stepped: T, before: T): T => treeMap((a, b) => where(good, a, b), stepped, before);
    const next: TrainState = {
      params: choose(params, state.params),
      optimizer: choose(inner, state.optimizer),
      halted: where(good, 0, 1).cast("int32"),
    };
    return [next, stack([loss, norm, stops, good.cast(dtype)])];
  };

  return {
    whole: jit(wholeStep, { donate: [0] }),
    first: jit(gradients),
    more: jit((pending: Pending, params: TextClassifier, packed: Tensor) => join(pending, gradients(params, packed)), {
      donate: [0],
    }),
    last: jit(
      (state: TrainState, pending: Pending, packed: Tensor) =>
        finish(state, join(pending, gradients(state.params, packed)), packed),
      { donate: [0, 1] },
    ),
    evaluate: jit((params: TextClassifier, packed: Tensor) => {
      const batch = unpack(packed);
      const logits = model.logits(params, batch, null);
      const losses = where(batch.real, crossEntropy(logits, batch.labels, { reduction: "none" }), 0);
      const right = logicalAnd(logits.argmax(-1).equal(batch.labels), batch.real);
      return stack([losses.sum(), right.cast(dtype).sum(), batch.real.cast(dtype).sum()].map((t) => t.cast(dtype)));
    }),
  };
}

const parts = (vector: Tensor, count: number): Tensor[] => Array.from({ length: count }, (_, i) => vector.index(i));
