// Finds regions that can run as lane programs: scans over a common batch axis with the element-wise work between and after
// them. A region is outlined from the graph into one node (a scan of one step over all its operands) with a lane program
// attached. Whether a region can be split into lanes is determined by trying.
import {
  type Aval,
  avalOf,
  functionOrder,
  type GraphFn,
  isComplex,
  isOp,
  type Node,
  numel,
  type OpName,
  outputAvals,
} from "../graph/index.js";
import { build, make, type Value } from "../ops/index.js";
import { settings } from "../settings/index.js";
import { followers, rebuild, uniformValue } from "../transform/index.js";
import { delinearize, Ix, linearize } from "./index-expr.js";
import { type LaneOptions, type LaneProgram, type LaneStore, liveScalars, scheduleProgram } from "./lane.js";
import { BlockBuilder, type BlockProgram, closure } from "./lane-block.js";
import { RegionGraph } from "./lane-graph.js";
import type { LaneValue } from "./lane-ops.js";
import { saveSteps } from "./lane-save.js";
import { type LaneLoop, type LaneScalar, NotLane } from "./lane-scalar.js";
import { type Instance, LaneEvaluator, type LaneSource } from "./lane-value.js";
import { isView } from "./views.js";

export interface RegionOptions extends LaneOptions {
  /** Parameter values that are known at compile time, by position. */
  constants?: ReadonlyMap<number, Value>;
}

export type AnyLaneProgram = LaneProgram | BlockProgram;

const programs = new WeakMap<Node, AnyLaneProgram>();

/** The lane program of an outlined node. */
export const laneProgramOf = (node: Node): AnyLaneProgram | null => programs.get(node) ?? null;

/** Larger programs compile slowly and spill registers: a block per problem is the better form. */
const threadScalars = 8000;
/** A state that does not fit registers is only acceptable with a small step. */
const threadStates = 64;
const smallScalars = 3000;
/** One problem whose loop ends by itself takes few steps: above this many scalars, compiling them takes longer than it saves. */
const singleScalars = 2000;
/** One problem with a step of more than `threadScalars` takes the compiler half a minute, which pays only in a loop of at least this many steps. */
const manySteps = 1000;
/** Number of multiplications of a step, zeros included, beyond which unrolling is not tried. */
const maxStepWork = 200_000;

/** Number of multiplications per lane above which a device without blocks multiplies the rows of all lanes by one matrix in its library. */
const libraryProduct = 256;

const frontierOps: ReadonlySet<OpName> = new Set([
  "unary",
  "binary",
  "where",
  "cast",
  "reduce",
  "matmul",
  "concat",
  "pad",
] as const);
const maxOutputNumbers = 64;
/** Ops that a step may apply to its result before it is written. */
const pathOps: ReadonlySet<OpName> = new Set(["unary", "binary", "where", "cast"] as const);

/** One result of a region: how the lanes write it, and how the graph reads it. */
interface RegionOutput {
  node: Node;
  aval: Aval;
  finish(written: Node): Node;
}

/** A region: its nodes, its operands, and its results. */
interface Cut {
  inside: ReadonlySet<Node>;
  outputs: readonly RegionOutput[];
}

class Region {
  readonly source: LaneSource;
  readonly evaluator: LaneEvaluator;
  readonly inputs: Node[] = [];
  readonly #inputOf = new Map<Node, number>();
  readonly outputs: RegionOutput[] = [];
  readonly stores: LaneStore[] = [];
  readonly inside: ReadonlySet<Node>;

  constructor(
    readonly graph: RegionGraph,
    readonly scans: readonly Node<"scan">[],
    prefix: readonly number[],
  ) {
    this.inside = followers(graph.order, scans as readonly Node[]);
    this.source = {
      input: (node) => this.#input(node),
      known: (node, element) => graph.known(node, element),
      fallback: (node) => (this.inside.has(node) || isView(node) ? null : this.#number(node)),
      node: (input) => this.inputs[input],
      isOutlined: (node) => programs.has(node),
    };
    this.evaluator = new LaneEvaluator(prefix, this.source);
  }

  #input(node: Node): number | null {
    const { graph } = this;
    const computed = !graph.params.has(node) && (this.inside.has(node) || graph.isInline(node));
    return computed ? null : this.#number(node);
  }

