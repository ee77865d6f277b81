// Where the state of a run lives: the mesh, the placement of every parameter, of its gradient and of its optimizer state,
// and how a program over whole tensors is rewritten for them. Made from a plan, or plain data parallelism.
import { type GraphFn, type Node, type Shape, WeftError } from "@weft/core/internal/graph";
import {
  type DimensionSplit,
  evenBounds,
  Mesh,
  markOf,
  Placement,
  rewriteStep,
  type Stage,
  StepModel,
  type StepPlan,
  type StepRoles,
  type Strategy,
} from "@weft/core/internal/shard";
import { type Tensor, treeLeaves } from "@weft/core/internal/tensor";
import { stateDict } from "@weft/core/nn";
import { isFeedback } from "./feedback.js";
import { byRows } from "./rank-program.js";
import type { DataShare } from "./task.js";

/** What a plan decides, as plain data that ranks exchange. */
export interface PlacementDecision {
  data: number;
  model: number;
  /** By parameter: ZeRO stage, and the dimension that the model axis splits, or -1. */
  params: { stage: Stage; dim: number }[];
  /** By batch input: the dimension that the model axis splits, or -1. */
  inputs: number[];
  rematerialized: number[];
  /** Gradients are compressed: every rank has its own error feedback. */
  feedback?: boolean;
  /** Weights of all ranks, by which batches are divided (their speeds, as a rule); equal parts by default. */
  speeds?: readonly number[] | undefined;
  /** Weights of all ranks, by which ZeRO divides state (their memory); equal parts by default. */
  state?: readonly number[] | undefined;
}

/** The decision of data parallelism with everything replicated. */
export const replicatedDecision = (ranks: number): PlacementDecision => ({
  data: ranks,
  model: 1,
  params: [],
  inputs: [],
  rematerialized: [],
});

/** The decision of a plan. */
export function decisionOf({ split, stages, rematerialized, model, devices }: StepPlan): PlacementDecision {
  const { fn, roles } = model;
  const { speeds, memory } = devices;
  const rows = { equal: undefined, speed: speeds, memory }[split.division ?? "equal"];
  const splitDim = (at: number): number => (split.model === 1 ? -1 : model.splitDim(fn.params[at], split.classes));
  return {
    data: split.data,
    model: split.model,
    params: roles.params.map((at, i) => ({ stage: stages[i], dim: splitDim(at) })),
    inputs: roles.batch.map(splitDim),
    rematerialized: [...rematerialized],
    ...(rows !== undefined && { speeds: rows }),
    ...(memory.some((bytes) => bytes !== memory[0]) && { state: memory }),
  };
}

/** The leaves of a state: which are parameters, and which optimizer state belongs to which parameter. */
export interface StateLeaves {
  /** Whole shapes of all leaves. */
  shapes: Shape[];
  /** Position of each parameter among the leaves. */
  params: number[];
  /** Positions of the optimizer state, and of that of each parameter. */
  optimizer: number[];
  states: number[][];
  /** Positions of the error feedback of compressed gradients: one row per rank. */
  feedback: number[];
  /** Positions of the model state. */
  modelState: number[];
}

/** Dotted names of the leaves of a tree. */
const namesOf = (tree: unknown): Map<Tensor, string> =>
  new Map(Object.entries(stateDict(tree)).map(([name, leaf]) => [leaf, name]));

/** Finds the optimizer state of every parameter: it has the parameter's name at the end of its own, and its shape. */
export function leavesOf(state: { params: unknown; optimizer: unknown; modelState: unknown }): StateLeaves {
  const leaves = treeLeaves(state);
  const at = new Map(leaves.map((leaf, i) => [leaf, i]));
  const names = namesOf(state.params);
  const params = treeLeaves(state.params);
  const byName = new Map(params.map((leaf, i) => [names.get(leaf)!, i]));
  const states: number[][] = params.map(() => []);
  const feedback: number[] = [];
  for (const [leaf, path] of namesOf(state.optimizer)) {
    if (isFeedback(path)) feedback.push(at.get(leaf)!);
    for (let dot = path.indexOf("."); dot >= 0; dot = path.indexOf(".", dot + 1)) {
      const i = byName.get(path.slice(dot + 1));
      if (i === undefined || leaf.shape.join() !== params[i].shape.join()) continue;
      states[i].push(at.get(leaf)!);
      break;
    }
  }
  const positions = (tree: unknown): number[] => treeLeaves(tree).map((leaf) => at.get(leaf)!);
  return {
    shapes: leaves.map(({ shape }) => shape),
    params: positions(state.params),
    optimizer: positions(state.optimizer),
    states,
    feedback,
    modelState: positions(state.modelState),
  };
}

