// Gate angles as a function of the step index, for loops that compute them in every step instead of reading tables. Memory then
// does not depend on the number of steps, and the gradients of the pulse parameters accumulate in the loop.
import { isFloat, type Node, topological } from "@weft/core/internal/graph";
import { build } from "@weft/core/internal/ops";
import { grad, Tensor } from "@weft/core/internal/tensor";
import { rebuild } from "@weft/core/internal/transform";

/** Gate angles as a function of the step index. */
export interface StepAngles {
  /** Inputs of the angles that are the same in all steps: amplitudes, frequencies, lengths. */
  params: Tensor[];
  /** Angles of step k (a float64 scalar) from these parameters: one tensor per slot. */
  angles(k: Tensor, params: readonly Tensor[]): Tensor[];
}

/** Gradients of the parameters from the gradients of the angles of step k. */
export const parameterSlopes = (
  stepAngles: StepAngles,
  k: Tensor,
  params: readonly Tensor[],
  slopes: readonly Tensor[],
): Tensor[] =>
  grad((given: Tensor[]) =>
    stepAngles
      .angles(k, given)
      .map((angle, i) => angle.mul(slopes[i]).sum())
      .reduce((a, b) => a.add(b)),
  )([...params]);

/** Largest number of parameter elements whose gradients a loop carries. */
const maxNumbers = 64;

/** Nodes that depend on constants only. An alias marks a differentiation variable and is never one of them. */
function constantsOf(order: readonly Node[]): Set<Node> {
  const found = new Set<Node>();
  for (const node of order) {
    const isLeaf = node.op === "const" || node.op === "iota";
    const isMade = node.op !== "alias" && node.inputs.length > 0 && node.inputs.every((input) => found.has(input));
    if (isLeaf || isMade) found.add(node);
  }
  return found;
}

/** Extracts the angles as a function of the step index, or null if their parameters are too large to carry. */
export function extractStepAngles(anglesAt: (k: Tensor) => Tensor[]): StepAngles | null {
  const index = build.input([], "float64");
  const outputs = anglesAt(new Tensor(index)).map(({ node }) => node);
  const order = topological(outputs);
  const varying = new Set<Node>([index]);
  for (const node of order) if (node.inputs.some((input) => varying.has(input))) varying.add(node);
  const constant = constantsOf(order);
  const fixed = new Set<Node>();
  for (const node of order)
    if (varying.has(node))
      for (const input of node.inputs) if (!varying.has(input) && !constant.has(input)) fixed.add(input);
  const params = [...fixed].map((node) => new Tensor(node));
  const numbers = params.reduce((sum, { size }) => sum + size, 0);
  const isCarriable = params.every(({ dtype }) => isFloat(dtype)) && outputs.every((node) => varying.has(node));
  if (!isCarriable || numbers > maxNumbers) return null;
  const steps = order.filter((node) => varying.has(node) && node !== index);
  return {
    params,
    angles: (k, given) => {
      const map = new Map<Node, Node>([
        [index, k.node],
        ...params.map(({ node }, i) => [node, given[i].node] as const),
      ]);
      for (const node of steps)
        map.set(
          node,
          rebuild(
            node,
            node.inputs.map((input) => map.get(input) ?? input),
          ),
        );
      return outputs.map((node) => new Tensor(map.get(node)!));
    },
  };
}
