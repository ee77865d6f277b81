// Programs of one rank: a function over whole tensors is traced once, partitioned over the ranks, and compiled for this
// one. Placements of arguments and results are given; ops in between follow their operands or a given strategy.
import { type GraphFn, type Node, numel, type Shape } from "@weft/core/internal/graph";
import { session } from "@weft/core/internal/runtime";
import { evenBounds, type Mesh, Placement, partition, type Strategy } from "@weft/core/internal/shard";
import { type Jitted, jit, jitLowered, treeLeaves } from "@weft/core/internal/tensor";
import { markOf } from "./markers.js";

/** Options of `rankProgram`. */
export interface RankProgramOptions {
  mesh: Mesh;
  rank: number;
  /** Positions of arguments whose memory the results may reuse. */
  donate?: readonly number[];
  /** Placement of every tensor of the arguments. */
  placements: readonly Placement[];
  /** Placements of the results; null (and beyond the list): whatever comes out, with sums completed. */
  results?: readonly (Placement | null)[];
  /** Rewrites the simplified function over whole tensors before it is partitioned. */
  rewrite?(fn: GraphFn): GraphFn;
  /** Strategies that do not follow from the operands. */
  strategy?(node: Node): Strategy | null;
  /** Size of the buckets in which gradients are summed. */
  bucketBytes: number;
}

const replicate: Strategy = { split: {}, carry: [] };

/**
 * A scatter into a table larger than its updates (an embedding gradient) is cheaper if every rank gets all updates than if
 * the tables are summed.
 */
function gathersUpdates(node: Node): boolean {
  if (node.op !== "scatterAdd") return false;
  const [, ids, rows] = node.inputs;
  return numel(ids.shape) + numel(rows.shape) < numel(node.shape);
}

/** Whether a node's operands are completed first, although it could pass on partial sums. */
const completesSums = (node: Node): boolean => gathersUpdates(node) || markOf(node) !== null;

/** Whole shape of a tensor, from the shape of a shard and its placement. */
const wholeShape = (placement: Placement, local: Shape): number[] =>
  local.map((size, dim) => placement.dims[dim]?.bounds.at(-1) ?? size);

/** Compiles a function over whole tensors for one rank, which calls it with its shards. */
// biome-ignore lint/suspicious/noExplicitAny: as jit, for functions over any trees.
export function rankProgram<F extends (...args: any[]) => any>(fn: F, options: RankProgramOptions): Jitted<F> {
  const { mesh, rank, donate, placements, bucketBytes } = options;
  if (mesh.size === 1 && options.rewrite === undefined) return jit(fn, { donate });
  return jitLowered(
    fn,
    { donate },
    {
      wholeShape: (i, local) => wholeShape(placements[i], local),
      lower(graph, first) {
        const simple = session().simplified(graph);
        const whole = options.rewrite?.(simple) ?? simple;
        const params = whole.params.map(
          (param, i) => placements[i - first] ?? Placement.replicated(mesh, param.shape.length),
        );
        const { functions } = partition(whole, {
          mesh,
          params,
          results: whole.outputs.map((_, i) => options.results?.[i] ?? null),
          strategy: (node) => options.strategy?.(node) ?? (completesSums(node) ? replicate : null),
          bucketBytes,
        });
        return functions[mesh.ranks.indexOf(rank)];
      },
    },
  );
}

/** Placements of a tree whose tensors are all replicated. */
export const replicated = (mesh: Mesh, tree: unknown): Placement[] =>
  treeLeaves(tree).map((leaf) => Placement.replicated(mesh, leaf.shape.length));

/** Placement of a tensor whose rows are divided over mesh axes: `rows` of them over all ranks. */
export function byRows(mesh: Mesh, axes: readonly string[], rows: number, rank: number): Placement {
  const split = { axes, bounds: evenBounds(rows, mesh.sizeOf(axes)) };
  return new Placement(
    mesh,
    Array.from({ length: rank }, (_, i) => (i === 0 ? split : null)),
  );
}
