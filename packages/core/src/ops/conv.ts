// Rules of the op conv: gradient, vmap, sharding. A convolution is linear in each operand, and the three kinds are each other's
// transposes, so that gradients of any order stay among them.
import { type ConvKind, type Node, type OpAttrs, range, type Shape } from "../graph/index.js";
import { type BatchContext, withBatch } from "./batch-operand.js";
import { conj, conv, moveAxis, reshape } from "./build.js";
import type { DimMap, Factor, FactorRule, Factors, LocalContext } from "./factors.js";

/** The tensors of the trilinear form, and those that each kind takes and gives. */
type Role = "x" | "w" | "y";
const roles: Record<ConvKind, { operands: readonly [Role, Role]; result: Role }> = {
  forward: { operands: ["x", "w"], result: "y" },
  input: { operands: ["y", "w"], result: "x" },
  weight: { operands: ["x", "y"], result: "w" },
};
const kindOf: Record<Role, ConvKind> = { y: "forward", x: "input", w: "weight" };

const spatialOf = (shape: Shape, channelsLast: boolean): Shape => (channelsLast ? shape.slice(1, -1) : shape.slice(2));

/** The nodes of x, w and y: operands, and the result or a cotangent of it. */
export function convRoles(node: Node<"conv">, result: Node = node): Record<Role, Node> {
  const { operands, result: role } = roles[node.attrs.kind];
  return { [operands[0]]: node.inputs[0], [operands[1]]: node.inputs[1], [role]: result } as Record<Role, Node>;
}

/** The convolution that computes one of the three tensors from the other two. */
function solveFor(role: Role, tensors: Record<Role, Node>, attrs: OpAttrs["conv"]): Node {
  const kind = kindOf[role];
  const [a, b] = roles[kind].operands.map((name) => tensors[name]);
  return conv([a, b], { ...attrs, kind, size: spatialOf(tensors[role].shape, attrs.channelsLast) });
}

export function convVjp(node: Node<"conv">, g: Node, needs: readonly boolean[]): (Node | null)[] {
  const tensors = convRoles(node, g);
  return roles[node.attrs.kind].operands.map((role, i) => {
    if (!needs[i]) return null;
    const other = roles[node.attrs.kind].operands[1 - i];
    return solveFor(role, { ...tensors, [other]: conj(tensors[other]) }, node.attrs);
  });
}

/** Position of the dimension of a tensor that batch examples are merged into. */
const channelAxis = (role: Role, attrs: OpAttrs["conv"], rank: number): number =>
  role === "w" ? 0 : attrs.channelsLast ? rank - 1 : 1;

/** With shared weights, examples join the batch; otherwise each example is its own set of groups. */
export function convBatch({ node, inputs, size }: BatchContext<"conv">): Node {
  const { attrs } = node;
  const { operands, result } = roles[attrs.kind];
  const rank = node.shape.length;
  if (result !== "w" && !inputs[1].batched) {
    const [x, w] = inputs;
    const { shape } = x.node;
    const whole = conv([reshape(x.node, [size * shape[1], ...shape.slice(2)]), w.node], attrs);
    return reshape(whole, [size, shape[1], ...whole.shape.slice(1)]);
  }
  const merged = inputs.map((input, i) => {
    const axis = channelAxis(operands[i], attrs, rank);
    const moved = moveAxis(withBatch(input, size), 0, axis);
    const { shape } = moved;
    return reshape(moved, [...shape.slice(0, axis), size * shape[axis + 1], ...shape.slice(axis + 2)]);
  });
  const whole = conv([merged[0], merged[1]], { ...attrs, groups: attrs.groups * size });
  const axis = channelAxis(result, attrs, rank);
  const { shape } = whole;
  const split = reshape(whole, [...shape.slice(0, axis), size, shape[axis] / size, ...shape.slice(axis + 1)]);
  return moveAxis(split, axis, 0);
}

const independent = (size: number): Factor => ({ size, reduce: null, partial: [] });
const at = (factor: number, scale = 1): DimMap => ({ kind: "scaled", factor, scale });

/** Batch, input and output channels are factors; with groups, whole groups are split. Spatial axes are replicated. */
function factors(node: Node<"conv">): Factors {
  const { attrs } = node;
  const { x, w } = convRoles(node);
  const { operands, result } = roles[attrs.kind];
  const rank = node.shape.length;
  const inner = attrs.channelsLast ? rank - 1 : 1;
  const isGrouped = attrs.groups > 1;
  const sizes = isGrouped ? [x.shape[0], attrs.groups] : [x.shape[0], x.shape[inner], w.shape[0]];
  const [perGroup, outPerGroup] = [w.shape[inner], w.shape[0] / attrs.groups];
  const dims: Record<Role, [DimMap | null, DimMap | null]> = isGrouped
    ? { x: [at(0), at(1, perGroup)], w: [at(1, outPerGroup), null], y: [at(0), at(1, outPerGroup)] }
    : { x: [at(0), at(1)], w: [at(2), at(1)], y: [at(0), at(2)] };
  const all = (role: Role): (DimMap | null)[] =>
    range(rank).map((i) => (i === 0 ? dims[role][0] : i === inner ? dims[role][1] : null));
  const inResult = new Set(all(result).flatMap((map) => (map === null ? [] : [map.factor])));
  return {
    factors: sizes.map((size, i) => (inResult.has(i) ? independent(size) : { size, reduce: "sum", partial: [true] })),
    inputs: operands.map(all),
    outputs: [all(result)],
  };
}

/** Sizes of other dimensions follow from the operands; the number of groups is that of the part. */
function local({ node, inputs, parts, shapes }: LocalContext<"conv">): Node {
  const { attrs } = node;
  const groups = attrs.groups > 1 ? parts[1].stop - parts[1].start : 1;
  if (groups > 0) return conv([inputs[0], inputs[1]], { ...attrs, groups });
  // Without groups there are no channels. The empty result still depends on both operands: no collective may be removed.
  const empty = ({ shape }: Node): Shape => (attrs.channelsLast ? [...shape.slice(0, -1), 0] : shape.with(1, 0));
  const [a, b] = inputs.map((x) => reshape(x, empty(x)));
  return reshape(conv([a, b], { ...attrs, groups: 1 }), shapes[0]);
}

export const convRule: FactorRule<"conv"> = { factors, local };
