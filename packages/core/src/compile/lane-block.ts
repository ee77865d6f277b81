// Block programs: a scan over a batch of problems that are too large for one thread, one thread block per problem. The
// tensors of a step are in shared memory; all threads of the block compute each of them together, one element per thread,
// with barriers between dependent ones. Values that are read once are not stored.
import { loopCost } from "../cost/index.js";
import { type DType, functionOrder, isComplex, isOp, type Node, numel, realOf } from "../graph/index.js";
import { splitScan } from "../transform/index.js";
import { delinearize, Ix, linearize } from "./index-expr.js";
import type { LaneValue } from "./lane-ops.js";
import { type LaneLoop, type LaneScalar, NotLane } from "./lane-scalar.js";
import { Env, LaneEvaluator, type LaneSource } from "./lane-value.js";
import { computeBytes } from "./scalar.js";
import { isView } from "./views.js";

/** A tensor of one problem in shared memory. */
export interface BlockArray {
  id: number;
  count: number;
  dtype: DType;
  parts: 1 | 2;
  /** First byte, after allocation. */
  offset: number;
}

/** Elements that all threads compute together and write to an array or an output. */
export interface BlockTask {
  /** The name of the element variable in addresses, and its range. */
  variable: string;
  count: number;
  /** Destination of the elements: an array of the block, or an output of the kernel at an address. */
  target: { array: BlockArray } | { output: number; address: Ix };
  /** The parts of an element as a function of the element variable; or one list per element where they differ. */
  values: LaneScalar[] | LaneScalar[][];
  each: boolean;
}

export interface BlockProgram {
  form: "block";
  prefix: readonly number[];
  lanes: number;
  inputs: Node[];
  outputs: readonly { shape: readonly number[]; dtype: DType }[];
  loop: LaneLoop;
  arrays: BlockArray[];
  /** Before the loop, in every step level by level with a barrier after each, and after the loop. */
  before: BlockTask[];
  levels: BlockTask[][];
  /** Arrays that become the state of the next step: [state, new]. */
  advance: [BlockArray, BlockArray][];
  after: BlockTask[];
  sharedBytes: number;
  threads: number;
  flops: number;
}

/** Static shared memory of a block. */
const maxSharedBytes = 48 * 1024;
const maxTaskScalars = 4000;
const maxUnrolledElements = 64;
/** Longer contractions are left to the library. */
const maxContraction = 128;

const operationCost = (node: Node): number => {
  if (isOp(node, "matmul")) return 3 * node.inputs[0].shape[node.inputs[0].shape.length - 1];
  if (isOp(node, "reduce")) return 2 * Math.max(1, numel(node.inputs[0].shape) / Math.max(1, numel(node.shape)));
  if (isOp(node, "unary") || isOp(node, "binary")) return loopCost(node);
  return isView(node) ? 0 : 1;
};

export class BlockBuilder {
  readonly evaluator: LaneEvaluator;
  readonly arrays: BlockArray[] = [];
  readonly #arrayOf = new Map<Node, BlockArray>();
  readonly #env: Env;
  readonly loop: LaneLoop;
  readonly #order: Node[];
  #variables = 0;

  constructor(
    readonly node: Node<"scan">,
    prefix: readonly number[],
    source: LaneSource,
  ) {
    this.evaluator = new LaneEvaluator(prefix, source);
    const { length, reverse, body, stop } = node.attrs;
    if (stop !== undefined) throw new NotLane("a block whose loop may stop early");
    this.loop = this.evaluator.plainLoop(length, reverse);
    this.#env = new Env(this.loop);
    this.#order = functionOrder(body);
    for (const step of this.#order)
      if (isOp(step, "matmul") && step.inputs[0].shape.at(-1)! > maxContraction) throw new NotLane("large products");
    this.#bind();
  }

  /** The part of a tensor with leading lane axes that belongs to one problem. */
  #restOf(shape: readonly number[]): readonly number[] {
    if (!this.evaluator.leads(shape)) throw new NotLane("a carry without the lanes' axes");
    return shape.slice(this.evaluator.prefix.length);
  }

