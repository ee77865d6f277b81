// Evaluates a graph for one lane: nodes at indices become scalars, scans become loops. State variables that are provably
// constant, equal or opposite throughout (zeros, real diagonals, conjugate pairs) are carried once. Knows nothing of memory
// and text.
import { laneLimits } from "../cost/index.js";
import { type DType, isComplex, isOp, type Node, numel, realOf } from "../graph/index.js";
import { splitScan, stepCounter } from "../transform/index.js";
import { delinearize, Ix, linearize } from "./index-expr.js";
import { LaneOps, type LaneValue, type Lookup } from "./lane-ops.js";
import { deeper, type LaneLoop, type LaneScalar, NotLane, ScalarPool, stripped } from "./lane-scalar.js";
import { accumulated, LaneSums } from "./lane-sums.js";
import { type Assumed, assumeAll, assumeNothing, refine } from "./lane-symmetry.js";
import { isView, throughView } from "./views.js";

/** The interface to the outermost graph: nodes in memory, and their compile-time values. */
export interface LaneSource {
  /** The operand number of a node that is read from memory; null where the lane computes it. */
  input(node: Node): number | null;
  known(node: Node, element: number): { re: number; im: number } | null;
  /** The operand number of a node that a lane should compute but cannot; null where it cannot be read either. */
  fallback(node: Node): number | null;
  /** The node of an operand number. */
  node(input: number): Node;
  /** Whether a scan stands for a lane program that was outlined before: its body says nothing about its results. */
  isOutlined(node: Node): boolean;
}

/** How a carry belongs to lanes: one per lane, shared (held by every lane), or a sum over lanes. */
type CarryMode = "own" | "shared" | "sum";

interface CarryPlace {
  mode: CarryMode;
  /** Number of lane axes in front of the carry's shape. */
  laneAxes: number;
  first: number;
  count: number;
  dtype: DType;
}

/** A scan inside a lane program. */
export interface Instance {
  node: Node<"scan">;
  loop: LaneLoop;
  carries: CarryPlace[];
  /** The value of each state element inside the loop: a state variable, its negative, or a constant. */
  numbers: LaneScalar[];
  env: Env;
}

export class Env {
  readonly memo = new Map<string, LaneValue>();
  /** Why the contribution of a lane to some values cannot be computed. */
  readonly refused = new Map<string, NotLane>();
  readonly bindings = new Map<Node, (index: readonly Ix[]) => LaneValue>();
  readonly instances = new Map<Node, Instance>();
  constructor(readonly loop: LaneLoop | null) {}
}

const laneDTypes: ReadonlySet<DType> = new Set([
  "bool",
  "int32",
  "int64",
  "float32",
  "float64",
  "complex64",
  "complex128",
] as const);

/** Loops with more state variables are not searched for equal ones. */
const maxSearched = 160;
const maxRounds = 12;
/** Maximum number of rows of one lane whose loops end separately. */
const maxRows = 64;
/** Limit of scalars of all attempts together. */
const poolLimit = 400_000;

export class LaneEvaluator {
  readonly pool = new ScalarPool(poolLimit);
  readonly ops = new LaneOps(this.pool);
  readonly top = new Env(null);
  readonly lanes: number;
  /** The lane's index on each lane axis. */
  readonly lane: Ix[];
  readonly loops: LaneLoop[] = [];
  readonly sums = new LaneSums(this);
  readonly #loopOfVariable = new Map<string, LaneLoop>();
  readonly #scanOfLoop = new Map<LaneLoop, Node<"scan">>();

  constructor(
    readonly prefix: readonly number[],
    readonly source: LaneSource,
  ) {
    this.lanes = numel(prefix);
    this.lane = prefix.map((size, i) => Ix.variable(`l${i}`, size));
  }

  readonly loopOf = (ix: Ix): LaneLoop | null => {
    let found: LaneLoop | null = null;
    for (const name of ix.variables()) found = deeper(found, this.#loopOfVariable.get(name) ?? null);
    return found;
  };

  /** Whether a shape begins with the first `laneAxes` lane axes. */
  leads(shape: readonly number[], laneAxes = this.prefix.length): boolean {
    return this.prefix.slice(0, laneAxes).every((d, i) => shape[i] === d) && shape.length >= laneAxes;
  }

  /** The index of element e of one lane's part of a tensor with leading lane axes. */
  elementIndex(shape: readonly number[], e: number, laneAxes = this.prefix.length): Ix[] {
    return [...this.lane.slice(0, laneAxes), ...delinearize(Ix.constant(e), shape.slice(laneAxes))];
  }

  value(node: Node, index: readonly Ix[], env: Env): LaneValue {
    const key = `${node.id}@${index.map((i) => i.key).join(",")}`;
    const cached = env.memo.get(key);
    if (cached !== undefined) return cached;
    if (node.outputs === null && !laneDTypes.has(node.dtype)) throw new NotLane(`${node.dtype} in a lane`);
    const value = this.#value(node, index, env);
    env.memo.set(key, value);
    return value;
  }

  #value(node: Node, index: readonly Ix[], env: Env): LaneValue {
    const binding = env.bindings.get(node);
    if (binding !== undefined) return binding(index);
    if (env === this.top) {
      const input = this.source.input(node);
      if (input !== null) return this.#load(node, input, index);
    }
    if (env !== this.top) return this.#computed(node, index, env);
    try {
      return this.#computed(node, index, env);
    } catch (error) {
      const input = error instanceof NotLane ? this.source.fallback(node) : null;
      if (input === null) throw error;
      return this.#load(node, input, index);
    }
  }

