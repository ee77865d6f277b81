// Sharding factors of the attention op (a custom function): examples and heads can be split over devices; queries, keys and head sizes
// cannot.
import { type AttentionKernel, InternalError, type Node, type Shape } from "../graph/index.js";
import type { DimMap, FactorRule, Factors } from "./factors.js";

/** Role of an operand or result; its axes begin with those of the batch. */
type Role = "tokens" | "packed" | "scores" | "ids" | "rows" | "key";

/** Operands of the forward function: queries, keys, values; a mask or segment ids; a key. */
function operandRoles({ packed, mask, dropout }: AttentionKernel): Role[] {
  const tokens: Role[] = packed ? ["packed"] : ["tokens", "tokens", "tokens"];
  const masks: Role[] = mask === "none" ? [] : [mask === "segments" ? "ids" : "scores"];
  return [...tokens, ...masks, ...(dropout > 0 ? ["key" as const] : [])];
}

/** Results of the forward function: like queries, logsumexp of each row, dropout mask as bits. */
const resultRoles = ({ dropout }: AttentionKernel): Role[] => [
  "tokens",
  "rows",
  ...(dropout > 0 ? ["scores" as const] : []),
];

/** Number of leading operands that have a gradient: bool masks, segment ids and keys have none. */
export const differentiableOperands = ({ packed, mask, maskGradient }: AttentionKernel): number =>
  (packed ? 1 : 3) + (mask === "float" && maskGradient !== false ? 1 : 0);

/** Operands and results of the node, which may be the gradient. */
export function attentionRoles(kernel: AttentionKernel): { inputs: Role[]; outputs: Role[] } {
  const inputs = operandRoles(kernel);
  if (!kernel.gradient) return { inputs, outputs: resultRoles(kernel) };
  const wanted = differentiableOperands(kernel);
  return { inputs: [...inputs, ...resultRoles(kernel), "tokens"], outputs: inputs.slice(0, wanted) };
}

/** Number of axes after the batch. */
const ownAxes: Record<Role, number> = { tokens: 3, packed: 4, scores: 3, ids: 1, rows: 2, key: 1 };
/** Axis of the heads; -1 where there is none. */
const headAxis: Record<Role, number> = { tokens: 1, packed: 2, scores: 0, ids: -1, rows: 0, key: -1 };

const independent = (size: number) => ({ size, reduce: null, partial: [] });

function attentionFactors(node: Node<"custom">): Factors {
  const { kernel } = node.attrs;
  if (kernel === undefined) throw new InternalError(`${node.attrs.rule.name} must be inlined before it is split`);
  const { inputs, outputs } = attentionRoles(kernel);
  const [first] = node.inputs;
  const lead = first.shape.length - ownAxes[inputs[0]];
  const heads = first.shape[lead + headAxis[inputs[0]]];
  // Grouped queries: keys and values may have fewer heads, each shared by consecutive heads of the queries. The factor counts key heads.
  const shared = kernel.packed ? heads : node.inputs[1].shape[lead + headAxis.tokens];
  const isShared = (i: number): boolean => !kernel.packed && (i === 1 || i === 2);
  // The dropout mask depends on the key and the position among all elements of that key, so only examples with separate keys can be
  // split.
  const keyed = inputs.indexOf("key");
  const free = keyed < 0 ? lead + 1 : node.inputs[keyed].shape.length - ownAxes.key;
  const at = (factor: number, scale = 1): DimMap | null => (factor < free ? { kind: "scaled", factor, scale } : null);
  const dims = (role: Role, shape: Shape, ofKeys: boolean): (DimMap | null)[] => {
    const batch = role === "key" ? shape.length - ownAxes.key : lead;
    const scale = ofKeys ? 1 : heads / Math.max(1, shared);
    return shape.map((_, i) => (i < batch ? at(i) : i === batch + headAxis[role] ? at(lead, scale) : null));
  };
  return {
    factors: [...first.shape.slice(0, lead), shared].slice(0, free).map(independent),
    inputs: node.inputs.map(({ shape }, i) => dims(inputs[i], shape, isShared(i))),
    outputs: node.attrs.body.outputs.map(({ shape }, i) => dims(outputs[i], shape, kernel.gradient && isShared(i))),
  };
}

export const attentionRule: FactorRule<"custom"> = {
  factors: attentionFactors,
  local: ({ node, inputs }) => {
    const { rule } = node.attrs;
    if (rule.onParts === undefined) throw new InternalError(`${rule.name} cannot be made for a part`);
    return rule.onParts([...inputs]);
  },
};
