// Compression of gradients on their way between devices: the sum of a marked gradient is sent in a half type, or as its largest
// elements. What a device does not send stays with it and is added to its next gradient (error feedback), so that nothing is lost.
import {
  bareCollective,
  bytesOf,
  type DType,
  functionOrder,
  type GraphFn,
  isOp,
  type Node,
  numel,
  type OpAttrs,
} from "../graph/index.js";
import { build, make } from "../ops/index.js";
import { collectiveOf, isGatheredRows, largestOfRows, rowsInHalf } from "./compress-rows.js";
import { markOf } from "./marks.js";
import { type CollectiveSite, substitute } from "./sites.js";

/** How gradients are sent: in a half type, or the share of their elements with the largest magnitudes. */
export type Compression = { dtype: "bfloat16" | "float16" } | { topK: number };

/** What replaces a sum: its value, what the device keeps back, and the collectives with the bytes that a device receives. */
export interface Compressed {
  sum: Node;
  kept: Node;
  /** `bytes`: of a collective, given the one that it replaces. */
  sent: { node: Node; kind: "allReduce" | "allGather"; bytes(replaced: CollectiveSite): number }[];
}

const membersOf = ({ groups, rank }: OpAttrs["collective"]): readonly number[] =>
  groups.find((group) => group.includes(rank)) ?? [rank];

/** The sum in a half type, in which every device rounds what it sends. */
function inHalf(value: Node, attrs: OpAttrs["collective"], dtype: DType): Compressed {
  const rounded = build.cast(value, dtype);
  const node = make("collective", [rounded], { ...attrs, dtype });
  const members = membersOf(attrs).length;
  return {
    sum: build.cast(node, value.dtype),
    kept: build.sub(value, build.cast(rounded, value.dtype)),
    sent: [
      { node, kind: "allReduce", bytes: () => (2 * (members - 1) * numel(value.shape) * bytesOf(dtype)) / members },
    ],
  };
}

/** The sum of the largest elements of each device, which are sent with their positions. */
function largest(value: Node, attrs: OpAttrs["collective"], share: number): Compressed {
  const count = numel(value.shape);
  const chosen = Math.max(1, Math.ceil(count * share));
  const members = membersOf(attrs).length;
  const flat = build.reshape(value, [count]);
  const places = make("argsort", [build.unary("abs", flat)], { descending: true, count: chosen });
  const picked = build.gather(flat, places, 0, 0);
  // NaN and infinity may not be among them: they reach all devices with whatever is sent.
  const alarm = build.scale(build.sum(flat, [0]), 0);
  const values = build.add(picked, build.expandTo(build.reshape(alarm, []), [chosen]));
  const gathered = (operand: Node): Node =>
    make("collective", [operand], {
      ...bareCollective,
      kind: "allGather",
      groups: attrs.groups,
      rank: attrs.rank,
      sizes: new Array<number>(members).fill(chosen),
      shape: [members * chosen],
      dtype: operand.dtype,
    });
  const [allValues, allPlaces] = [gathered(values), gathered(places)];
  // One row per device: no two of them write to one element, so that the order of the sum is the same everywhere.
  const rows = build.reshape(build.scale(build.iota([members, chosen], 0, "int32"), count), [members * chosen]);
  const spread = build.scatterAdd(
    build.full([members * count], 0, value.dtype),
    build.add(allPlaces, rows),
    allValues,
    0,
    0,
  );
  const sum = build.reshape(build.sum(build.reshape(spread, [members, count]), [0]), value.shape);
  const own = build.scatterAdd(build.full([count], 0, value.dtype), places, picked, 0, 0);
  const received = (members - 1) * chosen;
  return {
    sum,
    kept: build.sub(value, build.reshape(own, value.shape)),
    sent: [
      { node: allValues, kind: "allGather", bytes: () => received * bytesOf(value.dtype) },
      { node: allPlaces, kind: "allGather", bytes: () => received * bytesOf("int32") },
    ],
  };
}

/** What replaces a sum; `before` is what the device kept back of it. */
function compressed(sum: Node, before: Node, how: Compression, input: (node: Node) => Node): Compressed {
  if (isGatheredRows(sum))
    return "dtype" in how ? rowsInHalf(sum, before, how.dtype, input) : largestOfRows(sum, before, how.topK, input);
  const value = build.add(input(sum.inputs[0]), before);
  const attrs = sum.attrs as OpAttrs["collective"];
  return "dtype" in how ? inHalf(value, attrs, how.dtype) : largest(value, attrs, how.topK);
}

/** Sums of gradients on one device, and the nodes that carry what it keeps back, by the number of the parameter. */
function compressible(fn: GraphFn): Map<Node, Node> {
  const [gradients, feedback] = [new Map<number, Node>(), new Map<number, Node>()];
  for (const node of functionOrder(fn)) {
    const mark = markOf(node);
    if (mark?.kind === "gradient") gradients.set(mark.index, node.inputs[0]);
    if (mark?.kind === "feedback") feedback.set(mark.index, node);
  }
  const found = new Map<Node, Node>();
  for (const [index, sum] of gradients) {
    const carrier = feedback.get(index);
    const isSum = isOp(sum, "collective") && sum.attrs.kind === "allReduce" && sum.attrs.fn === "sum";
    if (carrier !== undefined && (isSum || isGatheredRows(sum)) && !found.has(sum)) found.set(sum, carrier);
  }
  return found;
}

/**
 * Compresses the sums of gradients. A gradient is compressed if the function carries a value of its error feedback: a parameter of
 * the shape [1, ...gradient] behind a mark `feedback` with the gradient's number, which the pass replaces by the next one.
 */
export function compressGradients(
  functions: readonly GraphFn[],
  sites: readonly CollectiveSite[],
  how: Compression,
): { functions: GraphFn[]; sites: CollectiveSite[] } {
  const replaced = new Map<CollectiveSite, CollectiveSite[]>();
  const others = new Map<CollectiveSite, CollectiveSite>();
  const rebuilt = functions.map((fn, index) => {
    const carriers = compressible(fn);
    const sumOf = new Map([...carriers].map(([sum, carrier]) => [carrier, sum]));
    const siteOf = new Map(sites.map((site) => [site.nodes[index], site]));
    const made = new Map<Node, Compressed>();
    return substitute(fn, (node, input) => {
      const sum = sumOf.get(node) ?? (carriers.has(node) ? node : null);
      const site = siteOf.get(node);
      if (sum === null) {
        if (site === undefined) return null;
        const moved = make("collective", node.inputs.map(input), node.attrs as OpAttrs["collective"]);
        if (!others.has(site)) others.set(site, { ...site, nodes: [] });
        others.get(site)!.nodes[index] = moved;
        return moved;
      }
      let result = made.get(sum);
      if (result === undefined) {
        const before = build.reshape(input(carriers.get(sum)!.inputs[0]), sum.shape);
        result = compressed(sum, before, how, input);
        made.set(sum, result);
        const own = siteOf.get(isGatheredRows(sum) ? collectiveOf(sum) : sum)!;
        const list =
          replaced.get(own) ?? result.sent.map(({ kind, bytes }) => ({ ...own, kind, bytes: bytes(own), nodes: [] }));
        result.sent.forEach(({ node: sent }, i) => {
          list[i].nodes[index] = sent;
        });
        replaced.set(own, list);
      }
      return node === sum ? result.sum : build.reshape(result.kept, node.shape);
    });
  });
  return {
    functions: rebuilt,
    sites: sites.flatMap((site) => replaced.get(site) ?? (others.has(site) ? [others.get(site)!] : [])),
  };
}