  #number(node: Node): number {
    let number = this.#inputOf.get(node);
    if (number === undefined) {
      number = this.inputs.push(node) - 1;
      this.#inputOf.set(node, number);
    }
    return number;
  }

  /** The results of the region: values that are used outside of it. */
  collect(): void {
    const { graph, evaluator } = this;
    const scans = new Set<Node>(this.scans as readonly Node[]);
    for (const scan of this.scans) evaluator.instance(scan, evaluator.top);
    // Nodes that lanes can compute after their loops ("final"), or that only rearrange a loop's results ("path").
    const kind = new Map<Node, "path" | "final">();
    for (const node of graph.order) {
      if (!this.inside.has(node) || scans.has(node)) continue;
      const found = this.#classify(node, kind);
      if (found !== null) kind.set(node, found);
    }
    for (const node of graph.order) {
      if (!this.inside.has(node) || scans.has(node)) continue;
      const isPick = isOp(node, "pick") && scans.has(node.inputs[0]);
      if (!kind.has(node) && !isPick) continue;
      const outside = (graph.users.get(node) ?? []).some((user) => !kind.has(user) && !scans.has(user));
      if (outside || graph.results.has(node)) this.#write(node, kind.get(node) ?? null);
    }
    if (this.outputs.length === 0) throw new NotLane("nothing is read");
  }

  #classify(node: Node, kind: ReadonlyMap<Node, "path" | "final">): "path" | "final" | null {
    const { evaluator } = this;
    if (isOp(node, "pick")) {
      const instance = evaluator.top.instances.get(node.inputs[0]);
      if (instance === undefined) return null;
      const { carries, body } = instance.node.attrs;
      const { index } = node.attrs;
      if (index >= carries) return evaluator.leads(body.outputs[index].shape) ? "path" : null;
      return instance.carries[index].mode === "own" ? "final" : null;
    }
    const moves = isOp(node, "permute") || isOp(node, "reshape");
    const kinds = node.inputs.filter((x) => this.inside.has(x)).map((x) => kind.get(x) ?? null);
    if (kinds.length === 0 || kinds.includes(null)) return null;
    if (kinds.includes("path")) return this.#isAlongPath(node, kinds, moves) ? "path" : null;
    if (!(isView(node) || frontierOps.has(node.op)) || !evaluator.leads(node.shape)) return null;
    const own = numel(node.shape) / evaluator.lanes;
    const largest = Math.max(...node.inputs.map((x) => numel(x.shape) / evaluator.lanes));
    if (own > Math.max(4 * largest, 8) || own > 4 * maxOutputNumbers) return null;
    try {
      evaluator.numbers(node, evaluator.prefix.length, evaluator.top);
      return "final";
    } catch (error) {
      if (!(error instanceof NotLane)) throw error;
      return null;
    }
  }

  /** Whether a node only rearranges a loop's results, or changes each of them in the step that computes it. */
  #isAlongPath(node: Node, kinds: readonly unknown[], moves: boolean): boolean {
    if (moves) return kinds.length === 1;
    if (!pathOps.has(node.op) || kinds.some((k) => k !== "path") || this.#scansBehind(node).size !== 1) return false;
    try {
      const elements = this.#alongPath(node);
      // The time of a loop of one step is not a variable that could identify its results.
      // Nor are rows of steps that did not run, which are zero, results of a step.
      if (elements.some(({ loop }) => loop.length === 1 || loop.stop !== null)) return false;
      for (const { place } of elements) this.evaluator.value(node, place, this.evaluator.top);
      return true;
    } catch (error) {
      if (!(error instanceof NotLane)) throw error;
      return false;
    }
  }

  /** The loops whose results a node along a path is made of. */
  #scansBehind(node: Node): Set<Node> {
    const found = new Set<Node>();
    const stack = [node];
    while (stack.length > 0) {
      const at = stack.pop()!;
      if (isOp(at, "pick")) found.add(at.inputs[0]);
      else stack.push(...at.inputs.filter((x) => this.inside.has(x)));
    }
    return found;
  }

  /** The elements of a node along a path: the position of each in the step that computes it. */
  #alongPath(node: Node): { place: Ix[]; loop: LaneLoop; made: () => LaneValue }[] {
    const chain: Node[] = [];
    let base = node;
    while (!isOp(base, "pick")) {
      chain.unshift(base);
      base = base.inputs.find((x) => this.inside.has(x))!;
    }
    const { evaluator } = this;
    const { loop, node: scan, env } = evaluator.top.instances.get(base.inputs[0])!;
    const y = scan.attrs.body.outputs[base.attrs.index];
    return Array.from({ length: numel(y.shape) / evaluator.lanes }, (_, e) => {
      const index = evaluator.elementIndex(y.shape, e);
      const place = chain.reduce((at, view) => forwards(view, at), [loop.time, ...index]);
      const made = (): LaneValue =>
        loop.length === 1 ? evaluator.value(y, index, env) : evaluator.value(node, place, evaluator.top);
      return { loop, place, made };
    });
  }

  #store(output: number, address: Ix, parts: readonly LaneScalar[], loop: LaneLoop | null, once: boolean): void {
    // Rows of steps that do not run are set to zero after the loop of the store, but not after the loops around it.
    for (let outer = loop?.parent ?? null; outer !== null; outer = outer.parent)
      if (outer.stop !== null) throw new NotLane("results of a loop inside one that may stop early");
    parts.forEach((value, k) => {
      this.stores.push({ output, address, part: k as 0 | 1, value, loop, once });
    });
  }

  #output(node: Node, aval: Aval, finish: (written: Node) => Node): number {
    return this.outputs.push({ node, aval, finish }) - 1;
  }

  #write(node: Node, kind: "path" | "final" | null): void {
    const { evaluator } = this;
    const { prefix } = evaluator;
    if (kind === "final") {
      const output = this.#output(node, avalOf(node), (w) => w);
      for (let e = 0; e < numel(node.shape) / evaluator.lanes; e++) {
        const index = evaluator.elementIndex(node.shape, e);
        this.#store(output, linearize(index, node.shape), evaluator.value(node, index, evaluator.top), null, false);
      }
      return;
    }
    if (kind === "path") {
      const output = this.#output(node, avalOf(node), (w) => w);
      for (const { place, loop, made } of this.#alongPath(node))
        this.#store(output, linearize(place, node.shape), made(), loop, false);
      return;
    }
    if (!isOp(node, "pick")) throw new NotLane("a result of a loop outside");
    const instance = evaluator.top.instances.get(node.inputs[0])!;
    const { index } = node.attrs;
    if (index < instance.node.attrs.carries) this.#writeCarry(node, instance, index);
    else this.#writeSums(node, instance, index, prefix);
  }

  /** A carry that all lanes share, or that is a sum over lanes. */
  #writeCarry(node: Node, instance: Instance, c: number): void {
    const { evaluator } = this;
    const place = instance.carries[c];
    const { shape, dtype } = node;
    const parts = place.count / numel(shape.slice(place.laneAxes));
    const numbers = Array.from({ length: place.count }, (_, i) => evaluator.final(instance, place.first + i));
    if (place.mode === "shared") {
      const output = this.#output(node, avalOf(node), (w) => w);
      for (let e = 0; e < place.count / parts; e++)
        this.#store(output, Ix.constant(e), numbers.slice(e * parts, (e + 1) * parts), null, true);
      return;
    }
    const full = [...evaluator.prefix, ...shape.slice(place.laneAxes)];
    const init = instance.node.inputs[instance.node.attrs.consts + c];
    const output = this.#output(node, { shape: full, dtype }, (w) => {
      const total = build.sum(w, axesBetween(place.laneAxes, evaluator.prefix.length));
      return isZero(init) ? total : build.add(total, init);
    });
    for (let e = 0; e < place.count / parts; e++) {
      const address = linearize([...evaluator.lane, ...elementOf(shape.slice(place.laneAxes), e)], full);
      this.#store(output, address, numbers.slice(e * parts, (e + 1) * parts), null, false);
    }
  }

  /** A per-step result without all lane axes: a sum over lanes, or uniform. */
  #writeSums(node: Node, instance: Instance, which: number, prefix: readonly number[]): void {
    const { evaluator } = this;
    const y = instance.node.attrs.body.outputs[which];
    let laneAxes = 0;
    while (laneAxes < prefix.length && y.shape[laneAxes] === prefix[laneAxes]) laneAxes++;
    const parts = node.dtype.startsWith("complex") ? 2 : 1;
    const rest = y.shape.slice(laneAxes);
    const { time, length } = instance.loop;
    let numbers: LaneScalar[];
    try {
      numbers = evaluator.sums.numbers(y, laneAxes, instance.env);
    } catch (error) {
      if (!(error instanceof NotLane)) throw error;
      numbers = evaluator.numbers(y, 0, instance.env);
      const output = this.#output(node, avalOf(node), (w) => w);
      for (let e = 0; e < numel(y.shape); e++) {
        const address = time.times(numel(y.shape)).plus(e);
        this.#store(output, address, numbers.slice(e * parts, (e + 1) * parts), instance.loop, true);
      }
      return;
    }
    const full = [length, ...prefix, ...rest];
    const output = this.#output(node, { shape: full, dtype: node.dtype }, (w) =>
      build.sum(w, axesBetween(1 + laneAxes, 1 + prefix.length)),
    );
    for (let e = 0; e < numel(rest); e++) {
      const address = linearize([time, ...evaluator.lane, ...elementOf(rest, e)], full);
      this.#store(output, address, numbers.slice(e * parts, (e + 1) * parts), instance.loop, false);
    }
  }

  program(options: LaneOptions): LaneProgram {
    if (this.evaluator.lanes <= (options.savingLanes ?? 0)) saveSteps(this.stores, options.localBytes);
    // Operands whose values were all known at compile time are not read.
    const loads = [...liveScalars(this.stores)].filter((s) => s.op === "load");
    const used = [...new Set(loads.map((s) => s.input))].sort((a, b) => a - b);
    for (const s of loads) s.input = used.indexOf(s.input);
    return scheduleProgram(
      {
        prefix: this.evaluator.prefix,
        lanes: this.evaluator.lanes,
        inputs: used.map((i) => this.inputs[i]),
        outputs: this.outputs.map((o) => o.aval),
        stores: this.stores,
        loops: this.evaluator.loops,
      },
      options,
    );
  }
}

