// The compiled functions of a run: one optimizer step (forward, backward, update), its micro-steps for gradient
// accumulation, and evaluation. They are written over whole tensors, as for one device; the placements of the state and of
// the batch say which part of them a rank computes, and where ranks exchange data.
import { bytesOf, type DType, type GraphFn, isOp, type Node } from "@weft/core/internal/graph";
import { session, tracing } from "@weft/core/internal/runtime";
import { type Compression, type MarkKind, Placement, type StepRoles } from "@weft/core/internal/shard";
import {
  arange,
  type Jitted,
  jit,
  type Key,
  logicalAnd,
  logicalOr,
  minimum,
  splitKey,
  stack,
  Tensor,
  tensor,
  treeLeaves,
  treeMap,
  valueAndGrad,
  where,
  zeros,
} from "@weft/core/internal/tensor";
import { closeOver } from "@weft/core/internal/transform";
import { stateDict } from "@weft/core/nn";
import { globalNorm, type LossScaled, type Optimizer, type ScaledState } from "@weft/core/optim";
import { TrainError } from "./errors.js";
import type { RankGroup } from "./group.js";
import { mark, markTree } from "./markers.js";
import { byRows, type RankProgramOptions, rankProgram } from "./rank-program.js";
import type { Section, StoredTensor } from "./shards.js";
import { leavesOf, replicatedDecision, type StateLeaves, StatePlacement } from "./state-placement.js";

/** Whether a node is zeros by construction. */
const isZero = (node: Node): boolean =>
  isOp(node, "const")
    ? node.attrs.value === 0
    : (isOp(node, "expand") || isOp(node, "reshape")) && isZero(node.inputs[0]);

/** What a step computes: plain functions over a tree of parameters and a tree of a batch's tensors. */
export interface StepTask<P = unknown> {
  init(key: Key): P;
  /** Initial values of tensors that steps change and no gradient trains, such as running statistics; absent if there are none. */
  modelState?(): unknown;
  /** Mean loss of a batch, and the new model state of tasks that have one. `key` differs per step; `train` is false for evaluation. */
  loss(params: P, batch: unknown, options: StepContext): Tensor | { loss: Tensor; state: unknown };
  /** How many terms the mean of the loss has, by which micro-steps are weighted; absent for means over rows. */
  weight?(batch: unknown, options: { key: Key; train: boolean }): Tensor;
  /**
   * Sums over the rows of a batch: loss, correct predictions, rows; then the weight, for tasks that have
   * one; then counts of right predictions, predictions and labels by class, for tasks that have them, or the predictions and labels of
   * every row, for tasks with a kind of scores.
   */
  evaluate(params: P, batch: unknown, modelState?: unknown): Tensor;
}

/** What a loss gets besides parameters and batch. */
export interface StepContext {
  key: Key;
  train: boolean;
  /** The model state; an empty tree for tasks without one. */
  state?: unknown;
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
  /** How gradients are sent between ranks; as they are by default. */
  compression?: Compression | undefined;
  /** Called with the bytes that a rank receives in a step, for each compiled step. */
  onBytes?(bytes: number): void;
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
  /** What steps change and no gradient trains; an empty tree for tasks without such tensors. */
  modelState: unknown;
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
  /** Rows over all ranks, divided as evenly as possible, larger shares first, unless there are bounds. */
  rows: number;
  /** Boundaries of the rows of each rank. */
  bounds?: readonly number[] | undefined;
  /** Part of the optimizer step that this micro-batch is; 1 where the loss already is a part of the step's. */
  share: number;
  /** With several ranks: int32 [1], nonzero if this rank wants to stop. */
  stop: Tensor | null;
}

/** Gradients and losses accumulated over micro-steps. */
export interface AccumulatedGradients<P = unknown> {
  grads: P;
  loss: Tensor;
  /** Number of micro-steps, int32. */
  micro: Tensor;
  /** Sum of the weights; absent where micro-steps are weighted by their rows. */
  weight?: Tensor;
  /** The model state after the micro-steps. */
  modelState: unknown;
}

