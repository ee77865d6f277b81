// Cost and memory of a training step on one device of a mesh. The batch is divided over the data axis, by dimension classes: its rows
// are split everywhere. The model axis starts at the parameters and inputs that have chosen classes (heads, hidden units, the
// sequence), and every op follows its operands. Thousands of nodes are evaluated in milliseconds.
import { linkTime, type Rates, workTime } from "../cost/index.js";
import {
  bytesOf,
  type CollectiveKind,
  type GraphFn,
  type Node,
  numel,
  outputAvals,
  type Shape,
} from "../graph/index.js";
import { factorsOf } from "../ops/index.js";
import { dependents } from "../transform/index.js";
import { AxisFlow, flowOps } from "./axis-flow.js";
import { type Item, Problem } from "./problem.js";
import { type Phase, phasesOf, type StepRoles } from "./step-rewrite.js";

/** By what the rows of a batch are divided: every device has as many, or as many as it is fast, or as its memory allows. */
export type RowDivision = "equal" | "speed" | "memory";

/** How a step is divided: `data` x `model` devices, and the classes of parameters and inputs that the model axis splits. */
export interface StepSplit {
  data: number;
  model: number;
  classes: ReadonlySet<number>;
  /** How rows are divided over devices that differ; equally by default. */
  division?: RowDivision;
  /** Rows of the device whose cost is estimated; an equal part by default. */
  rows?: number;
}

/** Seconds of one device by phase, and of the collectives of the model axis. */
export interface SplitCost {
  compute: Record<Phase, number>;
  communicate: number;
  /** Seconds of the forward pass of each segment. */
  segments: number[];
}

/** Activations of a segment of the forward pass, in bytes on one device. */
interface SegmentMemory {
  /** Stored for the backward pass. */
  stored: number;
  /** Stored values that earlier segments made: what rematerialization starts from. */
  incoming: number;
}

/** How the model axis divides the values of a step, and its collectives. */
interface Flow {
  flow: AxisFlow;
  collectives: { kind: CollectiveKind; node: Node; index: number }[];
}

/** Part of a value's bytes that a device receives in a collective of this number of members. */
const receivedPart: Readonly<Record<CollectiveKind, (members: number) => number>> = {
  allReduce: (members) => 2 * (1 - 1 / members),
  reduceScatter: (members) => 1 - 1 / members,
  allGather: (members) => 1 - 1 / members,
  allToAll: (members) => (1 - 1 / members) / members,
  exchange: () => 1,
};

/** The larger part of a dimension; parts that are no whole number come from rows of devices that differ. */
const partOf = (size: number, parts: number): number => Math.ceil(size / parts - 1e-9);

/** Segments that the forward pass is divided into, at most. */
const maxSegments = 64;

export class StepModel {
  readonly problem: Problem;
  readonly phaseOf: (node: Node) => Phase;
  readonly #order: Node[];
  readonly #batch: ReadonlySet<number>;
  readonly #dims = new Map<Node, number[][]>();
  /** The ops with what their time depends on: `look` is a number of the signature and of the factors that are rows of the batch. */
  readonly #timed: { item: Item; phase: Phase; segment: number; look: number; isRow: boolean[] }[];
  readonly #segment = new Map<Node, number>();
  readonly #params: ReadonlySet<Node>;
  readonly #crossing = new Set<Node>();
  #ops: ReturnType<typeof flowOps> | null = null;
  readonly #flows = new WeakMap<ReadonlySet<number>, Flow>();
  segments = 0;