const axesBetween = (from: number, to: number): number[] => Array.from({ length: to - from }, (_, i) => from + i);
const elementOf = (shape: readonly number[], e: number): Ix[] => delinearize(Ix.constant(e), shape);
const isZero = (node: Node): boolean => uniformValue(node) === 0;

/** The position in the view of an element of its operand. */
function forwards(view: Node, index: readonly Ix[]): Ix[] {
  if (pathOps.has(view.op)) return [...index];
  if (isOp(view, "permute")) return view.attrs.axes.map((axis) => index[axis]);
  return delinearize(linearize(index, view.inputs[0].shape), view.shape);
}

/** A scan with one thread block per problem. */
function attemptBlock(graph: RegionGraph, scan: Node<"scan">, prefix: readonly number[]) {
  const region = new Region(graph, [scan], prefix);
  return refusals(prefix, () => {
    const built = new BlockBuilder(scan, prefix, region.source).build();
    const tasks = [...built.before, ...built.levels.flat(), ...built.after];
    const scalars = closure(tasks.flatMap((t) => t.values.flat()));
    if (scalars.some((s) => s.op === "state" || s.op === "final" || s.op === "past"))
      throw new NotLane("a loop inside a step of a block");
    const loads = scalars.filter((s) => s.op === "load");
    const used = [...new Set(loads.map((s) => s.input))].sort((a, b) => a - b);
    for (const s of loads) s.input = used.indexOf(s.input);
    const program: BlockProgram = { ...built, inputs: used.map((i) => region.inputs[i]) };
    const picks = (graph.users.get(scan) ?? []).filter((user) => isOp(user, "pick"));
    const outputs = built.outputs.map((aval, i) => ({
      node: picks.find((p) => p.attrs.index === i) ?? scan,
      aval,
      finish: (written: Node): Node => written,
    }));
    // Unused results have no node.
    const cut: Cut = { inside: region.inside, outputs };
    return { cut, program, prefix };
  });
}