export class StatePlacement {
  readonly mesh: Mesh;
  /** The same with the ranks' weights for divided state. */
  readonly #weighted: Mesh;

  constructor(
    readonly decision: PlacementDecision,
    readonly rank: number,
  ) {
    const { data, model, state } = decision;
    this.mesh = new Mesh([{ name: "data", size: data }, ...(model > 1 ? [{ name: "model", size: model }] : [])]);
    this.#weighted = new Mesh(this.mesh.axes, this.mesh.ranks, state ?? null);
  }

  /** Whether programs need marks: they run on several ranks, or are rewritten. */
  get isMarked(): boolean {
    return this.mesh.size > 1 || this.decision.rematerialized.length > 0;
  }

  /** Whether some rank has only a part of the state. */
  get isSplit(): boolean {
    return this.decision.feedback === true || this.decision.params.some(({ stage, dim }) => stage >= 1 || dim >= 0);
  }

  /** Whether some rank has only a part of a parameter. */
  get splitsParameters(): boolean {
    return this.decision.params.some(({ stage, dim }) => stage === 3 || dim >= 0);
  }

  /** This rank's share of every batch. */
  get share(): DataShare {
    const speeds = this.#partSpeeds();
    return { rank: this.mesh.coordinates(this.rank).data, ranks: this.decision.data, ...(speeds && { speeds }) };
  }

