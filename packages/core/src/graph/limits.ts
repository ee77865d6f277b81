// The largest things that tensors, functions and messages may be, in one place: native code has arrays of these lengths,
// and what comes from outside is held to them before anything is made of it.
import { ShapeError } from "./errors.js";
import type { Shape } from "./shape.js";

export const limits = {
  /** Dimensions of a tensor. The native copies of boxes have arrays of this length (MAX_DIMS). */
  rank: 12,
  /** Elements of a tensor, a dimension of none counted as one: sixteen bytes for each stay below 2^53. */
  elements: 2 ** 49,
  /** Devices of a group, as in the native collectives. */
  members: 256,
  /** Characters of a name: of a mesh axis, a parameter, a user's function, a worker. */
  name: 200,
  /** Characters of a text that somebody reads: an error, a place in a program. */
  text: 20_000,
  /** Nodes of a received function, those of loop bodies included, and how deep bodies may lie in bodies. */
  nodes: 250_000,
  nesting: 16,
  /**
   * Operands of a node, parameters and results of a function, boxes of an exchange. Generated code keeps their addresses on the
   * stack, once a level of nesting.
   */
  operands: 20_000,
  /** What one client may have on a worker, whatever it asks for. */
  tensors: 1_000_000,
  programs: 10_000,
} as const;

/** Throws where a tensor of this shape is beyond what any device can address. */
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

/** A text within its limit; the middle of a longer one is left out. */
export function shortened(text: string, most: number = limits.text): string {
  if (text.length <= most) return text;
  const left = ` ... (${text.length} characters) ... `;
  const head = Math.ceil((most - left.length) * 0.7);
  return text.slice(0, head) + left + text.slice(text.length - (most - left.length - head));
}
