// The partitioner: turns one function over whole tensors into one function per device over shards, with collectives where
// devices need each other's data. It makes no decisions: strategies are given, or follow the operands.
import {
  type DType,
  functionOrder,
  type GraphFn,
  InternalError,
  isOp,
  type Node,
  outputAvals,
  type Shape,
} from "../graph/index.js";
import { build, type FactorRange, factorsOf, localNode } from "../ops/index.js";
import { type Compression, compressGradients } from "./compress.js";
import { followOperands, type Layout, layoutOf, type Strategy } from "./layout.js";
import type { Mesh } from "./mesh.js";
import type { Placement } from "./placement.js";
import { applyMove, isCollective, type Move, planReshard } from "./reshard.js";
import { bucketAllReduces, type CollectiveSite, numberCollectives } from "./sites.js";

interface PartitionOptions {
  mesh: Mesh;
  /** Placements of the parameters. */
  params: readonly Placement[];
  /** Strategy of a node; null (or omitted) follows its operands. */
  strategy?: (node: Node) => Strategy | null;
  /** Required placements of the results; null keeps the placement and completes pending reductions. */
  results?: readonly (Placement | null)[];
  /** All-reduces up to this many bytes in total are bucketed into one; 0 disables bucketing. */
  bucketBytes?: number;
  /** Compresses the sums of gradients that carry error feedback. */
  compression?: Compression | undefined;
}

export interface Partitioned {
  mesh: Mesh;
  /** In the order of the mesh's ranks. */
  functions: GraphFn[];
  params: readonly Placement[];
  results: Placement[];
  /** Every collective, in the order in which devices issue them. */
  moves: CollectiveSite[];
  /** Placements of the results of each node of the original function. */
  placements: ReadonlyMap<Node, readonly Placement[]>;
}

/** A sharded tensor: the local node of each device. */
interface Spread {
  placement: Placement;
  locals: ReadonlyMap<number, Node>;
}

class Partitioner {
  readonly #values = new Map<Node, Spread[]>();
  readonly #moved = new Map<string, Spread>();
  readonly sites: CollectiveSite[] = [];

  constructor(
    readonly fn: GraphFn,
    readonly options: PartitionOptions,
  ) {}

  get mesh(): Mesh {
    return this.options.mesh;
  }

