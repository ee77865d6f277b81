// Graph nodes: immutable operations on immutable inputs. A node may in addition hold its value, once it was computed.
import type { DType } from "./dtype.js";
import { InternalError } from "./errors.js";
import { checkExtent } from "./limits.js";
import type { OpAttrs, OpName } from "./op.js";
import { type Shape, showShape } from "./shape.js";

/** What is known of a value before it is computed. */
export interface Aval {
  readonly shape: Shape;
  readonly dtype: DType;
}

/** What the runtime hangs on a computed node. */
export interface NodeValue {
  /** A node that will read the value was made; throws where the value is no longer there to be read. */
  addReader(): void;
}

let lastId = 0;

/** A name that the user gave to a part of the program, and whether a node there belongs to its gradient. */
export interface Scope {
  readonly name: string;
  readonly backward: boolean;
}

let currentScope: Scope | null = null;

/** Nodes that are made while `body` runs belong to the scope. */
export function inScope<T>(scope: Scope | null, body: () => T): T {
  const before = currentScope;
  currentScope = scope;
  try {
    return body();
  } finally {
    currentScope = before;
  }
}

export const scopeNow = (): Scope | null => currentScope;

export class Node<K extends OpName = OpName> {
  readonly id = ++lastId;
  op: K;
  inputs: readonly Node[];
  attrs: OpAttrs[K];
  readonly shape: Shape;
  readonly dtype: DType;
  /** Set for ops with several results; then shape and dtype are those of the first one. */
  outputs: readonly Aval[] | null;
  /** Longest chain of uncomputed nodes below this one: bounds how much work may be pending. */
  depth: number;
  /** The buffer with this node's value, owned by the runtime; null until computed. */
  value: NodeValue | null = null;
  /** The part of the user's program that this node belongs to; sharding rules go by it. */
  scope: Scope | null = currentScope;
  /** Where the user's program made this node; kept only when memory reports or errors need it. */
  site: string | null = null;

  constructor(op: K, inputs: readonly Node[], attrs: OpAttrs[K], avals: Aval | readonly Aval[]) {
    this.op = op;
    this.inputs = inputs;
    this.attrs = attrs;
    const many = Array.isArray(avals);
    const first = (many ? avals[0] : avals) as Aval;
    // The one place where every tensor passes, whether a program made it or a message named it.
    if (many) for (const aval of avals as readonly Aval[]) checkExtent(aval.shape);
    else checkExtent(first.shape);
    this.shape = first.shape;
    this.dtype = first.dtype;
    this.outputs = many ? (avals as readonly Aval[]) : null;
    let depth = 0;
    for (const input of inputs) {
      if (input.value !== null) input.value.addReader();
      else if (input.depth > depth) depth = input.depth;
    }
    this.depth = depth + 1;
  }
}

/** Narrows a node to one op. */
export const isOp = <K extends OpName>(node: Node, op: K): node is Node<K> => (node.op as OpName) === op;

/** A closed function: every leaf is a parameter, a constant or an iota. */
export interface GraphFn {
  readonly params: readonly Node[];
  readonly outputs: readonly Node[];
  /** Collectives that must run though nothing here reads them: other devices wait in them. */
  readonly effects?: readonly Node[];
}

/**
 * All nodes that the outputs need, inputs before users. Iterative: graphs may be deeper than the stack.
 * `leaf` stops the walk at a node (it is still listed).
 */
export function topological(outputs: readonly Node[], leaf?: (node: Node) => boolean): Node[] {
  const order: Node[] = [];
  const done = new Set<Node>();
  // Two stacks instead of one of pairs: every pass over a graph starts here.
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
        stack.length = next.length = top;
      }
    }
  }
  return order;
}

/**
 * The nodes of a function, inputs before users; parameters are leaves even where they were computed from something.
 * Collectives come in their sequence, each right after what it needs: devices that keep this order stay in step.
 */
export function functionOrder(fn: GraphFn): Node[] {
  const params = new Set(fn.params);
  const isParam = (node: Node): boolean => params.has(node);
  const order = topological([...fn.outputs, ...(fn.effects ?? [])], isParam);
  const collectives = order.filter((node): node is Node<"collective"> => isOp(node, "collective"));
  if (collectives.length === 0) return order;
  collectives.sort((a, b) => a.attrs.sequence - b.attrs.sequence);
  return topological([...(collectives as unknown as Node[]), ...fn.outputs], isParam);
}

export const avalOf = (node: Node): Aval => ({ shape: node.shape, dtype: node.dtype });
export const showAval = (aval: Aval): string => `${aval.dtype}${showShape(aval.shape)}`;

export function outputAvals(node: Node): readonly Aval[] {
  return node.outputs ?? [avalOf(node)];
}

export function requireSingle(node: Node): void {
  if (node.outputs !== null) throw new InternalError(`${node.op} has ${node.outputs.length} results; pick one`);
}
