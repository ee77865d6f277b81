// Which values that one fusion group computes and another reads are written to memory; the others are rematerialized by their readers.
import { isHalf, isOp, type Node, numel } from "../graph/index.js";
import { isExtremum, isReduction } from "./fuse-rules.js";
import type { FusionGroup } from "./fusion-group.js";
import type { Rematerializer } from "./rematerialize.js";

/** The groups of a function, and what is stored so far. */
interface Grouped {
  order: readonly Node[];
  groups: readonly FusionGroup[];
  groupOf: ReadonlyMap<Node, FusionGroup>;
  params: ReadonlySet<Node>;
  /** Nodes whose values are written to memory; values are added. */
  stored: Set<Node>;
  /** Values that are computed where gathers read them. */
  through: ReadonlySet<Node>;
  rematerializer: Rematerializer;
  /** What a loop node reads. */
  bases(node: Node): readonly { base: Node }[];
}

/** For each node the groups that read it, if others than its own do. */
function readersOf({ groups, groupOf, bases }: Grouped): Map<Node, Set<FusionGroup>> {
  const readers = new Map<Node, Set<FusionGroup>>();
  for (const group of groups) {
    for (const member of group.members) {
      for (const { base } of bases(member)) {
        const own = groupOf.get(base);
        if (own === undefined || own === group) continue;
        const set = readers.get(base) ?? new Set<FusionGroup>();
        set.add(group);
        readers.set(base, set);
      }
    }
  }
  return readers;
}

/** Nodes that other groups read and that scale one value, which is stored in their place. */
function sharedCores(nodes: Iterable<Node>, { groupOf, stored, rematerializer }: Grouped): Map<Node, Node> {
  const byCore = new Map<Node, Node[]>();
  for (const node of nodes) {
    const core = stored.has(node) ? node : rematerializer.core(node);
    if (core !== node && groupOf.has(core) && !isReduction(core)) byCore.set(core, [...(byCore.get(core) ?? []), node]);
  }
  return new Map(
    [...byCore].flatMap(([core, all]) => (all.length < 3 ? [] : all.map((node) => [node, core] as const))),
  );
}

/** The real or imaginary part of a number in memory: reading it there costs no more than reading a copy. */
function isPart(node: Node, { params, stored, bases }: Grouped): boolean {
  if (!isOp(node, "unary") || (node.attrs.fn !== "real" && node.attrs.fn !== "imag")) return false;
  return bases(node).every(({ base }) => params.has(base) || stored.has(base));
}

/** What is stored in place of a value: a half that it widens has half the bytes, and its readers widen it again. */
function narrowest(node: Node, { groupOf, through }: Grouped): Node {
  if (!isOp(node, "cast") || node.dtype !== "float32") return node;
  const [half] = node.inputs;
  return isHalf(half.dtype) && groupOf.has(half) && !through.has(half) && !isReduction(half) ? half : node;
}

/**
 * What is compared with its largest or smallest elements, as in their gradients. A kernel that computed it again could round it in another
 * way (of half types, or where a product and a sum are fused), and no element would be equal.
 */
function comparedWithExtrema({ order, bases }: Grouped): Set<Node> {
  const compared = new Set<Node>();
  // Extrema of half types are found of widened numbers.
  const narrow = (node: Node): Node => {
    const read = isOp(node, "cast") && isHalf(node.inputs[0].dtype) ? bases(node) : [];
    return read.length === 1 ? read[0].base : node;
  };
  const isFound = (node: Node): boolean =>
    isExtremum(node) || (isOp(node, "cast") && bases(node).some(({ base }) => isExtremum(base)));
  for (const node of order) {
    if (!isOp(node, "binary") || node.attrs.fn !== "eq") continue;
    const read = bases(node).map(({ base }) => base);
    if (!read.some(isFound)) continue;
    for (const base of read) if (!isFound(base)) compared.add(narrow(base));
  }
  return compared;
}

/**
 * A value that another group reads is either stored and loaded, or rematerialized there. Storing costs one store and
 * one load per reader; rematerializing costs the loads of its operands, and arithmetic.
 */
export function chooseStored(grouped: Grouped): void {
  const { order, groupOf, stored, rematerializer } = grouped;
  const readers = readersOf(grouped);
  const shared = sharedCores(readers.keys(), grouped);
  const compared = comparedWithExtrema(grouped);
  for (const node of order) {
    const groups = readers.get(node);
    if (groups === undefined || stored.has(node)) continue;
    if (grouped.through.has(node)) {
      for (const leaf of rematerializer.leafLoads(node, true).keys()) if (groupOf.has(leaf)) stored.add(leaf);
      continue;
    }
    if (compared.has(node)) {
      stored.add(node);
      continue;
    }
    const core = shared.get(node);
    if (core !== undefined) {
      stored.add(core);
      continue;
    }
    if (isReduction(node) || node.op === "random") {
      stored.add(node);
      continue;
    }
    if (isPart(node, grouped)) continue;
    const size = numel(node.shape);
    const widest = Math.max(...[...groups].map((g) => g.size));
    const repeated = widest > size * 2;
    // A bias in a half type: libraries read it as it is, and it is not rounded again for every row.
    const rounded = isOp(node, "cast") && isHalf(node.dtype) && widest >= size * 64;
    if (rounded || rematerializer.arithmetic(node) > (repeated ? 3 : 40)) {
      stored.add(narrowest(node, grouped));
      continue;
    }
    // In units of the value's own memory.
    const store = groups.size + 1;
    const ways = [false, true].map((halves) => {
      const loads = rematerializer.leafLoads(node, true, halves);
      return { loads, cost: rematerializer.cost(node, loads, groups.size, halves) };
    });
    const [plain, halved] = ways;
    const best = halved.cost < Math.min(plain.cost, store) ? halved : plain;
    if (best.cost > store) stored.add(node);
    else for (const leaf of best.loads.keys()) if (groupOf.has(leaf)) stored.add(leaf);
  }
}