  run(): Partitioned {
    const { fn, mesh } = this;
    if (this.options.params.length !== fn.params.length)
      throw new InternalError(`${this.options.params.length} placements for ${fn.params.length} parameters`);
    fn.params.forEach((param, i) => {
      const placement = this.options.params[i];
      const locals = new Map(
        mesh.ranks.map((rank) => [rank, build.input(placement.localShape(rank, param.shape), param.dtype)]),
      );
      this.#values.set(param, [{ placement, locals }]);
    });
    for (const node of functionOrder(fn)) if (!this.#values.has(node)) this.#values.set(node, this.#spread(node));
    const results = fn.outputs.map((output, i) => {
      const value = this.#values.get(output)![0];
      const required = this.options.results?.[i] ?? value.placement.withPending(null);
      return this.#reshard(output, value, required);
    });
    const functions = mesh.ranks.map((rank) => ({
      params: fn.params.map((param) => this.#values.get(param)![0].locals.get(rank)!),
      outputs: results.map(({ locals }) => locals.get(rank)!),
    }));
    const { compression, bucketBytes = 1 << 20 } = this.options;
    const sent =
      compression === undefined
        ? { functions, sites: this.sites }
        : compressGradients(functions, this.sites, compression);
    const bucketed = bucketAllReduces(sent.functions, sent.sites, bucketBytes);
    const numbered = numberCollectives(bucketed.functions, bucketed.sites);
    return {
      mesh,
      functions: numbered.functions,
      params: this.options.params,
      results: results.map(({ placement }) => placement),
      moves: numbered.sites,
      placements: new Map([...this.#values].map(([node, list]) => [node, list.map(({ placement }) => placement)])),
    };
  }

  /** The local results of a node on every device. */
  #spread(node: Node): Spread[] {
    if (isOp(node, "pick")) return [this.#values.get(node.inputs[0])![node.attrs.index]];
    const operands = node.inputs.map((input) => this.#values.get(input)![0]);
    const current = operands.map(({ placement }) => placement);
    const strategy = this.options.strategy?.(node) ?? followOperands(node, this.mesh, current);
    const layout =
      layoutOf(node, this.mesh, strategy, current) ??
      layoutOf(node, this.mesh, { split: strategy.split, carry: [] }, current);
    if (layout === null) throw new InternalError(`${node.op} %${node.id} cannot be split by the given strategy`);
    const moved = operands.map((operand, i) => this.#reshard(node.inputs[i], operand, layout.operands[i]));
    const made = new Map(this.mesh.ranks.map((rank) => [rank, this.#local(node, layout, moved, rank)]));
    return outputAvals(node).map((_, index) => ({
      placement: layout.results[index],
      locals:
        node.outputs === null ? made : new Map([...made].map(([rank, tuple]) => [rank, build.pick(tuple, index)])),
    }));
  }

  #local(node: Node, layout: Layout, operands: readonly Spread[], rank: number): Node {
    const { factors } = factorsOf(node);
    const parts: FactorRange[] = layout.factors.map((split, f) => {
      if (split === null) return { start: 0, stop: factors[f].size };
      const k = this.mesh.position(rank, split.axes);
      return { start: split.bounds[k], stop: split.bounds[k + 1] };
    });
    return localNode({
      node,
      inputs: operands.map(({ locals }) => locals.get(rank)!),
      parts,
      first: layout.factors.map((split) => split === null || this.mesh.position(rank, split.axes) === 0),
      isSplit: layout.factors.map((split) => split !== null),
      starts: operands.map(({ placement }, i) => placement.box(rank, node.inputs[i].shape).start),
      shapes: outputAvals(node).map((aval, i) => layout.results[i].localShape(rank, aval.shape)),
    });
  }

  #reshard(node: Node, value: Spread, to: Placement): Spread {
    if (value.placement.equals(to)) return value;
    const key = `${node.id}>${to.key}`;
    const cached = this.#moved.get(key);
    if (cached !== undefined) return cached;
    let { placement, locals } = value;
    for (const move of planReshard(placement, to, node.shape, node.dtype)) {
      // An intermediate placement may already exist for another reader.
      const step = `${node.id}>${move.to.key}`;
      const before = this.#moved.get(step);
      if (before !== undefined) {
        ({ placement, locals } = before);
        continue;
      }
      const sequence = this.sites.length;
      locals = applyMove(locals, move, node.shape, node.dtype, sequence);
      placement = move.to;
      if (isCollective(move)) this.sites.push(this.#site(move, node, locals));
      this.#moved.set(step, { placement, locals });
    }
    const result = { placement, locals };
    this.#moved.set(key, result);
    return result;
  }

  #site(move: Move, of: Node, locals: ReadonlyMap<number, Node>): CollectiveSite {
    return { ...move, of, nodes: this.mesh.ranks.map((rank) => locals.get(rank)!) };
  }
}

/** Partitions a function over a mesh. Custom functions must be inlined (simplified) before. */
export const partitionFunction = (fn: GraphFn, options: PartitionOptions): Partitioned =>
  new Partitioner(fn, options).run();

/**
 * Reshards one tensor, also between meshes: returns a function of one parameter for each rank of either mesh. A device
 * outside the source mesh passes an empty tensor, one outside the target mesh receives one.
 */
export function reshard(
  from: Placement,
  to: Placement,
  shape: Shape,
  dtype: DType,
): { functions: Map<number, GraphFn>; moves: Move[] } {
  const ranks = [...new Set([...from.mesh.ranks, ...to.mesh.ranks])];
  const empty = shape.map(() => 0);
  const params = new Map(
    ranks.map((rank) => [rank, build.input(from.mesh.has(rank) ? from.localShape(rank, shape) : empty, dtype)]),
  );
  const moves = planReshard(from, to, shape, dtype);
  let locals: ReadonlyMap<number, Node> = params;
  moves.forEach((move, sequence) => {
    locals = new Map([...locals, ...applyMove(locals, move, shape, dtype, sequence)]);
  });
  const functions = new Map(ranks.map((rank) => [rank, { params: [params.get(rank)!], outputs: [locals.get(rank)!] }]));
  return { functions, moves };
}
