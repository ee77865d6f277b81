// Factors of attention as one custom function: examples and heads are independent; queries, keys and sizes are not split.
import { type AttentionKernel, InternalError, type Node, type Shape } from "../graph/index.js";
import type { DimMap, FactorRule, Factors } from "./factors.js";

/** Role of an operand or result; its axes begin with those of the batch. */
type Role = "tokens" | "packed" | "scores" | "rows" | "key";

/** Operands of the forward function: queries, keys, values; a mask; a key. */
function operandRoles({ packed, mask, dropout }: AttentionKernel): Role[] {
  const tokens: Role[] = packed ? ["packed"] : ["tokens", "tokens", "tokens"];
  return [...tokens, ...(mask === "none" ? [] : ["scores" as const]), ...(dropout > 0 ? ["key" as const] : [])];
}

/** Results of the forward function: like queries, log-sums of the rows, dropout mask as bits. */
const resultRoles = ({ dropout }: AttentionKernel): Role[] => [
  "tokens",
  "rows",
  ...(dropout > 0 ? ["scores" as const] : []),
];

/** Operands and results of the node, which may be the gradient. */
export function attentionRoles(kernel: AttentionKernel): { inputs: Role[]; outputs: Role[] } {
  const inputs = operandRoles(kernel);
  if (!kernel.gradient) return { inputs, outputs: resultRoles(kernel) };
  const wanted = (kernel.packed ? 1 : 3) + (kernel.mask === "float" ? 1 : 0);
  return { inputs: [...inputs, ...resultRoles(kernel), "tokens"], outputs: inputs.slice(0, wanted) };
}

/** Number of axes after the batch. */
const ownAxes: Record<Role, number> = { tokens: 3, packed: 4, scores: 3, rows: 2, key: 1 };
/** Axis of the heads. */
const headAxis: Record<Role, number> = { tokens: 1, packed: 2, scores: 0, rows: 0, key: -1 };

const independent = (size: number) => ({ size, reduce: null, partial: [] });

function attentionFactors(node: Node<"custom">): Factors {
  const { kernel } = node.attrs;
  if (kernel === undefined) throw new InternalError(`${node.attrs.rule.name} must be inlined before it is split`);
  const { inputs, outputs } = attentionRoles(kernel);
  const [first] = node.inputs;
  const lead = first.shape.length - ownAxes[inputs[0]];
  const heads = first.shape[lead + headAxis[inputs[0]]];
  // The dropout mask depends on the key and the position among all elements of that key, so only examples with separate keys can be
  // split.
  const keyed = inputs.indexOf("key");
  const free = keyed < 0 ? lead + 1 : node.inputs[keyed].shape.length - ownAxes.key;
  const at = (factor: number): DimMap | null => (factor < free ? { kind: "scaled", factor, scale: 1 } : null);
  const dims = (role: Role, shape: Shape): (DimMap | null)[] => {
    const batch = role === "key" ? shape.length - ownAxes.key : lead;
    return shape.map((_, i) => (i < batch ? at(i) : i === batch + headAxis[role] ? at(lead) : null));
  };
  return {
    factors: [...first.shape.slice(0, lead), heads].slice(0, free).map(independent),
    inputs: node.inputs.map(({ shape }, i) => dims(inputs[i], shape)),
    outputs: node.attrs.body.outputs.map(({ shape }, i) => dims(outputs[i], shape)),
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