  /** Evaluates a node from its operands, even where it is bound. */
  compute(node: Node, index: readonly Ix[], env: Env): LaneValue {
    return this.#computed(node, index, env);
  }

  /** A loop over time whose state is held elsewhere. */
  plainLoop(length: number, reverse: boolean): LaneLoop {
    return this.#newLoop(null, length, reverse, []);
  }

  #newLoop(parent: LaneLoop | null, length: number, reverse: boolean, init: LaneScalar[]): LaneLoop {
    const id = this.#loopOfVariable.size;
    const variable = `t${id}`;
    const time = Ix.variable(variable, length);
    const loop: LaneLoop = { id, parent, length, reverse, stop: null, variable, time, init, next: [], history: [] };
    this.#loopOfVariable.set(variable, loop);
    return loop;
  }

  #computed(node: Node, index: readonly Ix[], env: Env): LaneValue {
    if (isView(node)) {
      const place = throughView(node, index);
      return this.value(place.node, place.index, env);
    }
    if (isOp(node, "pick")) return this.#result(node, index, env);
    if (isOp(node, "iota")) return this.ops.position(index[node.attrs.axis], node.dtype, this.loopOf);
    const lookup: Lookup = (operand, at) => this.value(operand, at, env);
    if (isOp(node, "random")) return this.ops.random(node, index, lookup, this.loopOf);
    const value = this.ops.apply(node, index, lookup);
    if (value === null) throw new NotLane(`${node.op} in a lane`);
    return value;
  }

  #load(node: Node, input: number, index: readonly Ix[]): LaneValue {
    const address = linearize(index, node.shape);
    const real = realOf(node.dtype);
    if (address.isConstant) {
      const known = this.source.known(node, address.constant);
      if (known !== null) return this.ops.constant(known, node.dtype);
    }
    const loop = this.loopOf(address);
    return Array.from({ length: isComplex(node.dtype) ? 2 : 1 }, (_, k) =>
      this.pool.make("load", real, [], { input, address, part: k as 0 | 1, loop }),
    );
  }

  /** A result of a scan: a value after the loop, or a value of one of its steps at a time. */
  #result(node: Node<"pick">, index: readonly Ix[], env: Env): LaneValue {
    const [scan] = node.inputs;
    if (!isOp(scan, "scan")) throw new NotLane(`${scan.op} in a lane`);
    const instance = this.instance(scan, env);
    const { carries, body } = scan.attrs;
    const which = node.attrs.index;
    if (which < carries) {
      if (instance.carries[which].mode === "sum") throw new NotLane("lanes read the sum over all of them");
      const first = this.#own(instance.carries[which], index, body.params[scan.attrs.consts + which].shape);
      const parts = isComplex(node.dtype) ? 2 : 1;
      return Array.from({ length: parts }, (_, k) => this.final(instance, first + k));
    }
    const [time, ...rest] = index;
    if (rest.some((ix) => this.loopOf(ix) !== null)) throw new NotLane("a result read along with another loop's time");
    return this.value(body.outputs[which], rest, instance.env).map((v) => this.past(v, instance.loop, time));
  }

  /** The state variable of an element of a carry. */
  #own(place: CarryPlace, index: readonly Ix[], shape: readonly number[]): number {
    const address = linearize(index, shape);
    const per = numel(shape.slice(place.laneAxes));
    const mine = linearize([...this.lane.slice(0, place.laneAxes)], shape.slice(0, place.laneAxes)).times(per);
    const own = address.add(mine.times(-1));
    if (!own.isConstant || own.constant < 0 || own.constant >= per) throw new NotLane("lanes read each other's state");
    return place.first + own.constant * (place.count / per);
  }

  final(instance: Instance, i: number): LaneScalar {
    const inside = instance.numbers[i];
    if (inside.op === "neg") return this.pool.neg(this.#finalOf(inside.args[0]));
    return this.#finalOf(inside);
  }

  #finalOf(inside: LaneScalar): LaneScalar {
    if (inside.op !== "state") return inside;
    return this.pool.make("final", inside.dtype, [], { value: inside.value, of: inside.of, loop: inside.of!.parent });
  }

  /** A value of a loop's step at a time. */
  past(v: LaneScalar, loop: LaneLoop, time: Ix): LaneScalar {
    // Rows of steps that did not run are zero, which is no value of a step. The time of a loop of one step is a constant, which does
    // not say whether the row is read inside the step.
    const isInside = loop.length > 1 && time.equals(loop.time);
    if (loop.stop !== null && !isInside && !this.#runsStepsOf(this.loopOf(time), loop))
      throw new NotLane("results of a loop that may stop early");
    if (v.op === "neg") return this.pool.neg(this.past(v.args[0], loop, time));
    if (v.loop !== loop) return v;
    // Read inside the step itself.
    if (time.mentions(loop.variable)) {
      if (time.equals(loop.time)) return v;
      throw new NotLane("a step reads the results of other steps");
    }
    if (v.op === "load" || v.op === "lane") {
      const address = v.address!.substitute(new Map([[loop.variable, time]]));
      return this.pool.make(v.op, v.dtype, [], { ...v, address, loop: this.loopOf(address) });
    }
    let slot = loop.history.indexOf(v);
    if (slot < 0) slot = loop.history.push(v) - 1;
    const scope = deeper(this.loopOf(time), loop.parent);
    return this.pool.make("past", v.dtype, [], { value: slot, of: loop, address: time, loop: scope });
  }

  /** The scan as a loop of this lane, with as few state variables as provably suffice. */
  instance(node: Node<"scan">, env: Env): Instance {
    const built = env.instances.get(node);
    if (built !== undefined) return built;
    if (node.attrs.length === 0) throw new NotLane("a scan without steps");
    if (this.source.isOutlined(node)) throw new NotLane("results of another lane program");
    const carries = this.#places(node);
    const init = this.#initial(node, carries, env);
    if (init.length > laneLimits.state) throw new NotLane(`${init.length} state variables per lane`);
    const known = (s: LaneScalar): string | null => this.#table(s);
    let assumed = init.length <= maxSearched ? assumeAll(init, known) : assumeNothing(init);
    for (let round = 0; ; round++) {
      if (round === maxRounds) assumed = assumeNothing(init);
      const instance = this.#attempt(node, env, carries, init, assumed);
      const refined = refine(assumed, instance.loop.next);
      if (refined === null) {
        env.instances.set(node, instance);
        this.loops.push(instance.loop);
        return instance;
      }
      assumed = refined;
    }
  }

  /** The values of a scalar on all lanes, where they are known at compile time; null otherwise. */
  #table(s: LaneScalar): string | null {
    const loads: LaneScalar[] = [];
    const stack = [s];
    while (stack.length > 0) {
      const at = stack.pop()!;
      if (at.op === "load") loads.push(at);
      else if (at.op !== "const" && arithmetic[at.op] === undefined) return null;
      stack.push(...at.args);
      if (loads.length > 256) return null;
    }
    const names = [...new Set(loads.flatMap((l) => [...l.address!.variables()]))];
    const axes = names.map((name) => this.lane.findIndex((ix) => ix.mentions(name)));
    if (axes.includes(-1)) return null;
    const sizes = axes.map((a) => this.prefix[a]);
    if (numel(sizes) > 4096) return null;
    const values: number[] = [];
    for (let i = 0; i < numel(sizes); i++) {
      const at = delinearize(Ix.constant(i), sizes);
      const value = this.#known(s, new Map(names.map((name, k) => [name, at[k]])));
      if (value === null) return null;
      values.push(value);
    }
    return values.join();
  }

  #known(s: LaneScalar, lane: ReadonlyMap<string, Ix>): number | null {
    if (s.op === "const") return s.value;
    if (s.op === "load") {
      const value = this.source.known(this.source.node(s.input), s.address!.substitute(lane).constant);
      return value === null ? null : s.part === 0 ? value.re : value.im;
    }
    const [a, b] = s.args.map((x) => this.#known(x, lane));
    return a === null || b === null ? null : arithmetic[s.op]!(a, b);
  }

  /** Which lanes each carry belongs to. A carry that is only accumulated may be summed over lanes after the loop. */
  #places(node: Node<"scan">): CarryPlace[] {
    const { body, consts, carries: count } = node.attrs;
    const places: CarryPlace[] = [];
    let first = 0;
    for (let c = 0; c < count; c++) {
      const param = body.params[consts + c];
      const parts = isComplex(param.dtype) ? 2 : 1;
      let laneAxes = this.prefix.length;
      let mode: CarryMode = "own";
      if (!this.leads(param.shape)) {
        const grows = accumulated(node, c) !== null;
        mode = grows ? "sum" : "shared";
        laneAxes = 0;
        if (grows) while (laneAxes < this.prefix.length && param.shape[laneAxes] === this.prefix[laneAxes]) laneAxes++;
      }
      const own = numel(param.shape.slice(laneAxes)) * parts;
      places.push({ mode, laneAxes, first, count: own, dtype: realOf(param.dtype) });
      first += own;
      if (first > laneLimits.state) throw new NotLane(`${first} state variables per lane`);
    }
    return places;
  }

  #initial(node: Node<"scan">, places: readonly CarryPlace[], env: Env): LaneScalar[] {
    const { consts } = node.attrs;
    return places.flatMap((place, c) => {
      const x = node.inputs[consts + c];
      if (place.mode === "sum") return Array.from({ length: place.count }, () => this.pool.constant(0, place.dtype));
      return this.numbers(x, place.laneAxes, env);
    });
  }

  /** All scalars that one lane has of a tensor. */
  numbers(node: Node, laneAxes: number, env: Env): LaneScalar[] {
    const count = numel(node.shape.slice(laneAxes));
    return Array.from({ length: count }, (_, e) =>
      this.value(node, this.elementIndex(node.shape, e, laneAxes), env),
    ).flat();
  }

  #attempt(
    node: Node<"scan">,
    env: Env,
    carries: CarryPlace[],
    init: LaneScalar[],
    assumed: readonly Assumed[],
  ): Instance {
    const { body, length, reverse, stop } = node.attrs;
    const loop = this.#newLoop(env.loop, length, reverse, init);
    this.#scanOfLoop.set(loop, node);
    const state = (i: number): LaneScalar => this.pool.make("state", init[i].dtype, [], { value: i, of: loop, loop });
    const numbers = assumed.map(({ constant, root, sign }, i) => {
      if (constant !== null) return this.pool.constant(constant, init[i].dtype);
      return sign === 1 ? state(root) : this.pool.neg(state(root));
    });
    const inner = new Env(loop);
    const instance: Instance = { node, loop, carries, numbers, env: inner };
    const params = splitScan(node, body.params);
    const inputs = splitScan(node, node.inputs);
    params.consts.forEach((param, i) => {
      inner.bindings.set(param, (index) => this.value(inputs.consts[i], index, env));
    });
    params.xs.forEach((param, i) => {
      inner.bindings.set(param, (index) => this.value(inputs.xs[i], [loop.time, ...index], env));
    });
    params.carries.forEach((param, c) => {
      inner.bindings.set(param, (index) => {
        if (carries[c].mode === "sum") throw new NotLane("lanes read the sum over all of them");
        const first = this.#own(carries[c], index, param.shape);
        return numbers.slice(first, first + (isComplex(param.dtype) ? 2 : 1));
      });
    });
    if (stop === "while") loop.stop = { kind: stop, values: numbers.slice(0, carries[0].count).map(stripped) };
    else if (stop === "count") loop.stop = { kind: stop, values: this.#steps(inputs.consts[0], env) };
    loop.next = carries.flatMap((place, c) => {
      const output = body.outputs[c];
      if (place.mode !== "sum") return this.numbers(output, place.laneAxes, inner);
      const grown = accumulated(node, c)!;
      if (grown === "unchanged") return numbers.slice(place.first, place.first + place.count);
      const added = this.sums.numbers(grown, place.laneAxes, inner);
      return added.map((a, k) => this.pool.add(numbers[place.first + k], a));
    });
    return instance;
  }

  /** The numbers of steps of this lane's rows; of all rows where the lanes are not rows. */
  #steps(count: Node, env: Env): LaneScalar[] {
    const laneAxes = this.leads(count.shape) ? this.prefix.length : 0;
    if (numel(count.shape.slice(laneAxes)) > maxRows) throw new NotLane("a lane with many rows that stop separately");
    return this.numbers(count, laneAxes, env);
  }

  /** Whether a loop runs exactly the steps of another one: the reverse pass of a loop that may stop. */
  #runsStepsOf(reader: LaneLoop | null, loop: LaneLoop): boolean {
    const node = this.#scanOfLoop.get(loop);
    const other = reader === null ? undefined : this.#scanOfLoop.get(reader);
    if (node === undefined || other?.attrs.stop !== "count") return false;
    const [count] = other.inputs;
    if (node.attrs.stop === "count") return count === node.inputs[0];
    return isOp(count, "pick") && count.inputs[0] === node && count.attrs.index === stepCounter(node);
  }
}

const arithmetic: Partial<Record<string, (a: number, b: number) => number>> = {
  add: (a, b) => a + b,
  sub: (a, b) => a - b,
  mul: (a, b) => a * b,
  neg: (a) => -a,
};
