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

/** Small sums of one kind and equal depth: they cannot depend on each other. */
function buckets(fn: GraphFn, sites: readonly CollectiveSite[], limit: number): CollectiveSite[][] {
  const depth = depths(fn);
  const lists = new Map<string, { sites: CollectiveSite[]; bytes: number }[]>();
  for (const site of sites) {
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
function substitute(fn: GraphFn, replaced: (node: Node, input: (node: Node) => Node) => Node | null): GraphFn {
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

/** Numbers the collectives that are still used: each as early as its dependencies allow, in order of creation. */
export function numberCollectives(
  functions: readonly GraphFn[],
  sites: readonly CollectiveSite[],
): { functions: GraphFn[]; sites: CollectiveSite[] } {
  const [fn] = functions;
  const bySite = new Map(sites.map((site, i) => [site.nodes[0], i]));
  const params = new Set(fn.params);
  /** The last collectives on every path to a node. */
  const behind = new Map<Node, Set<number>>();
  const waits = new Map<number, Set<number>>();
  for (const node of functionOrder(fn)) {
    let set = new Set<number>();
    if (!params.has(node)) {
      const sets = node.inputs.map((input) => behind.get(input)!);
      // Most nodes have one set below them: shared, not copied.
      const distinct = new Set(sets.filter((below) => below.size > 0));
      if (distinct.size === 1) [set] = distinct;
      else for (const below of distinct) for (const site of below) set.add(site);
    }
    const own = bySite.get(node);
    if (own !== undefined) {
      waits.set(own, set);
      set = new Set([own]);
    }
    behind.set(node, set);
  }
  const order: CollectiveSite[] = [];
  const done = new Set<number>();
  const issue = (i: number): void => {
    const stack = [i];
    while (stack.length > 0) {
      const top = stack[stack.length - 1];
      const missing = [...waits.get(top)!].filter((site) => !done.has(site)).sort((a, b) => b - a);
      if (missing.length > 0) stack.push(...missing);
      else {
        stack.pop();
        if (done.has(top)) continue;
        done.add(top);
        order.push(sites[top]);
      }
    }
  };
  for (const i of [...waits.keys()].sort((a, b) => a - b)) issue(i);
  order.forEach((site, sequence) => {
    for (const node of site.nodes) amend(node, { ...node.attrs, sequence });
  });
  return { functions: [...functions], sites: order };
}
