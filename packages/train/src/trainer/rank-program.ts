// Programs of one rank: a function over whole tensors is traced once, partitioned over the ranks, and compiled for this
// one. Placements of arguments and results are given; ops in between follow their operands or a given strategy.
import { functionOrder, type GraphFn, isOp, type Node, numel, type Shape } from "@weft/core/internal/graph";
import { factorsOf } from "@weft/core/internal/ops";
import { session } from "@weft/core/internal/runtime";
import {
  type CollectiveSite,
  type Compression,
  evenBounds,
  layoutOf,
  type Mesh,
  markOf,
  Placement,
  partitionFunction,
  type Strategy,
} from "@weft/core/internal/shard";
import { type Jitted, jit, jitLowered } from "@weft/core/internal/tensor";

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
  rewrite?(fn: GraphFn, first: number): GraphFn;
  /** Splits every op as the results need it, for functions without large arguments (initial values). */
  towardResults?: boolean;
  /** Strategies that do not follow from the operands. */
  strategy?(node: Node): Strategy | null;
  /** Size of the buckets in which gradients are summed. */
  bucketBytes: number;
  /** How gradients are sent; as they are by default. */
  compression?: Compression | undefined;
  /** Called with the collectives of the program. */
  onCollectives?(moves: readonly CollectiveSite[]): void;
}

const replicate: Strategy = { split: {}, carry: [] };

const isSparse = (node: Node): boolean =>
  node.op === "scatterAdd" && numel(node.inputs[1].shape) + numel(node.inputs[2].shape) < numel(node.shape);

/**
 * Scatters into a table larger than their updates (an embedding gradient): it is cheaper if every rank gets all updates than if
 * the tables are summed, unless the table is summed anyway because something else is added to it (a tied head).
 */
function scattersToGather(fn: GraphFn): Set<Node> {
  const order = functionOrder(fn);
  const found = new Set(order.filter(isSparse));
  for (const node of order)
    if (isOp(node, "binary") && node.attrs.fn === "add" && !node.inputs.every((input) => isSparse(input)))
      for (const input of node.inputs) found.delete(input);
  return found;
}

/** How these scatters are divided: every rank has all updates, and computes the part of the table that it needs of the gradient. */
function scatterStrategies(fn: GraphFn, strategy: RankProgramOptions["strategy"]): Map<Node, Strategy> {
  const found = new Map([...scattersToGather(fn)].map((node) => [node, replicate]));
  for (const node of functionOrder(fn)) {
    const [table] = node.inputs;
    if (markOf(node)?.kind !== "gradient" || !found.has(table)) continue;
    // The dimensions of the table are its first factors.
    found.set(table, { split: strategy?.(node)?.split ?? {}, carry: [] });
  }
  return found;
}

/** Strategies by which the results come out with their placements, so that no rank computes more than its part. */
function strategiesToward(fn: GraphFn, mesh: Mesh, results: readonly (Placement | null)[]): Map<Node, Strategy> {
  const wanted = new Map<Node, Placement | null>();
  const ask = (node: Node, placement: Placement | null): void => {
    const before = wanted.get(node);
    wanted.set(node, before === undefined || before?.key === placement?.key ? placement : null);
  };
  fn.outputs.forEach((output, i) => {
    ask(output, results[i] ?? null);
  });
  const strategies = new Map<Node, Strategy>();
  for (const node of functionOrder(fn).reverse()) {
    const placement = wanted.get(node) ?? null;
    if (placement === null || placement.isReplicated || node.inputs.length + node.shape.length === 0) continue;
    if (fn.params.includes(node) || node.outputs !== null || node.op === "pick") continue;
    const [maps] = factorsOf(node).outputs;
    const split: Record<string, number> = {};
    placement.dims.forEach((cut, dim) => {
      const map = maps[dim];
      if (cut !== null && map !== null) for (const axis of cut.axes) split[axis] = map.factor;
    });
    const strategy = { split, carry: [] };
    const current = node.inputs.map((input) => Placement.replicated(mesh, input.shape.length));
    const layout = layoutOf(node, mesh, strategy, current);
    if (layout === null) continue;
    strategies.set(node, strategy);
    node.inputs.forEach((input, i) => {
      ask(input, layout.operands[i]);
    });
  }
  return strategies;
}

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
        const whole = options.rewrite?.(simple, first) ?? simple;
        const params = whole.params.map(
          (param, i) => placements[i - first] ?? Placement.replicated(mesh, param.shape.length),
        );
        const toward =
          options.towardResults === true
            ? strategiesToward(whole, mesh, options.results ?? [])
            : new Map<Node, Strategy>();
        const scatters = scatterStrategies(whole, options.strategy);
        const { functions, moves } = partitionFunction(whole, {
          mesh,
          params,
          results: whole.outputs.map((_, i) => options.results?.[i] ?? null),
          strategy: (node) => toward.get(node) ?? options.strategy?.(node) ?? scatters.get(node) ?? null,
          bucketBytes,
          compression: options.compression,
        });
        options.onCollectives?.(moves);
        return functions[mesh.ranks.indexOf(rank)];
      },
    },
  );
}

/** Placement of a tensor whose rows are divided over mesh axes: `rows` of them over all ranks, equally unless `bounds` are given. */
export function byRows(
  mesh: Mesh,
  axes: readonly string[],
  rows: number,
  rank: number,
  bounds: readonly number[] = evenBounds(rows, mesh.sizeOf(axes)),
): Placement {
  const split = { axes, bounds };
  return new Placement(
    mesh,
    Array.from({ length: rank }, (_, i) => (i === 0 ? split : null)),
  );
}
