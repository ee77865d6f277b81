// The compiled functions of a run: one optimizer step (forward, backward, sum over ranks, update), its micro-steps for
// gradient accumulation, and evaluation.
import type { DType } from "@weft/core/internal/graph";
import {
  arange,
  crossEntropy,
  type Jitted,
  jit,
  logicalAnd,
  logicalOr,
  minimum,
  stack,
  type Tensor,
  tensor,
  treeMap,
  valueAndGrad,
  where,
  zeros,
} from "@weft/core/internal/tensor";
import { embedding, type TextClassifier } from "@weft/core/nn";
import { globalNorm, type LossScaled, type Optimizer, type ScaledState } from "@weft/core/optim";
import { sendsTouchedRows, sumGradients, sumRows } from "./buckets.js";
import type { RankGroup } from "./group.js";
import { type ClassifierModel, type UnpackedBatch, unpackBatch } from "./model.js";

export interface StepOptions {
  model: ClassifierModel;
  optimizer: Optimizer<unknown>;
  group: RankGroup;
  /** Dtype of losses and sums. */
  dtype: DType;
  dropout: boolean;
  labelSmoothing: number;
  gradientClip: number | undefined;
  bucketBytes: number;
  /** Steps whose results stay on the device until they are read together. */
  window: number;
  /** The optimizer with a scaled loss, for float16. With a fixed scale an overflow ends the run. */
  scaling: { optimizer: LossScaled<unknown>; dynamic: boolean } | null;
}

/** State carried from step to step; donated to each step. */
export interface TrainState {
  params: TextClassifier;
  /** The optimizer state; with loss scaling `{ inner, scale, streak }`. */
  optimizer: unknown;
  /** int32: 1 after a step with a non-finite loss or gradient. Later steps change nothing. */
  halted: Tensor;
  /** Results of the last steps, [window, 5]: one row per step, at the row that its batch names. */
  log: Tensor;
}

/** Gradients and losses accumulated over micro-steps. */
export interface AccumulatedGradients {
  grads: TextClassifier;
  loss: Tensor;
}

/**
 * Columns of the step log: loss, gradient norm, number of ranks that want to stop, whether the step is finite, loss
 * scale.
 */
export const stepLog = { loss: 0, norm: 1, stop: 2, good: 3, scale: 4 } as const;

/** The initial state, or one from the tensors of a checkpoint. */
export function freshState(options: StepOptions, params: TextClassifier, optimizer?: unknown): TrainState {
  const { scaling, dtype, window } = options;
  return {
    params,
    optimizer: optimizer ?? (scaling?.optimizer ?? options.optimizer).init(params),
    halted: tensor(0, { dtype: "int32" }),
    log: zeros([window, Object.keys(stepLog).length], { dtype }).realize(),
  };
}

export interface StepExecutables {
  whole: Jitted<(state: TrainState, packed: Tensor) => TrainState>;
  first: Jitted<(state: TrainState, packed: Tensor) => AccumulatedGradients>;
  more: Jitted<(pending: AccumulatedGradients, state: TrainState, packed: Tensor) => AccumulatedGradients>;
  last: Jitted<(state: TrainState, pending: AccumulatedGradients, packed: Tensor) => TrainState>;
  /** Sums over this rank's rows: loss, correct predictions, rows. */
  evaluate: Jitted<(params: TextClassifier, packed: Tensor) => Tensor>;
}

/** This rank's contribution to the mean loss of the step. */
export function lossOf(options: StepOptions, params: TextClassifier, batch: UnpackedBatch, tokens?: Tensor): Tensor {
  const { model, dtype, dropout, labelSmoothing } = options;
  const logits = model.logits(params, batch, dropout ? batch.keys : null, tokens);
  const each = crossEntropy(logits, batch.labels, { reduction: "none", labelSmoothing });
  return where(batch.real, each, 0).sum().cast(dtype).div(batch.total.cast(dtype));
}

