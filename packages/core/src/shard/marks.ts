// Marks in the graph of a training step: barriers whose tags say what a value is, so that planner and rewrites find it
// after the graph was simplified. A barrier returns its operand.
import { isOp, type Node } from "../graph/index.js";
import { make } from "../ops/index.js";

/**
 * `loss`: the loss; what it depends on is the forward pass. `sums`: values that are summed over ranks once. `gradient`: the
 * complete gradient of a parameter. `forward`, `backward`: a parameter where the forward or backward pass uses it.
 * `saved`: an activation from which others are rematerialized. `input`: a batch input that the model axis splits. `feedback`: what
 * a device did not send of a parameter's last gradient.
 */
const kinds = ["loss", "sums", "gradient", "forward", "backward", "saved", "input", "feedback"] as const;
export type MarkKind = (typeof kinds)[number];

interface Mark {
  kind: MarkKind;
  /** Number of the parameter, or of the saved value. */
  index: number;
}

/** Marks a node. Tags of checkpoints are not negative, so these differ from them. */
export const markNode = (node: Node, kind: MarkKind, index = 0): Node =>
  make("barrier", [node], { tag: -1 - (index * kinds.length + kinds.indexOf(kind)) });

/** The mark of a node; null if it has none. */
export function markOf(node: Node): Mark | null {
  if (!isOp(node, "barrier") || node.attrs.tag >= 0) return null;
  const code = -1 - node.attrs.tag;
  return { kind: kinds[code % kinds.length], index: Math.floor(code / kinds.length) };
}
