// The compiled functions of a run: one optimizer step (forward, backward, update), its micro-steps for gradient
// accumulation, and evaluation. They are written over whole tensors, as for one device; the placements of the state and of
// the batch say which part of them a rank computes, and where ranks exchange data.
import type { DType } from "@weft/core/internal/graph";
import { Mesh, Placement } from "@weft/core/internal/shard";
import {
  arange,
  type Jitted,
  type Key,
  logicalAnd,
  logicalOr,
  minimum,
  splitKey,
  stack,
  type Tensor,
  tensor,
  treeLeaves,
  treeMap,
  valueAndGrad,
  where,
  zeros,
} from "@weft/core/internal/tensor";
import { globalNorm, type LossScaled, type Optimizer, type ScaledState } from "@weft/core/optim";
import type { RankGroup } from "./group.js";
import { mark, markTree } from "./markers.js";
import { byRows, type RankProgramOptions, rankProgram, replicated } from "./rank-program.js";

/** What a step computes: plain functions over a tree of parameters and a tree of a batch's tensors. */
export interface StepTask<P = unknown> {
  init(key: Key): P;
  /** Mean loss of a batch. `key` differs per step; `train` is false for evaluation. */
  loss(params: P, batch: unknown, options: { key: Key; train: boolean }): Tensor;
  /** Sums over the rows of a batch: loss, correct predictions, rows. */
  evaluate(params: P, batch: unknown): Tensor;
}

export interface StepOptions<P = unknown> {
  task: StepTask<P>;
  optimizer: Optimizer<unknown>;
  group: Pick<RankGroup, "rank" | "size">;
  /** Dtype of losses and sums. */
  dtype: DType;
  seed: number;
  gradientClip: number | undefined;
  bucketBytes: number;
  /** Steps whose results stay on the device until they are read together. */
  window: number;
  /** The optimizer with a scaled loss, for float16. With a fixed scale an overflow ends the run. */
  scaling: { optimizer: LossScaled<unknown>; dynamic: boolean } | null;
}

/** State carried from step to step; donated to each step. */
export interface TrainState<P = unknown> {
  params: P;
  /** The optimizer state; with loss scaling `{ inner, scale, streak }`. */
  optimizer: unknown;
  /** int32: 1 after a step with a non-finite loss or gradient. Later steps change nothing. */
  halted: Tensor;
  /** int32: optimizer steps taken since the start of the run. */
  step: Tensor;
  /** Results of the last steps, [window, 5]: one row per step, at the row of the new counter modulo window. */
  log: Tensor;
}

/** A rank's shard of a batch. */
export interface RankBatch {
  /** Tensors whose first dimension is the rows of this rank. */
  inputs: unknown;
  /** Rows over all ranks, divided as evenly as possible, larger shares first. */
  rows: number;
  /** Part of the optimizer step that this micro-batch is; 1 where the loss already is a part of the step's. */
  share: number;
  /** With several ranks: int32 [1], nonzero if this rank wants to stop. */
  stop: Tensor | null;
}

/** Gradients and losses accumulated over micro-steps. */
export interface AccumulatedGradients<P = unknown> {
  grads: P;
  loss: Tensor;
}

/**
 * Columns of the step log: loss, gradient norm, number of ranks that want to stop, whether the step is finite, loss
 * scale.
 */
export const stepLog = { loss: 0, norm: 1, stop: 2, good: 3, scale: 4 } as const;

/** The initial state, or one from the tensors of a checkpoint taken after `step` steps. */
export function freshState<P>(options: StepOptions<P>, params: P, optimizer?: unknown, step = 0): TrainState<P> {
  const { scaling, dtype, window } = options;
  return {
    params,
    optimizer: optimizer ?? (scaling?.optimizer ?? options.optimizer).init(params),
    halted: tensor(0, { dtype: "int32" }),
    step: tensor(step, { dtype: "int32" }),
    log: zeros([window, Object.keys(stepLog).length], { dtype }).realize(),
  };
}

/** The mesh of data parallelism: every rank has its rows of the batch and all of the state. */
export const dataMesh = (ranks: number): Mesh => new Mesh([{ name: "data", size: ranks }]);

/** The programs of a run on one rank. Each is compiled for every shape of a batch that occurs. */
export class StepExecutables<P = unknown> {
  readonly #programs = new Map<string, Jitted<(...args: never[]) => unknown>>();
  readonly mesh: Mesh;
  readonly #optimizer: Optimizer<unknown>;