/** Runs an attempt; null where it cannot be split into lanes. */
function refusals<T>(prefix: readonly number[], body: () => T): T | null {
  try {
    return body();
  } catch (error) {
    if (error instanceof NotLane || error instanceof RangeError) {
      if (settings.lanes.get() === "why") console.error(`not lanes [${prefix}]: ${error.message}`);
      return null;
    }
    throw error;
  }
}

/** Candidate leading axes for lanes, the most first. */
function prefixes(scan: Node<"scan">): number[][] {
  const { body, consts, carries } = scan.attrs;
  const shapes = body.params.slice(consts, consts + carries).map((p) => p.shape);
  const longest = shapes.reduce((a, b) => (numel(b) > numel(a) ? b : a), []);
  const found: number[][] = [];
  for (let rank = longest.length; rank > 0; rank--) {
    const prefix = longest.slice(0, rank);
    if (shapes.filter((s) => prefix.every((d, i) => s[i] === d)).length > 0) found.push([...prefix]);
  }
  if (numel(longest) <= 128) found.push([]);
  return found;
}

interface Found {
  region: Region;
  cut: Cut;
  program: LaneProgram;
}

function attempt(
  graph: RegionGraph,
  scans: Node<"scan">[],
  prefix: readonly number[],
  options: LaneOptions,
): Found | null {
  return refusals(prefix, () => {
    if (scans.some((scan) => stepWork(scan, numel(prefix)) > maxStepWork)) throw new NotLane("the step is too large");
    if (!options.blocks && scans.some((scan) => sharedProduct(graph, scan) > libraryProduct))
      throw new NotLane("all lanes are multiplied by one large matrix");
    const region = new Region(graph, scans, prefix);
    region.collect();
    const program = region.program(options);
    const isSingle = !options.blocks && numel(prefix) === 1;
    if (isSingle && scans.some(stopsItself) && program.scalars > singleScalars)
      throw new NotLane("one problem with a large step");
    if (isSingle && program.scalars > threadScalars && scans.every(({ attrs }) => attrs.length < manySteps))
      throw new NotLane("one problem with few large steps");
    return { region, cut: region as Cut, program };
  });
}