/**
 * Columns of the step log: loss, gradient norm, number of ranks that want to stop, whether the step is finite, loss
 * scale.
 */
export const stepLog = { loss: 0, norm: 1, stop: 2, good: 3, scale: 4 } as const;

/** The initial state, or one from the tensors of a checkpoint taken after `step` steps. */
export function freshState<P>(
  options: StepOptions<P>,
  params: P,
  optimizer?: unknown,
  step = 0,
  modelState: unknown = initialModelState(options.task),
): TrainState<P> {
  const { scaling, dtype, window } = options;
  return {
    params,
    optimizer: optimizer ?? (scaling?.optimizer ?? options.optimizer).init(params),
    modelState,
    halted: tensor(0, { dtype: "int32" }),
    step: tensor(step, { dtype: "int32" }),
    log: zeros([window, Object.keys(stepLog).length], { dtype }).realize(),
  };
}

/** The model state at the start of a run. */
export const initialModelState = (task: Pick<StepTask, "modelState">): unknown =>
  treeMap((t) => t.realize(), (task.modelState?.() ?? {}) as Tensor);

/** Positions of the state (or of only the parameters) and of the batch in the arguments of a program. */
interface ArgumentPlaces {
  state?: number;
  params?: number;
  batch: number;
}

/** The programs of a run on one rank. Each is compiled for every shape of a batch that occurs. */
export class StepExecutables<P = unknown> {
  readonly #programs = new Map<string, Jitted<(...args: never[]) => unknown>>();
  readonly #optimizer: Optimizer<unknown>;
  #leaves: StateLeaves | null;
  /** While the step is traced for the planner. */
  #planning = false;

  /**
   * @param placement - Where the state is; replicated by default.
   * @param leaves - Whole shapes of the state; those of the first state by default.
   */
  constructor(
    readonly options: StepOptions<P>,
    readonly placement = new StatePlacement(replicatedDecision(options.group.size), options.group.rank),
    leaves: StateLeaves | null = null,
  ) {
    this.#optimizer = (options.scaling?.optimizer ?? options.optimizer) as Optimizer<unknown>;
    this.#leaves = leaves;
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
    return this.#moreProgram(state, batch)(pending, state, batch.inputs);
  }

