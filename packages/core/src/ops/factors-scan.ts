// Factors of a loop: dimensions of operands and results that keep their identity through the step, so that each device can run
// the whole loop on its shard. Sums over a split dimension may stay partial in carries that only accumulate them, such as
// gradients of shared parameters.
import { functionOrder, type GraphFn, isOp, type Node, type OpName, outputAvals } from "../graph/index.js";
import * as b from "./build.js";
import {
  type Factor,
  type FactorRange,
  type FactorRule,
  type Factors,
  type LocalContext,
  partOf,
  zeroed,
} from "./factors.js";
import { isLinear } from "./linear.js";

type FactorsOf = (node: Node) => Factors;
type LocalNode = (context: LocalContext<OpName>) => Node;

const gcd = (x: number, y: number): number => (y === 0 ? x : gcd(y, x % y));

/** Equivalence classes of dimensions that are split together. */
class Classes {
  readonly #parent: number[] = [];
  readonly #sizes: number[] = [];
  readonly #blocked: boolean[] = [];
  readonly #dims = new Map<Node, number[][]>();

  add(size: number): number {
    this.#sizes.push(size);
    this.#blocked.push(false);
    return this.#parent.push(this.#parent.length) - 1;
  }

  dim(node: Node, index: number, axis: number): number {
    let found = this.#dims.get(node);
    if (found === undefined) {
      found = outputAvals(node).map(({ shape }) => shape.map((size) => this.add(size)));
      this.#dims.set(node, found);
    }
    return found[index][axis];
  }