/** The graph with a region replaced by one node. */
function replace(graph: RegionGraph, region: Cut, program: AnyLaneProgram): GraphFn {
  const map = new Map<Node, Node>(graph.fn.params.map((p) => [p, p]));
  const copy = (node: Node): void => {
    const copied = rebuild(
      node,
      node.inputs.map((x) => map.get(x)!),
    );
    const cached = programs.get(node);
    if (cached !== undefined) programs.set(copied, cached);
    map.set(node, copied);
  };
  for (const node of graph.order) if (!map.has(node) && !region.inside.has(node)) copy(node);
  const inputs = program.inputs.map((x) => map.get(x)!);
  const call = make("scan", inputs, {
    body: {
      params: inputs.map((x) => build.input(x.shape, x.dtype, "operand")),
      outputs: program.outputs.map((o) => build.full([...o.shape], 0, o.dtype)),
    },
    consts: inputs.length,
    carries: 0,
    length: 1,
    reverse: false,
  });
  programs.set(call, program);
  region.outputs.forEach(({ node, aval, finish }, i) => {
    if (node.outputs === null) map.set(node, finish(build.reshape(build.pick(call, i), [...aval.shape])));
  });
  for (const node of graph.order)
    if (!map.has(node) && region.inside.has(node) && node.inputs.every((x) => map.has(x))) copy(node);
  return { params: graph.fn.params, outputs: graph.fn.outputs.map((o) => map.get(o)!) };
}

/** Maximum number of multiplications per lane in matrix products between two loops; larger ones are left to the library. */
const maxProductsBetween = 128;

function productsBetween(region: Region, scan: Node): number {
  const stack = [...scan.inputs];
  const seen = new Set<Node>(region.scans as readonly Node[]);
  let sum = 0;
  while (stack.length > 0) {
    const node = stack.pop()!;
    if (seen.has(node) || !region.inside.has(node)) continue;
    seen.add(node);
    if (node.op === "matmul") sum += (numel(node.shape) / region.evaluator.lanes) * node.inputs[0].shape.at(-1)!;
    stack.push(...node.inputs);
  }
  return sum;
}