  #moreProgram(state: TrainState<P>, batch: RankBatch) {
    return this.#program("more", state, batch, (leaves) => {
      const sums = this.#accumulated(leaves);
      return {
        fn: (before: AccumulatedGradients<P>, s: TrainState<P>, inputs: unknown) =>
          joined(before, this.#gradients(s, inputs, batch.share, before)),
        donate: [0],
        placements: [...sums, ...this.placement.ofState(leaves), ...this.#ofBatch(batch)],
        results: sums,
        places: { state: sums.length, batch: sums.length + leaves.shapes.length },
      };
    });
  }

  /** The last micro-step, and the update. State and sums are donated. */
  last(state: TrainState<P>, pending: AccumulatedGradients<P>, batch: RankBatch): TrainState<P> {
    return this.#lastProgram(state, batch)(state, pending, batch.inputs, batch.stop);
  }

  #lastProgram(state: TrainState<P>, batch: RankBatch) {
    return this.#program("last", state, batch, (leaves) => {
      const [own, sums] = [this.placement.ofState(leaves), this.#accumulated(leaves)];
      return {
        fn: (s: TrainState<P>, before: AccumulatedGradients<P>, inputs: unknown, stop: Tensor | null) =>
          this.#update(s, joined(before, this.#gradients(s, inputs, batch.share, before)), stop),
        donate: [0, 1],
        placements: [...own, ...sums, ...this.#ofBatch(batch)],
        results: own,
        places: { state: 0, batch: own.length + sums.length },
      };
    });
  }

  /** Sums over the rows of a batch over all ranks: loss, correct predictions, rows. */
  evaluate(state: TrainState<P>, batch: RankBatch): Tensor {
    return this.#evaluateProgram(state, batch)(state.params, state.modelState, batch.inputs);
  }

  /** Compiles what batches of this shape need, without running it. */
  compile(state: TrainState<P>, batch: RankBatch, accumulates: boolean, evaluates: boolean): void {
    if (accumulates) this.#firstProgram(state, batch).kernels(state, batch.inputs);
    else this.kernels(state, batch);
    if (evaluates) this.#evaluateProgram(state, batch).kernels(state.params, state.modelState, batch.inputs);
  }

  /** Names of the kernels and library calls of a step. */
  kernels(state: TrainState<P>, batch: RankBatch): string[] {
    return this.#wholeProgram(state, batch).kernels(state, batch.inputs, batch.stop);
  }

  /** Initial parameters and optimizer state: every rank computes its parts. */
  initialState(from: Key): { params: P; optimizer: unknown } {
    const { placement } = this;
    const { task } = this.options;
    const common = { mesh: placement.mesh, rank: placement.rank, bucketBytes: 0, towardResults: true };
    const leaves = this.#leaves;
    const own = leaves === null ? [] : leaves.params.map((at, i) => placement.parameter(i, leaves.shapes[at]));
    const start = { ...common, placements: [Placement.replicated(placement.mesh, 1)], results: own };
    const init = (k: Key): P => task.init(k);
    const params = leaves === null ? jit(init)(from) : rankProgram(init, start)(from);
    if (leaves === null) return { params, optimizer: treeMap((t) => t.realize(), this.#optimizer.init(params)) };
    const placed = placement.ofState(leaves);
    const results = leaves.optimizer.map((at) => placed[at]);
    const more = { ...common, placements: own, results };
    return { params, optimizer: rankProgram((p: P) => this.#optimizer.init(p), more)(params) };
  }

  /** The tensors of a state with their names and placements, for checkpoints. */
  stored(state: Pick<TrainState<P>, "params" | "optimizer" | "modelState">): StoredTensor[] {
    const leaves = this.#leaves ?? leavesOf(state);
    const { shapes, params, optimizer, modelState } = leaves;
    const placed = this.placement.ofState(leaves);
    const of = (section: Section, tree: unknown, positions: readonly number[]): StoredTensor[] => {
      const at = new Map(treeLeaves(tree).map((leaf, i) => [leaf, positions[i]]));
      return Object.entries(stateDict(tree)).map(([name, local]) => {
        const position = at.get(local)!;
        return { section, name, local, shape: shapes[position], placement: placed[position] };
      });
    };
    return [
      ...of("model", state.params, params),
      ...of("optimizer", state.optimizer, optimizer),
      ...of("state", state.modelState, modelState),
    ];
  }

  /** Bytes that the programs of a step need besides state and batch: intermediate values, new results, sums of micro-steps. */
  workingBytes(state: TrainState<P>, batch: RankBatch, accumulates: boolean): number {
    const needs = ({ scratchBytes, resultBytes }: { scratchBytes: number; resultBytes: number }): number =>
      scratchBytes + resultBytes;
    if (!accumulates) return needs(this.#wholeProgram(state, batch).memory(state, batch.inputs, batch.stop));
    const { params, shapes } = this.#leaves!;
    const { placement } = this;
    let next = 0;
    const grads = treeMap(({ dtype }) => {
      const shape = shapes[params[next]];
      return zeros(placement.accumulated(next++, shape).localShape(placement.rank, shape), { dtype });
    }, state.params);
    const scalar = (): Tensor => zeros([], { dtype: this.options.dtype });
    const micro = tensor(1, { dtype: "int32" });
    const pending = {
      grads,
      loss: scalar(),
      micro,
      ...(this.options.task.weight !== undefined && { weight: scalar() }),
      modelState: state.modelState,
    };
    const held = treeLeaves(grads).reduce((n, { size, dtype }) => n + size * bytesOf(dtype), 0);
    const own = { ...batch, stop: null };
    const first = needs(this.#firstProgram(state, own).memory(state, own.inputs));
    const more = needs(this.#moreProgram(state, own).memory(pending, state, own.inputs));
    const last = needs(this.#lastProgram(state, batch).memory(state, pending, batch.inputs, batch.stop));
    // The sums are results of the first micro-step, and arguments of the others.
    return Math.max(first, held + more, held + last);
  }

  /** Number of compiled programs. */
  get compiled(): number {
    let count = 0;
    for (const program of this.#programs.values()) count += program.programs;
    return count;
  }

  #wholeProgram(state: TrainState<P>, batch: RankBatch) {
    return this.#program("whole", state, batch, (leaves) => {
      const own = this.placement.ofState(leaves);
      return {
        fn: (s: TrainState<P>, inputs: unknown, stop: Tensor | null) => this.step(s, inputs, batch.share, stop),
        donate: [0],
        placements: [...own, ...this.#ofBatch(batch)],
        results: own,
        places: { state: 0, batch: own.length },
      };
    });
  }

  #firstProgram(state: TrainState<P>, batch: RankBatch) {
    return this.#program("first", state, batch, (leaves) => ({
      fn: (s: TrainState<P>, inputs: unknown) => this.#gradients(s, inputs, batch.share),
      placements: [...this.placement.ofState(leaves), ...this.#ofBatch(batch)],
      results: this.#accumulated(leaves),
      places: { state: 0, batch: leaves.shapes.length },
    }));
  }

  #evaluateProgram(state: TrainState<P>, batch: RankBatch) {
    return this.#program("evaluate", state, batch, (leaves) => ({
      // Marked as the loss: all of it is a forward pass.
      fn: (p: P, model: unknown, inputs: unknown) =>
        this.#marked(this.options.task.evaluate(p, this.#divided(inputs), model), "loss"),
      placements: [
        ...leaves.params.map((at, i) => this.placement.parameter(i, leaves.shapes[at])),
        ...this.#ofModelState(leaves),
        ...this.#ofBatch({ ...batch, stop: null }),
      ],
      // The predictions of rows would stay with the ranks that have made them.
      results: [Placement.replicated(this.placement.mesh, 1)],
      places: { params: 0, batch: leaves.params.length + leaves.modelState.length },
    }));
  }

  /** A program for the shapes of a batch, made at its first use. */
  #program<A extends unknown[], R>(
    name: string,
    state: TrainState<P>,
    { inputs, rows, bounds, share }: RankBatch,
    make: (
      leaves: StateLeaves,
    ) => Pick<RankProgramOptions, "donate" | "placements" | "results"> & {
      fn: (...args: A) => R;
      places: ArgumentPlaces;
    },
  ): Jitted<(...args: A) => R> {
    let id = `${name}/${rows}/${bounds ?? ""}/${share}`;
    const batchLeaves = treeLeaves(inputs);
    for (const leaf of batchLeaves) id += `/${leaf.signature}`;
    let program = this.#programs.get(id);
    if (program === undefined) {
      this.#leaves ??= leavesOf(state);
      const { fn, places, ...options } = make(this.#leaves);
      const { placement } = this;
      program = rankProgram(fn, {
        ...options,
        mesh: placement.mesh,
        rank: placement.rank,
        bucketBytes: this.options.bucketBytes,
        compression: this.options.compression,
        onCollectives: (moves) => {
          if (name === "whole" || name === "last") this.options.onBytes?.(moves.reduce((n, { bytes }) => n + bytes, 0));
        },
        strategy: (node) => placement.strategy(node),
        ...(placement.isMarked && {
          rewrite: (graph, first) => placement.rewrite(graph, this.#roles(places, batchLeaves.length, first)),
        }),
      });
      this.#programs.set(id, program);
    }
    return program as Jitted<(...args: A) => R>;
  }

  /** Roles of a program's parameters. */
  #roles({ state, params, batch }: ArgumentPlaces, inputs: number, first: number): StepRoles {
    const leaves = this.#leaves!;
    const from = first + (state ?? params ?? 0);
    return {
      params: leaves.params.map((at, i) => from + (state === undefined ? i : at)),
      states:
        state === undefined ? leaves.params.map(() => []) : leaves.states.map((list) => list.map((at) => from + at)),
      batch: Array.from({ length: inputs }, (_, i) => first + batch + i),
    };
  }

  /** The step as a graph over whole tensors, for the planner; `inputs` are the batch of all ranks. */
  trace(state: TrainState<P>, inputs: unknown): { fn: GraphFn; roles: StepRoles } {
    const leaves = leavesOf(state);
    this.#leaves = leaves;
    this.#planning = true;
    const next = tracing(() => this.step(state, inputs, 1, null));
    this.#planning = false;
    const given = [...treeLeaves(state), ...treeLeaves(inputs)].map(({ node }) => node);
    const { fn, captured } = closeOver(
      treeLeaves(next).map(({ node }) => node),
      given,
    );
    const places = { state: 0, batch: leaves.shapes.length };
    return { fn: session().simplified(fn), roles: this.#roles(places, treeLeaves(inputs).length, captured.length) };
  }

  /** One optimizer step over whole tensors. */
  step(state: TrainState<P>, inputs: unknown, share: number, stop: Tensor | null): TrainState<P> {
    return this.#update(state, this.#gradients(state, inputs, share), stop);
  }

  #marked(x: Tensor, kind: MarkKind): Tensor {
    return this.#isMarked ? mark(x, kind) : x;
  }

  /** The inputs of a batch, marked where a plan may divide them over the model axis. */
  #divided<T>(inputs: T): T {
    // The planner and the program that it plans have the same graph, because segments are numbered by it.
    return this.#planning || this.placement.isPlanned ? markTree(inputs, "input") : inputs;
  }

  get #isMarked(): boolean {
    return this.#planning || this.placement.isMarked;
  }

  #ofModelState({ modelState, shapes }: StateLeaves): Placement[] {
    return modelState.map((at) => Placement.replicated(this.placement.mesh, shapes[at].length));
  }

  #ofBatch({ inputs, rows, bounds, stop }: RankBatch): Placement[] {
    const { mesh } = this.placement;
    const ranks = mesh.axes.map(({ name }) => name);
    return [
      ...treeLeaves(inputs).map((leaf) => byRows(mesh, ["data"], rows, leaf.shape.length, bounds)),
      ...(stop === null ? [] : [byRows(mesh, ranks, mesh.size, 1)]),
    ];
  }

  /** Placements of accumulated gradients, of the loss, of the number of micro-steps, of the model state, and of the weight: in the order of names. */
  #accumulated(leaves: StateLeaves): Placement[] {
    const { params, shapes } = leaves;
    const { mesh, decision } = this.placement;
    const sum = Placement.replicated(mesh, 0).withPending(decision.data === 1 ? null : { axes: ["data"], fn: "sum" });
    return [
      ...params.map((at, i) => this.placement.accumulated(i, shapes[at])),
      sum,
      Placement.replicated(mesh, 0),
      ...this.#ofModelState(leaves),
      ...(this.options.task.weight === undefined ? [] : [sum]),
    ];
  }

  /** Gradients of the scaled loss. */
  #gradients(
    state: TrainState<P>,
    inputs: unknown,
    share: number,
    before: AccumulatedGradients<P> | null = null,
  ): AccumulatedGradients<P> {
    const { task, scaling, dtype, seed } = this.options;
    const micro = before?.micro ?? null;
    const stepKey = keyOfStep(seed, state.step.add(1), micro);
    const given = this.#divided(inputs);
    const how = { key: stepKey, train: true, state: before?.modelState ?? state.modelState };
    // A part of a step; a whole one needs no weight.
    const weight = share === 1 ? undefined : task.weight?.(given, how).cast(dtype).reshape([]);
    const [[loss, modelState], grads] = valueAndGrad(
      (p: P) => {
        const result = task.loss(p, given, how);
        const [own, next] = result instanceof Tensor ? [result, how.state] : [result.loss, result.state];
        const mean = own.cast(dtype);
        const part = weight !== undefined ? mean.mul(weight) : share === 1 ? mean : mean.mul(share);
        const { optimizer } = scaling ?? {};
        const scaled = optimizer?.scaleLoss(part, state.optimizer as ScaledState<unknown>) ?? part;
        return [scaled, next] as [Tensor, unknown];
      },
      { hasAux: true },
    )(state.params);
    if (treeLeaves(grads).every((g) => isZero(g.node)))
      throw new TrainError(
        "the loss depends on no parameter, so nothing would be trained; compute it from the parameters that it is given",
      );
    const taken = micro?.add(1) ?? tensor(1, { dtype: "int32" });
    const more = { ...(weight !== undefined && { weight }), modelState };
    return { grads, loss: this.#marked(loss, "loss"), micro: taken, ...more };
  }

  /** Updates the state from gradients and loss, both scaled. */
  #update(state: TrainState<P>, given: AccumulatedGradients<P>, stop: Tensor | null): TrainState<P> {
    const { scaling, dtype, gradientClip, window } = this.options;
    // Sums over ranks are completed here, once, and not where each of their users needs them.
    const sums = this.#isMarked ? markTree(given.grads, "gradient") : given.grads;
    const scale = scaling === null ? null : (state.optimizer as ScaledState<unknown>).scale;
    const undo = scale === null ? null : scale.reciprocal().cast(dtype);
    const own = undo === null ? given.loss : given.loss.mul(undo);
    const wanted = stop === null ? zeros([], { dtype }) : stop.cast(dtype).sum();
    // One sum over ranks for all of them.
    const { weight } = given;
    const totals = this.#marked(stack([own, wanted, ...(weight === undefined ? [] : [weight])]), "sums");
    const stops = totals.index(1);
    const sum = weight === undefined ? null : totals.index(2);
    // Weights may add up to less than 1; without any term there is nothing to divide.
    const terms = sum === null ? null : where(sum.equal(0), 1, sum);
    const loss = terms === null ? totals.index(0) : totals.index(0).div(terms);
    const grads = terms === null ? sums : treeMap((g) => g.div(terms.cast(g.dtype)), sums);
    // The norm of the unscaled gradients: squares of the scaled ones would overflow earlier.
    const real = undo === null ? grads : treeMap((g) => g.mul(undo.cast(g.dtype)), grads);
    const norm = globalNorm(real).cast(dtype);
    // With a dynamic scale an overflow is not an error: the optimizer skips the step.
    const finite = norm.isFinite();
    const fits = scale === null || scaling?.dynamic !== true ? finite : logicalOr(finite, scale.greater(1));
    const good = logicalAnd(logicalAnd(loss.isFinite(), fits), state.halted.equal(0));
    // As torch's clip_grad_norm_; scaled gradients stay scaled until the optimizer divides them.
    const clip = gradientClip === undefined ? null : minimum(norm.add(1e-6).reciprocal().mul(gradientClip), 1);
    const clipped = clip === null ? grads : treeMap((g) => g.mul(clip.cast(g.dtype)), grads);
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
      modelState: choose(given.modelState, state.modelState),
      halted: where(good, 0, 1).cast("int32"),
      step,
      log: where(row, results.unsqueeze(0), state.log),
    };
  }
}

/**
 * The random key of a step, and of a later micro-step of it. Computed from counters in the state, so that a step needs no upload for
 * it.
 */
function keyOfStep(seed: number, step: Tensor, micro: Tensor | null): Key {
  const words = tensor(Int32Array.from([seed >>> 0, Math.floor(seed / 2 ** 32)]), { dtype: "int32" });
  const [first, second] = [splitKey(words, 1).index(0, 0), splitKey(words, 1).index(0, 1)];
  const own = splitKey(stack([first, second.add(step)]), 1).index(0);
  return micro === null ? own : splitKey(stack([own.index(0), own.index(1).add(micro)]), 1).index(0);
}

const joined = <P>(a: AccumulatedGradients<P>, b: AccumulatedGradients<P>): AccumulatedGradients<P> => ({
  grads: treeMap((x, y) => x.add(y), a.grads, b.grads),
  loss: a.loss.add(b.loss),
  micro: b.micro,
  ...(a.weight !== undefined && b.weight !== undefined && { weight: a.weight.add(b.weight) }),
  modelState: b.modelState,
});
