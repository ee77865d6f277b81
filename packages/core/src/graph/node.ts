// Graph nodes: an operation, its inputs and its attributes. The fields are readonly: only this file writes to a node.
// The value that a node stands for never changes. Three functions here change how a node represents it: `attachValue` and
// `makeLeaf`, for the runtime once the node is computed, and `amend`, for transforms that must keep the node's users.
import type { DType } from "./dtype.js";
import { checkExtent } from "./limits.js";
import type { OpAttrs, OpName } from "./op.js";
import { type Shape, showShape } from "./shape.js";

/** Abstract value: shape and dtype of a result. */
export interface Aval {
  readonly shape: Shape;
  readonly dtype: DType;
}

/** The computed value of a node; the runtime owns it. */
export interface NodeValue {
  /** Registers a node that will read the value. Throws if the value was released. */
  addReader(): void;
  /** A node that was registered is computed. */
  readerDone(): void;
}

let lastId = 0;

/** A part of the program that the user named, and whether the node belongs to the gradient of that part. */
export interface Scope {
  readonly name: string;
  readonly backward: boolean;
}

let currentScope: Scope | null = null;

/** Runs `body`; the nodes that it builds belong to the scope. */
export function inScope<T>(scope: Scope | null, body: () => T): T {
  const before = currentScope;
  currentScope = scope;
  try {
    return body();
  } finally {
    currentScope = before;
  }
}

/** The scope that new nodes belong to. */
export const currentNodeScope = (): Scope | null => currentScope;

/** One operation of the graph. */
export class Node<out K extends OpName = OpName> {
  readonly id = ++lastId;
  readonly op: K;
  readonly inputs: readonly Node[];
  readonly attrs: OpAttrs[K];
  readonly shape: Shape;
  readonly dtype: DType;
  /** All results of an op with several; shape and dtype are then those of the first one. */
  readonly outputs: readonly Aval[] | null;
  /** Length of the longest chain of uncomputed nodes that ends here, when the node was built. Bounds the pending work. */
  readonly depth: number;
  /** The computed value; null until the runtime attaches it. */
  readonly value: NodeValue | null = null;
  /** Uncomputed nodes that read this one, until it has a value: that counts them from then on. */
  readonly readers: number = 0;
  /** The part of the user's program that this node belongs to. Sharding rules match it. */
  readonly scope: Scope | null = currentScope;

  constructor(op: K, inputs: readonly Node[], attrs: OpAttrs[K], avals: Aval | readonly Aval[]) {
    this.op = op;
    this.inputs = inputs;
    this.attrs = attrs;
    const many = Array.isArray(avals);
    const first = (many ? avals[0] : avals) as Aval;
    // Checked here because every node passes, built by a program or decoded from a message.
    if (many) for (const aval of avals as readonly Aval[]) checkExtent(aval.shape);
    else checkExtent(first.shape);
    this.shape = first.shape;
    this.dtype = first.dtype;
    this.outputs = many ? (avals as readonly Aval[]) : null;
    let depth = 0;
    for (const input of inputs) {
      if (input.value !== null) input.value.addReader();
      else {
        (input as Writable<Node>).readers++;
        if (input.depth > depth) depth = input.depth;
      }
    }
    this.depth = depth + 1;
  }
}

type Writable<T> = { -readonly [P in keyof T]: T[P] };

/** Runtime only: stores the computed value of a node, which the nodes that wait for this one will read. */
export function attachValue(node: Node, value: NodeValue): void {
  for (let i = 0; i < node.readers; i++) value.addReader();
  (node as Writable<Node>).value = value;
}

/** Runtime only: turns a computed node into a `data` leaf, which reads its inputs no more. */
export function makeLeaf(node: Node): void {
  for (const input of node.inputs)
    if (input.value !== null) input.value.readerDone();
    else (input as Writable<Node>).readers--;
  const leaf = node as Writable<Node>;
  leaf.inputs = [];
  leaf.op = "data";
  leaf.attrs = { shape: node.shape, dtype: node.dtype };
}

/**
 * Replaces the attributes of a node whose users must keep it: to number collectives, and to add results to a loop that a
 * gradient shares with its value. The results that the node already has must stay the same.
 */
export function amend<K extends OpName>(node: Node<K>, attrs: OpAttrs[K], outputs = node.outputs): void {
  const amended = node as Writable<Node<K>>;
  amended.attrs = attrs;
  amended.outputs = outputs;
}

const sites = new WeakMap<Node, string>();

/** The line of the user's program that built a node; null unless the runtime records sites. */
export const siteOf = (node: Node): string | null => sites.get(node) ?? null;

/** Records the line that built a node. The first record stays. */
export function recordSite(node: Node, site: string | null): void {
  if (site !== null && !sites.has(node)) sites.set(node, site);
}

/** Narrows a node to one op. */
export const isOp = <K extends OpName>(node: Node, op: K): node is Node<K> => node.op === op;

/** A closed function: every leaf is a parameter, a constant or an iota. */
export interface GraphFn {
  readonly params: readonly Node[];
  readonly outputs: readonly Node[];
  /** Collectives whose results are unused but that must run, because other devices wait in them. */
  readonly effects?: readonly Node[];
}

/**
 * All nodes that the outputs depend on, inputs before users. Iterative, because graphs may be deeper than the stack.
 * The walk lists a node for which `leaf` is true, and stops there.
 */
export function topological(outputs: readonly Node[], leaf?: (node: Node) => boolean): Node[] {
  const order: Node[] = [];
  const done = new Set<Node>();
  // Two stacks instead of one stack of pairs: this walk is on the hot path of every pass.
  const stack: Node[] = [];
  const next: number[] = [];
  const enter = (node: Node): void => {
    done.add(node);
    if (node.inputs.length === 0 || leaf?.(node)) order.push(node);
    else {
      stack.push(node);
      next.push(0);
    }
  };
  for (const output of outputs) {
    if (!done.has(output)) enter(output);
    while (stack.length > 0) {
      const top = stack.length - 1;
      const { inputs } = stack[top];
      let i = next[top];
      while (i < inputs.length && done.has(inputs[i])) i++;
      next[top] = i + 1;
      if (i < inputs.length) enter(inputs[i]);
      else {
        order.push(stack[top]);
        stack.pop();
        next.pop();
      }
    }
  }
  return order;
}

/**
 * The nodes of a function, inputs before users. Parameters are leaves even if they have inputs. Collectives are listed in
 * ascending sequence, each right after its dependencies, so that all devices run them in the same order.
 */
export function functionOrder(fn: GraphFn): Node[] {
  const params = new Set(fn.params);
  const isParam = (node: Node): boolean => params.has(node);
  const roots = [...fn.outputs, ...(fn.effects ?? [])];
  const order = topological(roots, isParam);
  const collectives = order.filter((node): node is Node<"collective"> => isOp(node, "collective"));
  if (collectives.length === 0) return order;
  collectives.sort((a, b) => a.attrs.sequence - b.attrs.sequence);
  return topological([...collectives, ...roots], isParam);
}

export const avalOf = (node: Node): Aval => ({ shape: node.shape, dtype: node.dtype });
export const showAval = (aval: Aval): string => `${aval.dtype}${showShape(aval.shape)}`;

export function outputAvals(node: Node): readonly Aval[] {
  return node.outputs ?? [avalOf(node)];
}
