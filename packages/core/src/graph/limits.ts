// Maximum sizes of tensors, functions and messages. Native code has arrays of these lengths, and input from outside is checked
// against them before anything is allocated.
import { ShapeError } from "./errors.js";
import type { Shape } from "./shape.js";

export const limits = {
  /** Rank of a tensor. Native box copies have arrays of this length (MAX_DIMS). */
  rank: 12,
  /** Elements of a tensor, with sizes of 0 counted as 1: sixteen bytes per element stay below 2^53. */
  elements: 2 ** 49,
  /** Devices per group, as in the native collectives. */
  members: 256,
  /** Length of a name: of a mesh axis, a parameter, a user function, a worker. */
  name: 200,
  /** Length of a text for users: an error, a source location. */
  text: 20_000,
  /** Nodes of a received function including loop bodies, and the nesting depth of bodies. */
  nodes: 250_000,
  nesting: 16,
  /**
   * Operands of a node, parameters and results of a function, boxes of an exchange. Generated code keeps their addresses on the
   * stack, once per nesting level.
   */
  operands: 20_000,
  /** Resources of one client on a worker. */
  tensors: 1_000_000,
  programs: 10_000,
} as const;

/** Throws if no device can address a tensor of this shape. */
export function checkExtent(shape: Shape): void {
  if (shape.length > limits.rank)
    throw new ShapeError(
      `a tensor would have ${shape.length} dimensions, and ${limits.rank} are the most; reshape it to fewer`,
    );
  let elements = 1;
  for (let i = 0; i < shape.length; i++) {
    const size = shape[i];
    if (!Number.isSafeInteger(size) || size < 0)
      throw new ShapeError(
        `dimension ${i} of a tensor would be ${String(size).slice(0, 40)}; give a whole number >= 0`,
      );
    if (size > 1) elements *= size;
  }
  if (elements > limits.elements)
    throw new ShapeError(
      `a tensor of shape [${shape.join(", ")}] would have ${elements} elements, and ${limits.elements} are the most`,
    );
}

/** Limits a text to its maximum length by cutting out the middle. */
export function shortened(text: string, most: number = limits.text): string {
  if (text.length <= most) return text;
  const left = ` ... (${text.length} characters) ... `;
  const head = Math.ceil((most - left.length) * 0.7);
  return text.slice(0, head) + left + text.slice(text.length - (most - left.length - head));
}