  constructor(
    readonly fn: GraphFn,
    readonly roles: StepRoles,
  ) {
    this.problem = new Problem(fn);
    const { order, phaseOf } = phasesOf(fn);
    this.#order = order;
    this.phaseOf = phaseOf;
    this.#params = new Set(fn.params);
    const { classes } = this.problem;
    this.#batch = new Set(roles.batch.map((at) => classes.ofParam(fn.params[at])[0]));
    this.#divide();
    const looks = new Map<string, number>();
    this.#timed = this.problem.items
      .filter(({ node }) => this.problem.work.get(node)!.kind !== "nothing")
      .map((item) => {
        const { node, sig } = item;
        const isRow = this.problem.classesOf(node).map((id) => this.#batch.has(id));
        const text = `${sig}|${isRow.map(Number).join("")}`;
        const look = looks.get(text) ?? looks.size;
        looks.set(text, look);
        return { item, phase: this.phaseOf(node), segment: this.segmentOf(node), look, isRow };
      });
  }

  /** Number of rows of the batch. */
  get rows(): number {
    return this.fn.params[this.roles.batch[0]].shape[0];
  }

  /** The class of every dimension of each result of a node; -1 where it cannot be split. */
  dimsOf(node: Node): readonly number[][] {
    let found = this.#dims.get(node);
    if (found === undefined) {
      if (this.#params.has(node)) found = [this.problem.classes.ofParam(node)];
      else if (node.op === "pick") found = [this.dimsOf(node.inputs[0])[(node as Node<"pick">).attrs.index] ?? []];
      else {
        const own = this.problem.classesOf(node);
        found = factorsOf(node).outputs.map((dims) => dims.map((map) => (map === null ? -1 : own[map.factor])));
      }
      this.#dims.set(node, found);
    }
    return found;
  }

  /** The dimension of a parameter or input of the step that has one of the classes, or -1. */
  splitDim(param: Node, classes: ReadonlySet<number>): number {
    return this.dimsOf(param)[0].findIndex((id) => classes.has(id));
  }

  /** How the model axis divides the values of the step. */
  #flowOf({ model, classes }: StepSplit): Flow | null {
    if (model === 1 || classes.size === 0) return null;
    let found = this.#flows.get(classes);
    if (found === undefined) {
      const { params } = this.fn;
      const collectives: Flow["collectives"] = [];
      const flow = new AxisFlow({
        ops: (this.#ops ??= flowOps(this.problem.items.map(({ node }) => node))),
        seeds: new Map(params.map((param) => [param, this.splitDim(param, classes)])),
        gradients: this.roles.params.map((at) => this.splitDim(params[at], classes)),
        onCollective: (kind, node, index) => collectives.push({ kind, node, index }),
      });
      this.#flows.set(classes, (found = { flow, collectives }));
    }
    return found;
  }

  /** Into how many parts of a device's size the rows of the batch are divided. */
  #rowParts({ data, rows }: StepSplit): number {
    return rows === undefined ? data : this.rows / rows;
  }

  /** Bytes of a value on the device that has most of it. */
  bytes(node: Node, split: StepSplit, index = 0): number {
    const { shape, dtype } = outputAvals(node)[index] ?? node;
    const classes = this.dimsOf(node)[index] ?? [];
    const divided = this.#flowOf(split)?.flow.dim(node, index) ?? -1;
    const rowParts = this.#rowParts(split);
    const local = shape.map((size, dim) =>
      partOf(size, this.#batch.has(classes[dim] ?? -1) ? rowParts : dim === divided ? split.model : 1),
    );
    return numel(local) * bytesOf(dtype);
  }

  /** Whether the value of a node is in memory after fusion. */
  isStored(node: Node): boolean {
    const work = this.problem.work.get(node);
    return this.#params.has(node) || work?.writes === true || node.op === "pick";
  }

  /** The segment of a forward node; -1 for others. */
  segmentOf(node: Node): number {
    return this.#segment.get(node) ?? -1;
  }

  /** Cuts the forward pass where the fewest bytes cross: between the layers of a network. */
  #divide(): void {
    const active = dependents(this.#order, this.fn.params);
    const forward = this.#order.filter((node) => this.phaseOf(node) === "forward" && !this.#params.has(node));
    const at = new Map(forward.map((node, i) => [node, i]));
    const change = new Float64Array(forward.length + 1);
    const last = new Map<Node, number>();
    for (const node of forward)
      for (const input of node.inputs) if (at.has(input) && active.has(input)) last.set(input, at.get(node)!);
    for (const [node, until] of last) {
      const size = numel(node.shape) * bytesOf(node.dtype);
      change[at.get(node)!] += size;
      change[until] -= size;
    }
    let live = 0;
    const crossing = forward.map((_, i) => (live += change[i]));
    let segment = 0;
    const cuts = new Set(cutsOf(crossing));
    forward.forEach((node, i) => {
      this.#segment.set(node, segment);
      if (cuts.has(i) && i + 1 < forward.length) segment++;
    });
    segment++;
    this.segments = segment;
    for (const node of forward)
      for (const input of node.inputs)
        if (this.segmentOf(input) >= 0 && this.segmentOf(input) !== this.segmentOf(node)) this.#crossing.add(input);
  }

  /** Whether a forward value is read by a later segment: it is stored even if its segment is rematerialized. */
  crosses(node: Node): boolean {
    return this.#crossing.has(node);
  }

  /** Classes of inputs that no parameter has, besides the rows: the positions of sequences. */
  sequenceClasses(): Set<number> {
    const { params } = this.fn;
    const ofInputs = this.roles.batch.flatMap((at) => this.dimsOf(params[at])[0].slice(1));
    const ofParams = new Set(this.roles.params.flatMap((at) => this.dimsOf(params[at])[0]));
    return new Set(ofInputs.filter((id) => id >= 0 && !this.#batch.has(id) && !ofParams.has(id)));
  }

  /** Classes of parameters that the model axis could split, by how much of the work they divide. */
  candidateClasses(limit = 5): number[] {
    const ofParams = this.roles.params.flatMap((at) => this.dimsOf(this.fn.params[at])[0]);
    const weights = new Map(ofParams.filter((id) => !this.#batch.has(id)).map((id) => [id, 0]));
    for (const { node } of this.problem.items) {
      const work = this.problem.work.get(node)!;
      if (work.kind === "nothing" || this.phaseOf(node) === "update") continue;
      const flops = work.kind === "matmul" ? 2 * numel(node.shape) * (node.inputs[0].shape.at(-1) ?? 1) : 0;
      for (const id of new Set(this.problem.classesOf(node)))
        if (weights.has(id)) weights.set(id, weights.get(id)! + flops);
    }
    const twice = this.#twice();
    return [...weights]
      .filter(([id, weight]) => weight > 0 && !twice.has(id))
      .sort((a, b) => b[1] - a[1])
      .slice(0, limit)
      .map(([id]) => id);
  }

  /** Classes that are two dimensions of one parameter (a residual stream of square layers): no axis can split them everywhere. */
  #twice(): Set<number> {
    return new Set(
      this.roles.params.flatMap((at) => {
        const dims = this.dimsOf(this.fn.params[at])[0];
        return dims.filter((id, i) => dims.indexOf(id) !== i);
      }),
    );
  }

  /**
   * Classes that divide as many parameters as possible among this number of devices, with as few classes as possible. A class may be two
   * dimensions of a parameter (a residual stream of square layers), of which the first is divided.
   */
  parameterClasses(parts: number): Set<number> {
    const { params } = this.fn;
    let open = this.roles.params.map((at) => {
      const { shape, dtype } = params[at];
      const bytes = numel(shape) * bytesOf(dtype);
      /** Bytes that no device has twice, by class: fewer where parts are not equal, and none of a single element. */
      const gains = new Map<number, number>();
      this.dimsOf(params[at])[0].forEach((id, dim) => {
        const gain = bytes * (1 - partOf(shape[dim], parts) / shape[dim]);
        if (gain > 0 && !this.#batch.has(id) && !gains.has(id)) gains.set(id, gain);
      });
      return { gains, bytes };
    });
    const all = open.reduce((n, { bytes }) => n + bytes, 0);
    const chosen = new Set<number>();
    /** Other dimensions of parameters that are divided already: dividing these, too, moves more. */
    const beside = new Set<number>();
    for (;;) {
      const gains = new Map<number, number>();
      for (const own of open) for (const [id, gain] of own.gains) gains.set(id, (gains.get(id) ?? 0) + gain);
      const bestOf = (list: [number, number][]): [number, number] =>
        list.reduce((a, b) => (b[1] > a[1] ? b : a), [-1, 0]);
      const free = bestOf([...gains].filter(([id]) => !beside.has(id)));
      const [best, gain] = free[0] < 0 ? bestOf([...gains]) : free;
      // What is less than a thousandth is not worth its collectives.
      if (gain < 1e-3 * all) return chosen;
      chosen.add(best);
      for (const own of open) if (own.gains.has(best)) for (const id of own.gains.keys()) beside.add(id);
      open = open.filter((own) => !own.gains.has(best));
    }
  }

  /** Seconds of an op whose factors are divided into these parts. */
  #time({ node }: Item, parts: readonly number[], rates: Rates): number {
    const rule = factorsOf(node);
    const cut = (shape: Shape, maps: readonly ({ factor: number } | null)[]): number[] =>
      shape.map((size, dim) => partOf(size, parts[maps[dim]?.factor ?? -1] ?? 1));
    const local = {
      operands: node.inputs.map((input, i) => cut(input.shape, rule.inputs[i])),
      results: outputAvals(node).map(({ shape }, i) => cut(shape, rule.outputs[i])),
    };
    return workTime(node, this.problem.work.get(node)!, local, rates, (part) =>
      this.problem.loopTime(node as Node<"scan">, rates, part),
    );
  }

  /** Cost of a split. Rates are those of the devices and of the links of the model axis. */
  cost(split: StepSplit, rates: Rates): SplitCost {
    const compute: Record<Phase, number> = { forward: 0, backward: 0, update: 0 };
    const segments = new Array<number>(this.segments).fill(0);
    const flow = this.#flowOf(split)?.flow;
    const rowParts = this.#rowParts(split);
    /** Seconds by look and divided factor. */
    const known: (number[] | undefined)[] = [];
    for (const { item, phase, segment, look, isRow } of this.#timed) {
      const divided = flow?.factor(item.node) ?? -1;
      const own = (known[look] ??= []);
      own[divided + 1] ??= this.#time(
        item,
        isRow.map((is, factor) => (is ? rowParts : factor === divided ? split.model : 1)),
        rates,
      );
      const seconds = own[divided + 1];
      compute[phase] += seconds;
      if (segment >= 0) segments[segment] += seconds;
    }
    const byRows = { ...split, model: 1 };
    const communicate = (this.#flowOf(split)?.collectives ?? []).reduce(
      (sum, { kind, node, index }) =>
        sum + linkTime(rates, kind, split.model, receivedPart[kind](split.model) * this.bytes(node, byRows, index)),
      0,
    );
    return { compute, communicate, segments };
  }

  /** Activations of every segment, and the largest value that one op of the backward pass makes. */
  activations(split: StepSplit): { segments: SegmentMemory[]; transient: number } {
    const segments = Array.from({ length: this.segments }, () => ({ stored: 0, incoming: 0 }));
    const stored = new Set<Node>();
    const incoming = new Set<string>();
    let transient = 0;
    for (const { node } of this.problem.items) {
      if (this.phaseOf(node) === "backward" && this.isStored(node))
        transient = Math.max(transient, this.bytes(node, split));
      for (const input of node.inputs) {
        const made = this.segmentOf(input);
        if (made < 0) continue;
        const source = this.#storedSource(input);
        if (source === null) continue;
        const from = this.segmentOf(source);
        const reader = this.segmentOf(node);
        if (this.phaseOf(node) !== "forward" && !stored.has(source)) {
          stored.add(source);
          segments[from].stored += this.bytes(source, split);
        }
        if (reader > from && !incoming.has(`${reader}:${source.id}`)) {
          incoming.add(`${reader}:${source.id}`);
          segments[reader].incoming += this.bytes(source, split);
        }
      }
    }
    return { segments, transient };
  }

  /** The value in memory behind views; null for parameters and values that are never stored. */
  #storedSource(node: Node): Node | null {
    let at = node;
    while (!this.isStored(at) && at.inputs.length === 1) at = at.inputs[0];
    return this.isStored(at) && this.segmentOf(at) >= 0 ? at : null;
  }
}

/** Positions after which fewer bytes cross than anywhere near, at most one fewer than there may be segments. */
function cutsOf(crossing: readonly number[]): number[] {
  const reach = Math.ceil(crossing.length / 12);
  const narrow = crossing.map((bytes, i) => {
    let least = bytes;
    for (let k = Math.max(0, i - reach); k <= Math.min(crossing.length - 1, i + reach); k++)
      least = Math.min(least, crossing[k]);
    return bytes <= 1.1 * least;
  });
  const found = crossing.flatMap((_, i) => (narrow[i] && !narrow[i - 1] ? [i] : []));
  const step = Math.max(1, Math.ceil(found.length / (maxSegments - 1)));
  return found.filter((_, k) => k % step === 0);
}

/** Largest number of bytes that the values of a function need at one time, without its parameters. */
export function peakBytes(order: readonly Node[], sizeOf: (node: Node) => number): number {
  const at = new Map(order.map((node, i) => [node, i]));
  const last = new Int32Array(order.length);
  for (let i = order.length - 1; i >= 0; i--) {
    last[i] = Math.max(last[i], i);
    const isStored = sizeOf(order[i]) > 0;
    for (const input of order[i].inputs) {
      const from = at.get(input);
      // A value that is never stored passes its own reads on to what it is made of.
      if (from !== undefined) last[from] = Math.max(last[from], isStored ? i : last[i]);
    }
  }
  const ends: number[][] = order.map(() => []);
  let [live, peak] = [0, 0];
  order.forEach((node, i) => {
    live += sizeOf(node);
    ends[last[i]].push(sizeOf(node));
    peak = Math.max(peak, live);
    for (const size of ends[i]) live -= size;
  });
  return peak;
}