  constructor(readonly options: StepOptions<P>) {
    this.mesh = dataMesh(options.group.size);
    this.#optimizer = (options.scaling?.optimizer ?? options.optimizer) as Optimizer<unknown>;
  }

  /** One optimizer step. The state is donated. */
  whole(state: TrainState<P>, batch: RankBatch): TrainState<P> {
    return this.#wholeProgram(state, batch)(state, batch.inputs, batch.stop);
  }

  /** Gradients of the first micro-step. */
  first(state: TrainState<P>, batch: RankBatch): AccumulatedGradients<P> {
    return this.#firstProgram(state, batch)(state, batch.inputs);
  }

  /** Adds the gradients of another micro-step; `pending` is donated. */
  more(pending: AccumulatedGradients<P>, state: TrainState<P>, batch: RankBatch): AccumulatedGradients<P> {
    const program = this.#program("more", batch, () => ({
      fn: (sums: AccumulatedGradients<P>, s: TrainState<P>, inputs: unknown) =>
        joined(sums, this.#gradients(s, inputs, batch.share)),
      donate: [0],
      placements: [...this.#unsummed(state), ...replicated(this.mesh, state), ...this.#ofBatch(batch)],
      results: this.#unsummed(state),
    }));
    return program(pending, state, batch.inputs);
  }

  /** The last micro-step, and the update. State and sums are donated. */
  last(state: TrainState<P>, pending: AccumulatedGradients<P>, batch: RankBatch): TrainState<P> {
    const program = this.#program("last", batch, () => ({
      fn: (s: TrainState<P>, sums: AccumulatedGradients<P>, inputs: unknown, stop: Tensor | null) =>
        this.#update(s, joined(sums, this.#gradients(s, inputs, batch.share)), stop),
      donate: [0, 1],
      placements: [...replicated(this.mesh, state), ...this.#unsummed(state), ...this.#ofBatch(batch)],
      results: replicated(this.mesh, state),
    }));
    return program(state, pending, batch.inputs, batch.stop);
  }

  /** Sums over the rows of a batch over all ranks: loss, correct predictions, rows. */
  evaluate(params: P, batch: RankBatch): Tensor {
    return this.#evaluateProgram(params, batch)(params, batch.inputs);
  }

  /** Compiles what batches of this shape need, without running it. */
  compile(state: TrainState<P>, batch: RankBatch, accumulates: boolean, evaluates: boolean): void {
    if (accumulates) this.#firstProgram(state, batch).kernels(state, batch.inputs);
    else this.kernels(state, batch);
    if (evaluates) this.#evaluateProgram(state.params, batch).kernels(state.params, batch.inputs);
  }

  /** Names of the kernels and library calls of a step. */
  kernels(state: TrainState<P>, batch: RankBatch): string[] {
    return this.#wholeProgram(state, batch).kernels(state, batch.inputs, batch.stop);
  }

  /** Number of compiled programs. */
  get compiled(): number {
    let count = 0;
    for (const program of this.#programs.values()) count += program.programs;
    return count;
  }

  #wholeProgram(state: TrainState<P>, batch: RankBatch) {
    return this.#program("whole", batch, () => ({
      fn: (s: TrainState<P>, inputs: unknown, stop: Tensor | null) =>
        this.#update(s, this.#gradients(s, inputs, batch.share), stop),
      donate: [0],
      placements: [...replicated(this.mesh, state), ...this.#ofBatch(batch)],
      results: replicated(this.mesh, state),
    }));
  }

  #firstProgram(state: TrainState<P>, batch: RankBatch) {
    return this.#program("first", batch, () => ({
      fn: (s: TrainState<P>, inputs: unknown) => this.#gradients(s, inputs, batch.share),
      placements: [...replicated(this.mesh, state), ...this.#ofBatch(batch)],
      results: this.#unsummed(state),
    }));
  }

  #evaluateProgram(params: P, batch: RankBatch) {
    return this.#program("evaluate", batch, () => ({
      fn: (p: P, inputs: unknown) => this.options.task.evaluate(p, inputs),
      placements: [...replicated(this.mesh, params), ...this.#ofBatch(batch)],
    }));
  }

  /** A program for the shapes of a batch, made at its first use. */
  #program<A extends unknown[], R>(
    name: string,
    { inputs, rows, share }: RankBatch,
    make: () => Omit<RankProgramOptions, "mesh" | "rank" | "bucketBytes"> & { fn: (...args: A) => R },
  ): Jitted<(...args: A) => R> {
    let id = `${name}/${rows}/${share}`;
    for (const leaf of treeLeaves(inputs)) id += `/${leaf.signature}`;
    let program = this.#programs.get(id);
    if (program === undefined) {
      const { fn, ...options } = make();
      const { group, bucketBytes } = this.options;
      program = rankProgram(fn, { mesh: this.mesh, rank: group.rank, bucketBytes, ...options });
      this.#programs.set(id, program);
    }
    return program as unknown as Jitted<(...args: A) => R>;
  }

  #ofBatch({ inputs, rows, stop }: RankBatch): Placement[] {
    const ranks = this.mesh.axes.map(({ name }) => name);
    return [
      ...treeLeaves(inputs).map((leaf) => byRows(this.mesh, ["data"], rows, leaf.shape.length)),
      ...(stop === null ? [] : [byRows(this.mesh, ranks, this.mesh.size, 1)]),
    ];
  }

  /** Sums of micro-steps stay on their ranks until the last one: gradients, and the loss. */
  #unsummed({ params }: TrainState<P>): Placement[] {
    const pending = this.mesh.size === 1 ? null : { axes: ["data"], fn: "sum" as const };
    return [...replicated(this.mesh, params), Placement.replicated(this.mesh, 0)].map((p) => p.withPending(pending));
  }

  /** Gradients of the scaled loss. */
  #gradients(state: TrainState<P>, inputs: unknown, share: number): AccumulatedGradients<P> {
    const { task, scaling, dtype, seed } = this.options;
    const stepKey = keyOfStep(seed, state.step.add(1));
    const [loss, grads] = valueAndGrad((p: P) => {
      const mean = task.loss(p, inputs, { key: stepKey, train: true }).cast(dtype);
      const part = share === 1 ? mean : mean.mul(share);
      return scaling === null ? part : scaling.optimizer.scaleLoss(part, state.optimizer as ScaledState<unknown>);
    })(state.params);
    return { grads, loss };
  }

  /** Updates the state from gradients and loss, both scaled. */
  #update(state: TrainState<P>, given: AccumulatedGradients<P>, stop: Tensor | null): TrainState<P> {
    const { scaling, dtype, gradientClip, window } = this.options;
    // Sums over ranks are completed here, once, and not where each of their users needs them.
    const several = this.mesh.size > 1;
    const summed = several ? { ...given, grads: markTree(given.grads, "gradient") } : given;
    const scale = scaling === null ? null : (state.optimizer as ScaledState<unknown>).scale;
    const undo = scale === null ? null : scale.reciprocal().cast(dtype);
    const own = undo === null ? summed.loss : summed.loss.mul(undo);
    const wanted = stop === null ? zeros([], { dtype }) : stop.cast(dtype).sum();
    // One sum over ranks for both.
    const both = stack([own, wanted]);
    const pair = several ? mark(both, "sums") : both;
    const [loss, stops] = [pair.index(0), pair.index(1)];
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
    const [params, inner] = this.#optimizer.update(state.params, used, state.optimizer);
    const choose = <T>(stepped: T, before: T): T => treeMap((a, b) => where(good, a, b), stepped, before);
    const results = stack([
      loss,
      norm,
      stops,
      good.cast(dtype),
      scale === null ? stops.mul(0).add(1) : scale.cast(dtype),
    ]);
    // Everything reads the new counter, so that it may replace the old one in place.
    const step = state.step.add(1);
    const row = arange(0, window, 1, { dtype: "int32" }).equal(step.mod(window)).unsqueeze(1);
    return {
      params: choose(params, state.params),
      optimizer: choose(inner, state.optimizer),
      halted: where(good, 0, 1).cast("int32"),
      step,
      log: where(row, results.unsqueeze(0), state.log),
    };
  }
}

/** The random key of a step. Computed from the counter in the state, so that a step needs no upload for it. */
function keyOfStep(seed: number, step: Tensor): Key {
  const words = tensor(Int32Array.from([seed >>> 0, Math.floor(seed / 2 ** 32)]), { dtype: "int32" });
  const [first, second] = [splitKey(words, 1).index(0, 0), splitKey(words, 1).index(0, 1)];
  return splitKey(stack([first, second.add(step)]), 1).index(0);
}

const joined = <P>(a: AccumulatedGradients<P>, b: AccumulatedGradients<P>): AccumulatedGradients<P> => ({
  grads: treeMap((x, y) => x.add(y), a.grads, b.grads),
  loss: a.loss.add(b.loss),
});
