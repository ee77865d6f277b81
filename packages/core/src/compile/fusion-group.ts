// Fusion groups: what the fuser decides, and the order of nodes that it works on.
import { functionOrder, type GraphFn, type Node } from "../graph/index.js";
import { isReduction, reductionOperand } from "./fuse-rules.js";
import type { Layouts, Strided } from "./views.js";

/** "columns": a column sum inside a group of rows, piece by piece. */
export type Level = "full" | "row" | "columns";

export interface FusionGroup {
  id: number;
  /** "rows": element-wise work and reductions of the innermost axes; "columns": reductions of outer axes, and work on their results. */
  kind: "rows" | "columns";
  /** Number of elements of the domain. */
  size: number;
  /** Number of elements of a row, which reductions reduce; null without reductions. */
  inner: number | null;
  /** For column groups: [before, reduced, after]. */
  columns: readonly [number, number, number] | null;
  members: Node[];
  /** Number of members that compute an expensive function. */
  expensive: number;
  level: Map<Node, Level>;
}

export interface Fusion {
  groups: FusionGroup[];
  groupOf: Map<Node, FusionGroup>;
  /** Nodes whose values are written to memory. */
  stored: Set<Node>;
  /** Nodes computed by a library call or a loop. */
  library: Node[];
  order: Node[];
  /** Memory order of products that write their result permuted. */
  layouts: Layouts;
  /** Whether reductions are what {@link reductionOperand} says. */
  onePass: boolean;
  /** For each result of the function the stored node (or parameter) that has its elements. */
  results: Node[];
}

/** Whether the kernel of a custom function can read an operand with its strides. */
type CustomFit = (node: Node<"custom">, input: Node, strided: Strided) => boolean;

export interface FuseOptions {
  customFits?: CustomFit;
  /** Scatters of integer ones count places, without ones in memory. */
  countsOnes?: boolean;
  /** Dropout masks get their own loops, which draw whole blocks of random bits. */
  separateDraws?: boolean;
  /** Squared deviations from the mean of columns and long rows are summed in one pass. */
  onePassMoments?: boolean;
  /** Cheap values that only gathers read are computed where they are read. */
  gathersThrough?: boolean;
  /** Element-wise work on the results of column reductions is fused into their loop. */
  columnEpilogues?: boolean;
  /** Column sums over pieces of rows are fused into the loop over the rows: at most this many numbers per 32nd of a row. */
  columnsInRows?: number;
}

/** Nodes in order without those that only squared deviations would read: one pass needs neither mean nor deviation. */
export function liveOrder(fn: GraphFn): Node[] {
  const order = functionOrder(fn);
  const live = new Set<Node>([...fn.outputs, ...(fn.effects ?? [])]);
  for (const node of order.toReversed())
    if (live.has(node))
      for (const input of isReduction(node) ? [reductionOperand(node, true).operand] : node.inputs) live.add(input);
  return order.filter((node) => live.has(node));
}

/** Whether two groups and a reduction have rows of one length. */
export const compatible = (a: FusionGroup, b: FusionGroup, inner: number | null): boolean => {
  const wanted = [a.inner, b.inner, inner].filter((n) => n !== null);
  return wanted.every((n) => n === wanted[0]);
};