export function makeStepExecutables(options: StepOptions): StepExecutables {
  const { model, group, dtype, gradientClip, bucketBytes, window, scaling } = options;
  const optimizer = (scaling?.optimizer ?? options.optimizer) as Optimizer<unknown>;
  const scaleOf = (state: TrainState): Tensor | null =>
    scaling === null ? null : (state.optimizer as ScaledState<unknown>).scale;
  /** The loss to differentiate. */
  const scaled = (loss: Tensor, state: TrainState): Tensor =>
    scaling === null ? loss : scaling.optimizer.scaleLoss(loss, state.optimizer as ScaledState<unknown>);

  /** Gradients of the scaled loss of this rank's rows. */
  const gradients = (state: TrainState, packed: Tensor): AccumulatedGradients => {
    const batch = unpackBatch(packed, model.vocabulary);
    const [loss, grads] = valueAndGrad((p: TextClassifier) => scaled(lossOf(options, p, batch), state))(state.params);
    return { grads, loss };
  };
  const join = (a: AccumulatedGradients, b: AccumulatedGradients): AccumulatedGradients => ({
    grads: treeMap((x, y) => x.add(y), a.grads, b.grads),
    loss: a.loss.add(b.loss),
  });

  /** Like `gradients`, summed over ranks, with the embedding gradient sent as touched rows. */
  const gradientsByRows = (state: TrainState, packed: Tensor): AccumulatedGradients => {
    const batch = unpackBatch(packed, model.vocabulary);
    const { params } = state;
    const looked = embedding.apply(params.embedding, batch.ids);
    const [loss, [grads, rows]] = valueAndGrad(
      (p: TextClassifier, tokens: Tensor) => scaled(lossOf(options, p, batch, tokens), state),
      { argument: [0, 1] },
    )(params, looked) as unknown as [Tensor, [TextClassifier, Tensor]];
    const { embedding: _, ...others } = grads;
    const table = params.embedding.weight;
    const count = batch.ids.size;
    const summed = sumGradients(others, group, bucketBytes);
    const weight = sumRows(table, batch.ids.reshape([count]), rows.reshape([count, table.shape[1]]), group);
    return { grads: { ...summed, embedding: { weight } }, loss };
  };

  const finish = (state: TrainState, own: AccumulatedGradients, packed: Tensor): TrainState =>
    update(state, { grads: sumGradients(own.grads, group, bucketBytes), loss: own.loss }, packed);

  const wholeStep = (state: TrainState, packed: Tensor): TrainState => {
    const { ids } = unpackBatch(packed);
    if (sendsTouchedRows(ids.size, group.size, state.params.embedding.weight.shape[0]))
      return update(state, gradientsByRows(state, packed), packed);
    return finish(state, gradients(state, packed), packed);
  };

  /** Updates the state from summed gradients and this rank's part of the loss, both scaled. */
  const update = (state: TrainState, summed: AccumulatedGradients, packed: Tensor): TrainState => {
    const { stop, place } = unpackBatch(packed);
    const scale = scaleOf(state);
    const undo = scale === null ? null : scale.reciprocal().cast(dtype);
    const own = undo === null ? summed.loss : summed.loss.mul(undo);
    const [loss, stops] = parts(group.sum(stack([own, stop.cast(dtype)])), 2);
    // The norm of the unscaled gradients: squares of the scaled ones would overflow earlier.
    const real = undo === null ? summed.grads : treeMap((g) => g.mul(undo.cast(g.dtype)), summed.grads);
    const norm = globalNorm(real).cast(dtype);
    // With a dynamic scale an overflow is not an error: the optimizer skips the step.
    const finite = norm.isFinite();
    const fits = scale === null || scaling?.dynamic !== true ? finite : logicalOr(finite, scale.greater(1));
    const good = logicalAnd(logicalAnd(loss.isFinite(), fits), state.halted.equal(0));
    // As torch's clip_grad_norm_; scaled gradients stay scaled until the optimizer divides them.
    const clip = gradientClip === undefined ? null : minimum(norm.add(1e-6).reciprocal().mul(gradientClip), 1);
    const clipped = clip === null ? summed.grads : treeMap((g) => g.mul(clip.cast(g.dtype)), summed.grads);
    // Gradients wait for the check: otherwise the optimizer would need memory for results that may be discarded.
    const used = treeMap((g) => where(good, g, 0), clipped);
    const [params, inner] = optimizer.update(state.params, used, state.optimizer);
    const choose = <T>(stepped: T, before: T): T => treeMap((a, b) => where(good, a, b), stepped, before);
    const results = stack([
      loss,
      norm,
      stops,
      good.cast(dtype),
      scale === null ? stops.mul(0).add(1) : scale.cast(dtype),
    ]);
    const row = arange(0, window, 1, { dtype: "int32" }).equal(place).unsqueeze(1);
    return {
      params: choose(params, state.params),
      optimizer: choose(inner, state.optimizer),
      halted: where(good, 0, 1).cast("int32"),
      log: where(row, results.unsqueeze(0), state.log),
    };
  };

  return {
    whole: jit(wholeStep, { donate: [0] }),
    first: jit(gradients),
    more: jit(
      (pending: AccumulatedGradients, state: TrainState, packed: Tensor) => join(pending, gradients(state, packed)),
      {
        donate: [0],
      },
    ),
    last: jit(
      (state: TrainState, pending: AccumulatedGradients, packed: Tensor) =>
        finish(state, join(pending, gradients(state, packed)), packed),
      { donate: [0, 1] },
    ),
    evaluate: jit((params: TextClassifier, packed: Tensor) => {
      const batch = unpackBatch(packed);
      const logits = model.logits(params, batch, null);
      const losses = where(batch.real, crossEntropy(logits, batch.labels, { reduction: "none" }), 0);
      const right = logicalAnd(logits.argmax(-1).equal(batch.labels), batch.real);
      return stack([losses.sum(), right.cast(dtype).sum(), batch.real.cast(dtype).sum()].map((t) => t.cast(dtype)));
    }),
  };
}

const parts = (vector: Tensor, count: number): Tensor[] => Array.from({ length: count }, (_, i) => vector.index(i));
