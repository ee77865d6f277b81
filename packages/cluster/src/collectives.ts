// Collectives of the functions that the members of a group run: sent once where members differ in their rank only, and
// checked before they run, because a member that waits for a collective which another one never issues would block
// everybody behind it. Works on serialized functions, which may come from anywhere.
import { type OpAttrs, type PlainFunction, WeftError } from "@weft/core/internal/graph";

type Attrs = OpAttrs["collective"];
type PlainNode = PlainFunction["nodes"][number];

const bodyOf = (attrs: unknown): PlainFunction | undefined =>
  (attrs as { body?: { $fn?: PlainFunction } } | null)?.body?.$fn;

export const hasCollective = (fn: PlainFunction): boolean =>
  fn.nodes.some(([op, , attrs]) => {
    const body = bodyOf(attrs);
    return op === "collective" || (body !== undefined && hasCollective(body));
  });

/** The function with another rank in all its collectives. What is not a function is returned as it is. */
export function withRank(fn: unknown, rank: number): unknown {
  const { nodes } = (fn ?? {}) as Partial<PlainFunction>;
  if (!Array.isArray(nodes)) return fn;
  const moved = nodes.map((node: PlainNode): PlainNode => {
    if (!Array.isArray(node)) return node;
    const [op, inputs, attrs, ...rest] = node;
    if (typeof attrs !== "object" || attrs === null) return node;
    if (op === "collective") return [op, inputs, { ...attrs, rank }, ...rest] as PlainNode;
    const body = bodyOf(attrs);
    if (body === undefined) return node;
    return [
      op,
      inputs,
      { ...attrs, body: { ...(attrs as { body: object }).body, $fn: withRank(body, rank) } },
      ...rest,
    ] as PlainNode;
  });
  return { ...(fn as object), nodes: moved };
}

/** The distinct functions among those of all members, and which one each member runs. */
export function distinctFunctions(functions: readonly PlainFunction[]): { graphs: PlainFunction[]; which: number[] } {
  const places = new Map<string, number>();
  const graphs: PlainFunction[] = [];
  const which = functions.map((fn) => {
    const same = withRank(fn, 0) as PlainFunction;
    const text = JSON.stringify(same);
    const place = places.get(text) ?? graphs.push(same) - 1;
    places.set(text, place);
    return place;
  });
  return { graphs, which };
}

/** The nodes that outputs depend on: no other node runs. */
function reachable({ params, nodes, outputs }: PlainFunction): boolean[] {
  const used = new Array<boolean>(nodes.length).fill(false);
  const stack = outputs.filter((i) => Number.isInteger(i));
  while (stack.length > 0) {
    const at = stack.pop()! - params.length;
    if (at < 0 || at >= nodes.length || used[at]) continue;
    used[at] = true;
    const inputs = nodes[at]?.[1];
    if (Array.isArray(inputs)) for (const input of inputs) if (Number.isInteger(input)) stack.push(input as number);
  }
  return used;
}

/** The collectives that a rank issues, in order, by the members that take part. */
function issued(fn: PlainFunction, rank: number, within: string, into: Map<string, string[]>): void {
  if (!Array.isArray(fn?.nodes) || !Array.isArray(fn.params) || !Array.isArray(fn.outputs)) return;
  const used = reachable(fn);
  let loops = 0;
  const own: { sequence: number; members: string; text: string }[] = [];
  fn.nodes.forEach((node, i) => {
    if (!used[i] || !Array.isArray(node)) return;
    const [op, , attrs] = node;
    const body = bodyOf(attrs);
    if (body !== undefined && Array.isArray(body.nodes) && hasCollective(body))
      issued(body, rank, `${within}${loops++} of ${(attrs as { length?: number }).length}/`, into);
    if (op !== "collective") return;
    const { kind, fn: reduce, dtype, groups, axis, splitAxis, sizes, splitSizes, sequence } = attrs as Attrs;
    const members = Array.isArray(groups) ? groups.find((g) => Array.isArray(g) && g.includes(rank)) : undefined;
    const text = JSON.stringify([kind, reduce, dtype, axis, splitAxis, sizes, splitSizes, sequence]);
    own.push({ sequence: Number(sequence), members: JSON.stringify(members ?? [rank]), text: within + text });
  });
  own.sort((a, b) => a.sequence - b.sequence);
  for (const { members, text } of own) into.set(members, [...(into.get(members) ?? []), text]);
}

/** Throws if the members would not issue the same collectives in the same order. */
export function checkCollectives(functions: readonly unknown[]): void {
  const byRank = functions.map((fn, rank) => {
    const found = new Map<string, string[]>();
    issued(fn as PlainFunction, rank, "", found);
    return found;
  });
  byRank.forEach((own, rank) => {
    for (const [members, list] of own) {
      for (const other of JSON.parse(members) as unknown[]) {
        if (!Number.isInteger(other) || byRank[other as number] === undefined)
          throw new WeftError(`define: rank ${rank} has a collective with rank ${other}, of ${byRank.length} ranks`);
        const theirs = byRank[other as number].get(members) ?? [];
        const at = list.findIndex((text, i) => text !== theirs[i]);
        if (at >= 0 || theirs.length !== list.length)
          throw new WeftError(
            `define: ranks ${rank} and ${other} issue different collectives (number ${at < 0 ? list.length : at}); all members must issue the same ones in the same order`,
          );
      }
    }
  });
}
