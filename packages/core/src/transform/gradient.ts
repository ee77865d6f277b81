// Reverse and forward mode, graph to graph. Forward mode transposes each node twice: its reverse rule is linear in the cotangents,
// and the transpose of that is the tangent map, so one table of rules serves both.
import {
  InternalError,
  inScope,
  isInexact,
  isOp,
  type Node,
  type OpName,
  outputAvals,
  type Scope,
  topological,
} from "../graph/index.js";
import { build, transposing, type VjpRule, vjpRules } from "../ops/index.js";
import { scanJvp, scanVjp } from "./scan.js";
import { dependents } from "./walk.js";

const { add, zerosLike } = build;

type AnyRule = VjpRule<OpName>;

function customVjp(node: Node<"custom">, g: readonly (Node | null)[]): (Node | null)[] {
  const outputs = build.picks(node);
  const cotangents = outputs.map((output, i) => g[i] ?? zerosLike(output));
  return node.attrs.rule.backward([...node.inputs], outputs, cotangents);
}

function inputCotangents(node: Node, g: readonly (Node | null)[], needs: boolean[]): (Node | null)[] {
  if (isOp(node, "scan")) return scanVjp(node, g, needs, backward);
  if (isOp(node, "custom")) return customVjp(node, g);
  const rule = vjpRules[node.op as keyof typeof vjpRules] as AnyRule | undefined;
  if (rule === undefined) throw new InternalError(`no gradient rule for ${node.op}`);
  return rule(node, g, needs);
}

const backwardScopes = new WeakMap<Scope, Scope>();

/** The gradient scope of a scope. */
function backwardOf(scope: Scope | null): Scope | null {
  if (scope === null || scope.backward) return scope;
  let found = backwardScopes.get(scope);
  if (found === undefined) {
    found = { name: scope.name, backward: true };
    backwardScopes.set(scope, found);
  }
  return found;
}

/**
 * Gradients of `outputs` (weighted by `cotangents`) with respect to the nodes `wrt`; null if there is no dependence. The walk
 * stops at `wrt` and at `leaves`.
 */
export function backward(
  outputs: readonly Node[],
  cotangents: readonly (Node | null)[],
  wrt: readonly Node[],
  leaves: ReadonlySet<Node> = new Set(),
): (Node | null)[] {
  const targets = new Set(wrt);
  const order = topological(outputs, (node) => targets.has(node) || leaves.has(node));
  const active = dependents(order, wrt);
  const grads = new Map<Node, (Node | null)[]>();
  const accumulate = (node: Node, index: number, g: Node): void => {
    let slots = grads.get(node);
    if (slots === undefined) {
      slots = outputAvals(node).map(() => null);
      grads.set(node, slots);
    }
    const before = slots[index];
    slots[index] = before === null ? g : add(before, g);
  };
  outputs.forEach((output, i) => {
    const g = cotangents[i];
    if (g !== null && active.has(output)) accumulate(output, 0, g);
  });
  for (let i = order.length - 1; i >= 0; i--) {
    const node = order[i];
    const g = grads.get(node);
    if (g === undefined || targets.has(node)) continue;
    grads.delete(node);
    if (isOp(node, "pick")) {
      accumulate(node.inputs[0], node.attrs.index, g[0]!);
      continue;
    }
    const needs = node.inputs.map((input) => active.has(input) && (isInexact(input.dtype) || input.outputs !== null));
    if (!needs.some(Boolean)) continue;
    const inputs = inScope(backwardOf(node.scope), () => inputCotangents(node, g, needs));
    inputs.forEach((cotangent, k) => {
      if (cotangent !== null && cotangent !== undefined && needs[k]) accumulate(node.inputs[k], 0, cotangent);
    });
  }
  return wrt.map((node) => grads.get(node)?.[0] ?? null);
}

/**
 * The tangents of a node's results: the transpose of its reverse rule, applied to the tangents of its operands. Of several results only
 * those in `used` get one: rules of decompositions depend on which results a function uses.
 */
function nodeTangents(
  node: Node,
  tangents: readonly (Node | null)[],
  used: ReadonlySet<number> | undefined,
): (Node | null)[] {
  const seeds = outputAvals(node).map(({ shape, dtype }, i) =>
    isInexact(dtype) && (used?.has(i) ?? true) ? build.input(shape, dtype, "cotangent") : null,
  );
  const needs = tangents.map((tangent) => tangent !== null);
  const grads = transposing(() => inputCotangents(node, seeds, needs));
  const reached = node.inputs.flatMap((_, i) => {
    const [g, tangent] = [grads[i], tangents[i]];
    return g === null || g === undefined || tangent === null ? [] : [{ g, tangent }];
  });
  const given = seeds.filter((seed) => seed !== null);
  const found = backward(
    reached.map(({ g }) => g),
    reached.map(({ tangent }) => tangent),
    given,
    new Set([node, ...node.inputs]),
  );
  return seeds.map((seed) => (seed === null ? null : found[given.indexOf(seed)]));
}

/** Directional derivative of `outputs` along `tangents` of `wrt` (null: zero). */
export function forward(outputs: readonly Node[], wrt: readonly Node[], tangents: readonly Node[]): (Node | null)[] {
  const found = new Map<Node, (Node | null)[]>(wrt.map((node, i) => [node, [tangents[i]]]));
  const tangentOf = (node: Node): Node | null => found.get(node)?.[0] ?? null;
  const order = topological(outputs, (at) => found.has(at));
  const used = new Map<Node, Set<number>>();
  for (const node of order)
    if (isOp(node, "pick"))
      used.set(node.inputs[0], (used.get(node.inputs[0]) ?? new Set<number>()).add(node.attrs.index));
  for (const node of order) {
    if (found.has(node)) continue;
    if (isOp(node, "pick")) {
      found.set(node, [found.get(node.inputs[0])?.[node.attrs.index] ?? null]);
      continue;
    }
    const given = node.inputs.map(tangentOf);
    if (given.every((tangent) => tangent === null)) continue;
    found.set(
      node,
      inScope(node.scope, () =>
        isOp(node, "scan") ? scanJvp(node, given, forward) : nodeTangents(node, given, used.get(node)),
      ),
    );
  }
  return outputs.map(tangentOf);
}
