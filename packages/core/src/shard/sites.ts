// All collectives of a partitioned function: small independent all-reduces are bucketed, and every collective gets the
// sequence number by which all devices issue it.
import {
  amend,
  bytesOf,
  functionOrder,
  type GraphFn,
  type Node,
  numel,
  type OpAttrs,
  topological,
} from "../graph/index.js";
import { build, make } from "../ops/index.js";
import { rebuild } from "../transform/index.js";
import type { Move } from "./reshard.js";

/** A collective: its move, the node whose value it moves, and the local node of each device. */
export interface CollectiveSite extends Move {
  of: Node;
  nodes: Node[];
}

/** For every collective of one device, the length of the chain of collectives before it. */
function depths(fn: GraphFn): Map<Node, number> {
  const depth = new Map<Node, number>();
  const found = new Map<Node, number>();
  const params = new Set(fn.params);
  for (const node of functionOrder(fn)) {
    let most = 0;
    if (!params.has(node)) for (const input of node.inputs) most = Math.max(most, depth.get(input)!);
    if (node.op === "collective") found.set(node, most++);
    depth.set(node, most);
  }
  return found;
}

const localBytes = (node: Node): number => numel(node.shape) * bytesOf(node.dtype);

/**
 * When each value of one device's function is first needed, by the length of the chain of ops before its first user. A
 * gradient is needed as soon as it is there, a gathered weight only when the activations that it is multiplied with are.
 */
function firstNeeds(fn: GraphFn): Map<Node, number> {
  const needs = new Map<Node, number>();
  for (const node of functionOrder(fn).reverse()) {
    // An op with one operand (a view, a cast) waits for nothing else: its own first user counts.
    const own = node.inputs.length === 1 ? (needs.get(node) ?? node.depth) : node.depth;
    for (const input of node.inputs) needs.set(input, Math.min(needs.get(input) ?? Number.POSITIVE_INFINITY, own));
  }
  return needs;
}

/**
 * When each value of one device's function is needed at the latest: the length of the chain of ops before its first user, if every op
 * waits until its own result is needed. What is rematerialized could start in the forward pass, but is needed in the backward pass.
 */
function latestNeeds(fn: GraphFn): Map<Node, number> {
  const order = functionOrder(fn);
  const last = order.reduce((most, { depth }) => Math.max(most, depth), 0);
  const needs = new Map<Node, number>();
  for (const node of [...order].reverse()) {
    const own = Math.max(node.depth, (needs.get(node) ?? last + 1) - 1);
    for (const input of node.inputs) needs.set(input, Math.min(needs.get(input) ?? last + 1, own));
  }
  return needs;
}

/** Collectives in the order in which the function needs them; ones that it does not use are left out. */
function inOrderOfNeed(fn: GraphFn, sites: readonly CollectiveSite[]): CollectiveSite[] {
  const [needs, latest] = [firstNeeds(fn), latestNeeds(fn)];
  const order = functionOrder(fn);
  const used = new Set(order);
  // A gathered tensor is larger than its parts: it comes when it must, other results as soon as they can.
  const kinds = new Map(sites.map(({ nodes: [node], kind }) => [node, kind]));
  const keys = new Map<Node, number>();
  const before = new Map<Node, number>();
  for (const node of order) {
    let key = node.inputs.reduce((most, input) => Math.max(most, before.get(input) ?? 0), 0);
    const kind = kinds.get(node);
    if (kind !== undefined) {
      const own = (kind === "allGather" ? latest : needs).get(node) ?? node.depth;
      // After the collectives that it depends on.
      key = Math.max(own, key + 1e-3);
      keys.set(node, key);
    }
    before.set(node, key);
  }
  const keyOf = ({ nodes: [node] }: CollectiveSite): number => keys.get(node) ?? node.depth;
  return sites
    .filter(({ nodes: [node] }) => used.has(node))
    .map((site, i) => ({ site, i, key: keyOf(site) }))
    .sort((a, b) => a.key - b.key || a.site.nodes[0].depth - b.site.nodes[0].depth || a.i - b.i)
    .map(({ site }) => site);
}

/** Small sums of one kind and equal depth, which cannot depend on each other, in the order in which they are needed. */
function buckets(fn: GraphFn, sites: readonly CollectiveSite[], limit: number): CollectiveSite[][] {
  const depth = depths(fn);
  const lists = new Map<string, { sites: CollectiveSite[]; bytes: number }[]>();
  for (const site of inOrderOfNeed(fn, sites)) {
    const [node] = site.nodes;
    const at = depth.get(node);
    const bytes = localBytes(node);
    if (site.kind !== "allReduce" || at === undefined || bytes > limit / 4) continue;
    const key = `${at}|${site.axes}|${site.fn}|${node.dtype}`;
    const open = lists.get(key) ?? [];
    const last = open[open.length - 1];
    if (last !== undefined && last.bytes + bytes <= limit) {
      last.sites.push(site);
      last.bytes += bytes;
    } else open.push({ sites: [site], bytes });
    lists.set(key, open);
  }
  return [...lists.values()].flat().flatMap((list) => (list.sites.length > 1 ? [list.sites] : []));
}