/** The function with its lane programs outlined. */
export function outlineLanes(fn: GraphFn, options: RegionOptions): GraphFn {
  if (settings.lanes.get() === "0") return fn;
  if (fn.effects !== undefined) {
    // Effects are kept like results.
    const { params, outputs } = outlineLanes({ params: fn.params, outputs: [...fn.outputs, ...fn.effects] }, options);
    return { params, outputs: outputs.slice(0, fn.outputs.length), effects: outputs.slice(fn.outputs.length) };
  }
  const refused = new Set<string>();
  let current = fn;
  for (;;) {
    const graph = new RegionGraph(current, options.constants ?? new Map());
    const scans = graph.order
      .filter((node) => isOp(node, "scan"))
      .filter((node) => !programs.has(node) && node.inputs.every((x) => numel(x.shape) > 0));
    const start = scans.findIndex((scan) => !refused.has(nameOf(scan, scans)));
    if (start < 0) return current;
    const first = scans[start];
    let found: Found | null = firstOf(prefixes(first), (prefix) => attempt(graph, [first], prefix, options));
    const wanted = settings.laneForm.get() === "block";
    if (options.blocks && (wanted || found === null || isHeavy(found.program))) {
      const blocks = firstOf(prefixes(first), (prefix) => attemptBlock(graph, first, prefix));
      if (blocks !== null) {
        current = replace(graph, blocks.cut, blocks.program);
        continue;
      }
    }
    if (found === null) {
      refused.add(nameOf(first, scans));
      continue;
    }
    const members = [first];
    // Dependents of a loop that could not be joined cannot be joined either.
    const behind = new Set<Node>();
    for (const scan of scans.slice(start + 1)) {
      const region: Region = found.region;
      if (!region.inside.has(scan) || scan.inputs.some((input) => behind.has(input))) continue;
      const isNear: boolean = productsBetween(region, scan) <= maxProductsBetween;
      const more: Found | null = isNear ? attempt(graph, [...members, scan], region.evaluator.prefix, options) : null;
      if (more === null || (options.blocks && isHeavy(more.program))) {
        for (const node of followers(graph.order, [scan])) behind.add(node);
        continue;
      }
      members.push(scan);
      found = more;
    }
    current = replace(graph, found.cut, found.program);
  }
}

const isHeavy = ({ scalars, counts }: LaneProgram): boolean =>
  scalars > threadScalars || (scalars > smallScalars && counts.some((c) => c.states > threadStates));

/** Whether a loop, or one inside it, ends when its state says so. */
const stopsItself = ({ attrs: { body, stop } }: Node<"scan">): boolean =>
  stop !== undefined || functionOrder(body).some((node) => isOp(node, "scan") && stopsItself(node));

/** Arithmetic of one step of one lane before folding. */
function stepWork({ attrs: { body } }: Node<"scan">, lanes: number): number {
  let work = 0;
  for (const node of functionOrder(body)) {
    if (node.outputs !== null || isView(node)) continue;
    const width = isComplex(node.dtype) ? 4 : 1;
    const depth = isOp(node, "matmul") ? node.inputs[0].shape.at(-1)! : 1;
    work += (numel(node.shape) / lanes) * depth * width;
  }
  return work;
}

/** Numbers of the largest matrix of a product that all lanes share. Whose rows it multiplies does not matter: one lane may have all of them. */
function sharedProduct(graph: RegionGraph, scan: Node<"scan">): number {
  const { body, consts } = scan.attrs;
  // Lanes skip the zeros of a matrix that is known.
  const isKnown = (node: Node): boolean => {
    const at = body.params.indexOf(node);
    if (at >= 0) return at < consts && graph.known(scan.inputs[at], 0) !== null;
    return node.inputs.every(isKnown);
  };
  const sizes = functionOrder(body).map((node) => {
    if (!isOp(node, "matmul") || isComplex(node.dtype)) return 0;
    const [rows, matrix] = node.inputs;
    const [depth, columns] = matrix.shape.slice(-2);
    const isShared = numel(matrix.shape) === depth * columns;
    return isShared && !isKnown(rows) && !isKnown(matrix) ? depth * columns : 0;
  });
  return Math.max(0, ...sizes);
}

function firstOf<A, T>(choices: readonly A[], make: (choice: A) => T | null): T | null {
  for (const choice of choices) {
    const made = make(choice);
    if (made !== null) return made;
  }
  return null;
}

/** Scans keep their order and their bodies when the graph around them is rebuilt. */
const bodyNumbers = new WeakMap<object, number>();
let lastBody = 0;
function nameOf(scan: Node<"scan">, scans: readonly Node<"scan">[]): string {
  const { body } = scan.attrs;
  let number = bodyNumbers.get(body);
  if (number === undefined) {
    number = ++lastBody;
    bodyNumbers.set(body, number);
  }
  return `${number}.${scans.filter((s) => s.attrs.body === body).indexOf(scan)}`;
}

/** lanes_<lanes>x<steps of its longest loop>, with the number of loops where there are several; blocks_ likewise. */
export function laneName(program: AnyLaneProgram): string {
  if (program.form === "block") return `blocks_${program.lanes}x${program.loop.length}`;
  const steps = Math.max(...program.counts.map((c) => c.length));
  return `lanes_${program.lanes}x${steps}${program.counts.length > 1 ? `x${program.counts.length}` : ""}`;
}

/** Avals of the operands and results of a lane program. */
export const laneAvals = (node: Node): readonly Aval[] => [...node.inputs.map(avalOf), ...outputAvals(node)];