  #array(node: Node): BlockArray {
    const array: BlockArray = {
      id: this.arrays.length,
      count: numel(this.#restOf(node.shape)),
      dtype: realOf(node.dtype),
      parts: isComplex(node.dtype) ? 2 : 1,
      offset: -1,
    };
    this.arrays.push(array);
    return array;
  }

  #read(array: BlockArray, node: Node, index: readonly Ix[]): LaneValue {
    const { evaluator } = this;
    const address = linearize(index, node.shape);
    const lanes = linearize(evaluator.lane, evaluator.prefix).times(array.count);
    const own = address.add(lanes.times(-1));
    if ([...own.variables()].some((name) => name.startsWith("l"))) throw new NotLane("lanes read each other's state");
    return Array.from({ length: array.parts }, (_, k) =>
      evaluator.pool.make("shared", array.dtype, [], {
        input: array.id,
        address: own,
        part: k as 0 | 1,
        loop: this.loop,
      }),
    );
  }

  #bind(): void {
    const { node, evaluator } = this;
    const { body } = node.attrs;
    const env = this.#env;
    const params = splitScan(node, body.params);
    const inputs = splitScan(node, node.inputs);
    params.consts.forEach((param, i) => {
      env.bindings.set(param, (index) => evaluator.value(inputs.consts[i], index, evaluator.top));
    });
    params.xs.forEach((param, i) => {
      env.bindings.set(param, (index) => evaluator.value(inputs.xs[i], [this.loop.time, ...index], evaluator.top));
    });
    params.carries.forEach((param) => {
      const array = this.#array(param);
      this.#arrayOf.set(param, array);
      env.bindings.set(param, (index) => this.#read(array, param, index));
    });
    for (const chosen of this.#materialized()) {
      if (this.#arrayOf.has(chosen)) continue;
      const array = this.#array(chosen);
      this.#arrayOf.set(chosen, array);
      env.bindings.set(chosen, (index) => this.#read(array, chosen, index));
    }
  }

  /** The values of a step that are stored in shared memory: expensive ones that are read more than once. */
  #materialized(): Node[] {
    const { body, carries } = this.node.attrs;
    const params = new Set(body.params);
    const reads = new Map<Node, number>();
    const cost = new Map<Node, number>();
    for (const node of this.#order) {
      const operands = params.has(node) ? [] : node.inputs;
      const heavy = node.op === "matmul" || node.op === "reduce";
      const inner = operands.reduce((n, x) => n + (x.op === "matmul" ? 1 : (cost.get(x) ?? 0)), 0);
      cost.set(node, params.has(node) ? 0 : operationCost(node) * (heavy ? 1 + inner / 4 : 1) + (heavy ? 0 : inner));
    }
    const chosen = new Set<Node>();
    const next = new Set(body.outputs.slice(0, carries).filter((o) => !params.has(o)));
    for (const output of body.outputs) reads.set(output, (reads.get(output) ?? 0) + 1);
    for (let i = this.#order.length - 1; i >= 0; i--) {
      const node = this.#order[i];
      if (params.has(node) || node.outputs !== null) continue;
      const own = reads.get(node) ?? 0;
      const lead = this.evaluator.leads(node.shape);
      const stored = lead && !isView(node) && (next.has(node) || (own > 1.01 && (cost.get(node) ?? 0) > 3));
      if (stored) chosen.add(node);
      const times = stored ? 1 : own;
      for (const x of node.inputs) {
        const share = numel(node.shape) / Math.max(1, numel(x.shape));
        let each = share;
        if (isOp(node, "matmul")) each = share * node.inputs[0].shape[node.shape.length - 1];
        else if (isOp(node, "reduce")) each = 1;
        reads.set(x, (reads.get(x) ?? 0) + times * each);
      }
    }
    // New states must be separate arrays, also where a step only moves elements.
    for (const output of next) chosen.add(output);
    this.#shortenLives(chosen, params);
    return this.#order.filter((node) => chosen.has(node));
  }

  /** Sums that grow over a step are stored as they grow: otherwise all their terms would stay alive to the end. */
  #shortenLives(chosen: Set<Node>, params: ReadonlySet<Node>): void {
    const level = new Map<Node, number>();
    const heavy = new Set<Node>();
    for (const node of this.#order) {
      if (params.has(node)) {
        level.set(node, 0);
        continue;
      }
      const reached = Math.max(0, ...node.inputs.map((x) => level.get(x) ?? 0));
      if (!isView(node))
        for (const x of node.inputs)
          if (heavy.has(x) && reached - (level.get(x) ?? 0) >= 2 && this.evaluator.leads(x.shape) && !isView(x)) {
            chosen.add(x);
            heavy.delete(x);
          }
      const works = node.op === "matmul" || node.op === "reduce";
      if (!chosen.has(node) && (works || node.inputs.some((x) => heavy.has(x)))) heavy.add(node);
      level.set(node, reached + (chosen.has(node) ? 1 : 0));
    }
  }

  /** All elements of a tensor of the problem, symbolically; element by element where that is impossible. */
  #task(
    shape: readonly number[],
    laneAxes: number,
    value: (index: readonly Ix[]) => LaneValue,
    target: (e: Ix) => BlockTask["target"],
  ): BlockTask {
    const { evaluator } = this;
    const rest = shape.slice(laneAxes);
    const count = numel(rest);
    const variable = `e${this.#variables++}`;
    const running = Ix.variable(variable, count);
    const lanes = evaluator.lane.slice(0, laneAxes);
    const at = (e: Ix): Ix[] => [...lanes, ...delinearize(e, rest)];
    const common = { variable, count, target: target(running) };
    try {
      return { ...common, values: [...value(at(running))], each: false };
    } catch (error) {
      if (!(error instanceof NotLane) || count > maxUnrolledElements) throw error;
      return { ...common, values: Array.from({ length: count }, (_, e) => [...value(at(Ix.constant(e)))]), each: true };
    }
  }

  build(): Omit<BlockProgram, "inputs"> {
    const { node, evaluator, loop } = this;
    const { prefix, lanes } = evaluator;
    const { body, carries, consts } = node.attrs;
    const laneAxes = prefix.length;
    const outputs: BlockProgram["outputs"] = [
      ...body.outputs.slice(0, carries).map((o) => ({ shape: o.shape, dtype: o.dtype })),
      ...body.outputs.slice(carries).map((o) => ({ shape: [loop.length, ...o.shape], dtype: o.dtype })),
    ];
    const params = splitScan(node, body.params);
    const before = params.carries.map((param, c) => {
      const init = node.inputs[consts + c];
      return this.#task(
        param.shape,
        laneAxes,
        (index) => evaluator.value(init, index, evaluator.top),
        () => ({ array: this.#arrayOf.get(param)! }),
      );
    });
    const level = new Map<BlockArray, number>();
    for (const param of params.carries) level.set(this.#arrayOf.get(param)!, 0);
    const levels: BlockTask[][] = [];
    const place = (task: BlockTask): void => {
      const reads = readsOf(task);
      let at = 0;
      for (const id of reads) at = Math.max(at, level.get(this.arrays[id])!);
      if ("array" in task.target) level.set(task.target.array, at + 1);
      while (levels.length <= at) levels.push([]);
      levels[at].push(task);
    };
    for (const chosen of this.#order) {
      const array = this.#arrayOf.get(chosen);
      if (array === undefined || body.params.includes(chosen)) continue;
      place(
        this.#task(
          chosen.shape,
          laneAxes,
          (index) => evaluator.compute(chosen, index, this.#env),
          () => ({ array }),
        ),
      );
    }
    body.outputs.slice(carries).forEach((y, i) => {
      if (!evaluator.leads(y.shape)) throw new NotLane("a result without the lanes' axes");
      const full = [loop.length, ...y.shape];
      place(
        this.#task(
          y.shape,
          laneAxes,
          (index) => evaluator.value(y, index, this.#env),
          (e) => ({
            output: carries + i,
            address: linearize([loop.time, ...evaluator.lane, ...delinearize(e, y.shape.slice(laneAxes))], full),
          }),
        ),
      );
    });
    const advance = params.carries.flatMap((param, c): [BlockArray, BlockArray][] => {
      const next = body.outputs[c];
      const state = this.#arrayOf.get(param)!;
      if (next === param) return [];
      const from = this.#arrayOf.get(next);
      if (from === undefined) throw new NotLane("a state that is another state");
      return [[state, from]];
    });
    const after = params.carries.map((param, c) => {
      const array = this.#arrayOf.get(param)!;
      const rest = param.shape.slice(laneAxes);
      return this.#task(
        param.shape,
        laneAxes,
        (index) => this.#read(array, param, index),
        (e) => ({ output: c, address: linearize([...evaluator.lane, ...delinearize(e, rest)], param.shape) }),
      );
    });
    const sharedBytes = this.#placeArrays(levels, advance);
    const tasks = [...before, ...levels.flat(), ...after];
    for (const task of tasks)
      if (closure(task.values.flat()).length > maxTaskScalars) throw new NotLane("a step too large to unroll");
    const largest = Math.max(...levels.flat().map((t) => t.count));
    const flops = levels.flat().reduce((n, t) => n + (t.each ? 1 : t.count) * closure(t.values.flat()).length, 0);
    return {
      form: "block",
      prefix,
      lanes,
      outputs,
      loop,
      arrays: this.arrays,
      before,
      levels,
      advance,
      after,
      sharedBytes,
      threads: largest <= 64 ? 32 : largest <= 256 ? 64 : largest <= 1024 ? 128 : 256,
      flops: flops * loop.length,
    };
  }

  /** Arrays of a step reuse the memory of dead ones; states keep theirs. */
  #placeArrays(levels: readonly BlockTask[][], advance: readonly [BlockArray, BlockArray][]): number {
    const first = new Map<BlockArray, number>();
    const last = new Map<BlockArray, number>();
    levels.forEach((tasks, at) => {
      for (const task of tasks) {
        if ("array" in task.target) {
          first.set(task.target.array, at);
          last.set(task.target.array, Math.max(last.get(task.target.array) ?? 0, at));
        }
        for (const id of readsOf(task)) last.set(this.arrays[id], at);
      }
    });
    for (const [state, from] of advance) {
      first.set(state, -1);
      last.set(from, levels.length);
    }
    const size = (a: BlockArray): number => Math.ceil((a.count * a.parts * computeBytes(a.dtype)) / 16) * 16;
    let top = 0;
    const placed: { array: BlockArray; from: number; to: number }[] = [];
    for (const array of this.arrays) {
      const isState = !first.has(array) || first.get(array) === -1;
      const [from, to] = isState ? [-1, levels.length + 1] : [first.get(array)!, last.get(array)!];
      const others = placed
        .filter((p) => p.from <= to && from <= p.to)
        .map((p) => ({ start: p.array.offset, end: p.array.offset + size(p.array) }))
        .sort((a, b) => a.start - b.start);
      let offset = 0;
      for (const { start, end } of others) {
        if (offset + size(array) <= start) break;
        offset = Math.max(offset, end);
      }
      array.offset = offset;
      placed.push({ array, from, to });
      top = Math.max(top, offset + size(array));
    }
    if (top > maxSharedBytes) throw new NotLane(`${top} bytes of shared memory per problem`);
    return top;
  }
}

/** Everything that some scalars depend on, operands first. */
export function closure(roots: readonly LaneScalar[]): LaneScalar[] {
  const seen = new Set<LaneScalar>();
  const stack = [...roots];
  while (stack.length > 0) {
    const s = stack.pop()!;
    if (seen.has(s)) continue;
    seen.add(s);
    stack.push(...s.args);
  }
  return [...seen].sort((a, b) => a.id - b.id);
}

/** The arrays that a task reads. */
function readsOf(task: BlockTask): Set<number> {
  return new Set(
    closure(task.values.flat())
      .filter((s) => s.op === "shared")
      .map((s) => s.input),
  );
}