/** Replaces nodes and rebuilds their users. */
export function substitute(fn: GraphFn, replaced: (node: Node, input: (node: Node) => Node) => Node | null): GraphFn {
  const map = new Map<Node, Node>(fn.params.map((param) => [param, param]));
  const visit = (root: Node): Node => {
    for (const node of topological([root], (at) => map.has(at))) {
      if (map.has(node)) continue;
      map.set(
        node,
        replaced(node, visit) ??
          rebuild(
            node,
            node.inputs.map((input) => map.get(input) ?? visit(input)),
          ),
      );
    }
    return map.get(root)!;
  };
  for (const node of functionOrder(fn)) if (!map.has(node)) visit(node);
  return { params: fn.params, outputs: fn.outputs.map((output) => map.get(output)!) };
}

/** One all-reduce for the members of a bucket on one device, and the replacement of each member. */
function joinBucket(members: readonly Node[], input: (node: Node) => Node): { node: Node; results: Node[] } {
  const flat = members.map((node) => build.reshape(input(node.inputs[0]), [numel(node.shape)]));
  const operand = build.concat(flat, 0);
  const attrs = members[0].attrs as OpAttrs["collective"];
  const node = make("collective", [operand], { ...attrs, shape: operand.shape });
  let from = 0;
  const results = members.map((member) => {
    const count = numel(member.shape);
    from += count;
    return build.reshape(build.sliceAxis(node, 0, from - count, from), member.shape);
  });
  return { node, results };
}

export function bucketAllReduces(
  functions: readonly GraphFn[],
  sites: readonly CollectiveSite[],
  limit: number,
): { functions: GraphFn[]; sites: CollectiveSite[] } {
  const groups = limit > 0 ? buckets(functions[0], sites, limit) : [];
  if (groups.length === 0) return { functions: [...functions], sites: [...sites] };
  const inBucket = new Map<CollectiveSite, number>(
    groups.flatMap((group, i) => group.map((site) => [site, i] as const)),
  );
  const joint: CollectiveSite[] = groups.map((group) => ({
    ...group[group.length - 1],
    bytes: group.reduce((n, site) => n + site.bytes, 0),
    total: group.reduce((n, site) => n + site.total, 0),
    nodes: [],
  }));
  const others = sites.filter((site) => !inBucket.has(site));
  const rest: CollectiveSite[] = others.map((site) => ({ ...site, nodes: [] }));
  const rebuilt = functions.map((fn, index) => {
    const member = new Map<Node, { bucket: number; place: number }>();
    groups.forEach((group, bucket) => {
      group.forEach((site, place) => {
        member.set(site.nodes[index], { bucket, place });
      });
    });
    const single = new Map(others.map((site, i) => [site.nodes[index], i]));
    const made = new Map<number, Node[]>();
    return substitute(fn, (node, input) => {
      const at = member.get(node);
      const alone = single.get(node);
      if (at === undefined) {
        if (alone === undefined) return null;
        const moved = rebuild(node, node.inputs.map(input));
        rest[alone].nodes[index] = moved;
        return moved;
      }
      let results = made.get(at.bucket);
      if (results === undefined) {
        const join = joinBucket(
          groups[at.bucket].map((site) => site.nodes[index]),
          input,
        );
        joint[at.bucket].nodes[index] = join.node;
        results = join.results;
        made.set(at.bucket, results);
      }
      return results[at.place];
    });
  });
  const merged: CollectiveSite[] = [];
  for (const site of sites) {
    const bucket = inBucket.get(site);
    if (bucket === undefined) merged.push(rest[others.indexOf(site)]);
    else if (groups[bucket][groups[bucket].length - 1] === site) merged.push(joint[bucket]);
  }
  return { functions: rebuilt, sites: merged };
}

/** Numbers the collectives that are still used, in the order in which the function needs them. */
export function numberCollectives(
  functions: readonly GraphFn[],
  sites: readonly CollectiveSite[],
): { functions: GraphFn[]; sites: CollectiveSite[] } {
  const order = inOrderOfNeed(functions[0], sites);
  order.forEach((site, sequence) => {
    for (const node of site.nodes) amend(node, { ...node.attrs, sequence });
  });
  return { functions: [...functions], sites: order };
}