  /** The speeds of the parts of a batch: those of the slowest rank that computes each. */
  #partSpeeds(): number[] | null {
    const { data, speeds } = this.decision;
    if (speeds === undefined || data === 1) return null;
    const parts = Array.from({ length: data }, () => Number.POSITIVE_INFINITY);
    for (const rank of this.mesh.ranks) {
      const at = this.mesh.coordinates(rank).data;
      parts[at] = Math.min(parts[at], speeds[rank]);
    }
    return parts;
  }

  /** Whether this rank reads data that no other rank reads. */
  get isFirstReader(): boolean {
    return (this.mesh.coordinates(this.rank).model ?? 0) === 0;
  }

  #stage(i: number): { stage: Stage; dim: number } {
    return this.decision.params[i] ?? { stage: 0, dim: -1 };
  }

  /** Whether a plan decided, not plain data parallelism. */
  get isPlanned(): boolean {
    return this.decision.params.length > 0;
  }

  /** The largest dimension that the model axis does not split. */
  #dataDim(shape: Shape, dim: number): number {
    let best = -1;
    shape.forEach((size, i) => {
      if (i !== dim && size > 1 && (best < 0 || size > shape[best])) best = i;
    });
    return best;
  }

  /** Placement of a tensor of a parameter's shape. ZeRO divides it over the model axis too if that splits none of its dimensions. */
  #place(i: number, shape: Shape, byZero: boolean): Placement {
    const { dim } = this.#stage(i);
    const names = this.mesh.axes.flatMap(({ name, size }) => (size > 1 ? [name] : []));
    const zero = names.filter((name) => name === "data" || dim < 0);
    const own = byZero && zero.length > 0 ? this.#dataDim(shape, dim) : -1;
    const dims = shape.map((size, at): DimensionSplit | null => {
      if (at === own) return { axes: zero, bounds: this.#weighted.bounds(size, zero) };
      return at === dim ? { axes: ["model"], bounds: evenBounds(size, this.mesh.sizeOf(["model"])) } : null;
    });
    return new Placement(this.mesh, dims);
  }

  parameter(i: number, shape: Shape): Placement {
    return this.#place(i, shape, this.#stage(i).stage === 3);
  }

  /** Placement of a parameter's optimizer state, and of its gradient where it is complete. */
  optimizerState(i: number, shape: Shape): Placement {
    return this.#place(i, shape, this.#stage(i).stage >= 1);
  }

  /** Sums of micro-steps: with their ranks until the last one, or complete where every rank keeps only its part. */
  accumulated(i: number, shape: Shape): Placement {
    const placed = this.#place(i, shape, this.#stage(i).stage >= 2);
    if (this.decision.data === 1 || placed.splitAxes.includes("data")) return placed;
    return placed.withPending({ axes: ["data"], fn: "sum" });
  }

  /** Placements of the leaves of a state. */
  ofState({ shapes, params, states, feedback }: StateLeaves): Placement[] {
    const placed = shapes.map((shape) => Placement.replicated(this.mesh, shape.length));
    for (const at of feedback) placed[at] = byRows(this.mesh, ["data"], shapes[at][0], shapes[at].length);
    params.forEach((at, i) => {
      placed[at] = this.parameter(i, shapes[at]);
      for (const own of states[i]) placed[own] = this.optimizerState(i, shapes[own]);
    });
    return placed;
  }

  /** Rewrites the function of a program for gathered parameters and rematerialization. */
  rewrite(fn: GraphFn, roles: StepRoles): GraphFn {
    const { params, rematerialized } = this.decision;
    const gathered = new Set(params.flatMap(({ stage }, i) => (stage === 3 ? [i] : [])));
    if (gathered.size === 0 && rematerialized.length === 0) return fn;
    const chosen = new Set(rematerialized);
    const model = new StepModel(fn, roles);
    const segmentOf = (node: Node): number => {
      const segment = model.segmentOf(node);
      return chosen.has(segment) && !model.crosses(node) ? segment : -1;
    };
    return rewriteStep(fn, roles, { gathered, segmentOf }).fn;
  }

  /** The strategy of a marked node; null where it follows its operands. */
  strategy(node: Node): Strategy | null {
    const found = markOf(node);
    if (found === null || ["loss", "saved", "feedback"].includes(found.kind)) return null;
    if (found.kind === "sums") return { split: {}, carry: [] };
    if (found.kind === "input") {
      const dim = this.decision.inputs[found.index] ?? -1;
      return { split: { data: 0, ...(dim >= 0 && { model: dim }) }, carry: [] };
    }
    const placed =
      found.kind === "gradient"
        ? this.optimizerState(found.index, node.shape)
        : this.#place(found.index, node.shape, false);
    const split: Record<string, number> = {};
    placed.dims.forEach((cut, dim) => {
      for (const axis of cut?.axes ?? []) split[axis] = dim;
    });
    return { split, carry: [] };
  }
}

/** Memory limits of the ranks: one for all, or one of each, also as text with commas. */
export function parseMemory(given: string | number | readonly (string | number)[], ranks: number): number[] {
  const list = typeof given === "string" && given.includes(",") ? given.split(",") : given;
  const limits = (typeof list === "object" ? list : Array.from({ length: ranks }, () => list)).map(parseBytes);
  if (limits.length !== ranks)
    throw new WeftError(`memory has ${limits.length} sizes for ${ranks} ranks; give one for all, or one for each`);
  return limits;
}

/** Parses a size such as "512MB", "1.5 GiB" or a number of bytes. */
export function parseBytes(given: string | number): number {
  const units: Record<string, number> = { "": 1, k: 1e3, m: 1e6, g: 1e9, ki: 2 ** 10, mi: 2 ** 20, gi: 2 ** 30 };
  const match = /^\s*(\d+(?:\.\d+)?)\s*([kmg]i?)?b?\s*$/i.exec(String(given));
  const bytes = match === null ? Number.NaN : Number(match[1]) * units[(match[2] ?? "").toLowerCase()];
  if (!(bytes >= 1))
    throw new WeftError(`memory ${JSON.stringify(given)} is not a size; write for example 512MB, 2GiB, or bytes`);
  return bytes;
}