  find(element: number): number {
    let root = element;
    while (this.#parent[root] !== root) root = this.#parent[root];
    this.#parent[element] = root;
    return root;
  }

  join(one: number, other: number): void {
    const a = this.find(one);
    const c = this.find(other);
    if (a === c) return;
    this.#parent[c] = a;
    this.#sizes[a] = gcd(this.#sizes[a], this.#sizes[c]);
    this.#blocked[a] ||= this.#blocked[c];
  }

  block(element: number): void {
    this.#blocked[this.find(element)] = true;
  }

  isBlocked(element: number): boolean {
    return this.#blocked[this.find(element)];
  }

  /** Size of the factor: every dimension of the class is a multiple of it. */
  size(element: number): number {
    return this.#sizes[this.find(element)];
  }
}

const sourceOf = (node: Node): { node: Node; index: number } =>
  isOp(node, "pick") ? { node: node.inputs[0], index: node.attrs.index } : { node, index: 0 };

interface Analysis {
  factors: Factors;
  /** The factor of the scan that a factor of a body node belongs to, or -1. */
  factorAt: (node: Node, factor: number) => number;
  dimAt: (node: Node, index: number, axis: number) => number;
  /** Carries that hold partial sums, by factor. */
  partialCarries: boolean[][];
  order: Node[];
}

/** Classes of the dimensions of the body, and the factors of each node as members of them. */
export function classify(
  body: GraphFn,
  carries: number,
  consts: number,
  factorsOf: FactorsOf,
  isFree: (node: Node) => boolean = () => false,
) {
  const classes = new Classes();
  const elements = new Map<Node, number[]>();
  const params = new Set(body.params);
  const order = functionOrder(body);
  const dimsOf = (node: Node): number[] => {
    const source = sourceOf(node);
    return node.shape.map((_, axis) => classes.dim(source.node, source.index, axis));
  };
  for (const node of order) {
    if (params.has(node) || node.op === "pick") continue;
    const rule = factorsOf(node);
    const own = rule.factors.map((factor) => classes.add(factor.size));
    elements.set(node, own);
    const link = (element: number, map: Factors["inputs"][0][0]): void => {
      if (map === null) classes.block(element);
      else classes.join(own[map.factor], element);
      // Windows shift boundaries, which a loop cannot track from step to step.
      if (map !== null && map.kind !== "scaled") classes.block(element);
    };
    node.inputs.forEach((input, i) => {
      if (isFree(input)) return;
      dimsOf(input).forEach((element, axis) => {
        link(element, rule.inputs[i][axis]);
      });
    });
    outputAvals(node).forEach((aval, i) => {
      aval.shape.forEach((_, axis) => {
        link(classes.dim(node, i, axis), rule.outputs[i][axis]);
      });
    });
  }
  for (let i = 0; i < carries; i++) {
    const before = dimsOf(body.params[consts + i]);
    dimsOf(body.outputs[i]).forEach((element, axis) => {
      classes.join(before[axis], element);
    });
  }
  return { classes, elements, order, params, dimsOf };
}

type Classified = ReturnType<typeof classify>;

/** Results of the body that are partial sums if a class is split; null if a partial sum would be read. */
function pendingSums(
  body: GraphFn,
  carries: number,
  consts: number,
  root: number,
  { classes, elements, order, params }: Classified,
  factorsOf: FactorsOf,
): boolean[] | null {
  const carried = new Array<boolean>(carries).fill(false);
  for (;;) {
    const pending = new Set<string>();
    // Decided after the carries with partial sums are known: adding to one of them is allowed.
    let fits = true;
    const key = (node: Node): string => {
      const source = sourceOf(node);
      return `${source.node.id}:${source.index}`;
    };
    carried.forEach((is, i) => {
      if (is) pending.add(`${body.params[consts + i].id}:0`);
    });
    for (const node of order) {
      if (params.has(node) || node.op === "pick") continue;
      const rule = factorsOf(node);
      const own = elements.get(node)!;
      const touches = own.map((element) => classes.find(element) === root);
      const parts = node.inputs.map((input) => pending.has(key(input)));
      if (parts.some(Boolean)) {
        if (touches.some(Boolean) || !isLinear(node, parts, "sum")) fits = false;
        pending.add(`${node.id}:0`);
      }
      rule.factors.forEach((factor, f) => {
        if (!touches[f] || factor.reduce === null) return;
        outputAvals(node).forEach((_, i) => {
          if (factor.partial[i]) pending.add(`${node.id}:${i}`);
        });
      });
      if (rule.factors.some((factor, f) => touches[f] && factor.reduce !== null && factor.reduce !== "sum"))
        return null;
    }
    const results = body.outputs.map((output) => pending.has(key(output)));
    const grown = carried.findIndex((is, i) => !is && results[i]);
    if (grown < 0) return fits && carried.every((is, i) => is === results[i]) ? results : null;
    carried[grown] = true;
  }
}

/** Whether a node has the class twice (a matrix and its transpose): one mesh axis cannot split both dimensions. */
function meetsItself(root: number, { classes, elements }: Classified): boolean {
  for (const own of elements.values())
    if (own.filter((element) => classes.find(element) === root).length > 1) return true;
  return false;
}

function analyze(node: Node<"scan">, factorsOf: FactorsOf): Analysis {
  const { body, consts, carries } = node.attrs;
  const classified = classify(body, carries, consts, factorsOf);
  const { classes, elements, order, dimsOf } = classified;
  const factors: Factor[] = [];
  const partialCarries: boolean[][] = [];
  const numbers = new Map<number, number>();
  const factorOf = (element: number): number => {
    const root = classes.find(element);
    const found = numbers.get(root);
    if (found !== undefined) return found;
    let number = -1;
    if (!classes.isBlocked(root) && classes.size(root) > 1 && !meetsItself(root, classified)) {
      const partial = pendingSums(body, carries, consts, root, classified, factorsOf);
      if (partial !== null) {
        number = factors.length;
        factors.push({ size: classes.size(root), reduce: partial.some(Boolean) ? "sum" : null, partial });
        partialCarries.push(partial.slice(0, carries));
      }
    }
    numbers.set(root, number);
    return number;
  };
  const mapsOf = (dims: readonly number[], shape: readonly number[]): Factors["inputs"][0] =>
    dims.map((element, axis) => {
      const factor = factorOf(element);
      return factor < 0 ? null : { kind: "scaled", factor, scale: shape[axis] / factors[factor].size };
    });
  const stacked = consts + carries;
  const inputs = body.params.map((param, i) => [
    ...(i >= stacked ? [null] : []),
    ...mapsOf(dimsOf(param), param.shape),
  ]);
  const outputs = body.outputs.map((output, i) => [
    ...(i >= carries ? [null] : []),
    ...mapsOf(dimsOf(output), output.shape),
  ]);
  return {
    factors: { factors, inputs, outputs },
    factorAt: (inner, factor) => numbers.get(classes.find(elements.get(inner)![factor])) ?? -1,
    dimAt: (inner, index, axis) => numbers.get(classes.find(classes.dim(inner, index, axis))) ?? -1,
    partialCarries,
    order,
  };
}

/** The body on one device: every node on the shards of its factors. */
function localBody(context: LocalContext<"scan">, analysis: Analysis, factorsOf: FactorsOf, local: LocalNode): GraphFn {
  const { node, parts, first, isSplit } = context;
  const { body } = node.attrs;
  const { factors } = analysis.factors;
  const scaled = (factor: number, size: number): FactorRange => {
    if (factor < 0) return { start: 0, stop: size };
    const scale = size / factors[factor].size;
    return { start: parts[factor].start * scale, stop: parts[factor].stop * scale };
  };
  const map = new Map<Node, Node>();
  const params = body.params.map((param) => {
    const shape = param.shape.map((size, axis) => {
      const part = scaled(analysis.dimAt(param, 0, axis), size);
      return part.stop - part.start;
    });
    const made = b.input(shape, param.dtype);
    map.set(param, made);
    return made;
  });
  for (const inner of analysis.order) {
    if (map.has(inner)) continue;
    const inputs = inner.inputs.map((input) => map.get(input)!);
    if (isOp(inner, "pick")) {
      map.set(inner, b.pick(inputs[0], inner.attrs.index));
      continue;
    }
    const rule = factorsOf(inner);
    const numbers = rule.factors.map((_, f) => analysis.factorAt(inner, f));
    const own = rule.factors.map((factor, f) => scaled(numbers[f], factor.size));
    map.set(
      inner,
      local({
        node: inner,
        inputs,
        parts: own,
        first: numbers.map((f) => f < 0 || first[f]),
        isSplit: numbers.map((f) => f >= 0 && isSplit[f]),
        starts: inner.inputs.map((input, i) =>
          input.shape.map((size, axis) => partOf(rule.inputs[i][axis], size, own, rule.factors).start),
        ),
        shapes: outputAvals(inner).map((aval, i) =>
          aval.shape.map((size, axis) => {
            const part = partOf(rule.outputs[i][axis], size, own, rule.factors);
            return part.stop - part.start;
          }),
        ),
      }),
    );
  }
  return { params, outputs: body.outputs.map((output) => map.get(output)!) };
}

/** The factor of the loop that a dimension of a body node belongs to, or -1. */
export type BodyDimensions = (inner: Node, index: number, axis: number) => number;

/** The rules of the other ops are a parameter because they depend on this one. */
export function scanRule(
  factorsOf: FactorsOf,
  local: LocalNode,
): FactorRule<"scan"> & { dimensions(node: Node<"scan">): BodyDimensions } {
  const cache = new WeakMap<Node, Analysis>();
  const analysisOf = (node: Node<"scan">): Analysis => {
    let found = cache.get(node);
    if (found === undefined) {
      found = analyze(node, factorsOf);
      cache.set(node, found);
    }
    return found;
  };
  return {
    factors: (node) => analysisOf(node).factors,
    dimensions: (node) => analysisOf(node).dimAt,
    local: (context) => {
      const { node, inputs, first, isSplit } = context;
      const analysis = analysisOf(node);
      const body = localBody(context, analysis, factorsOf, local);
      // The initial value of a sum counts once.
      const begins = inputs.map((input, i) => {
        const carry = i - node.attrs.consts;
        const again = analysis.partialCarries.some((partial, f) => isSplit[f] && partial[carry] && !first[f]);
        return again ? zeroed(input) : input;
      });
      return b.make("scan", begins, { ...node.attrs, body });
    },
  };
}
