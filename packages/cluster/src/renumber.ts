// Renumbers the ranks of a function's collectives to positions in the list of participating workers. Works on
// serialized functions, including loop bodies.
import type { OpAttrs, PlainFunction } from "@weft/core/internal/graph";

type Attrs = OpAttrs["collective"];

export function renumber(fn: PlainFunction, place: ReadonlyMap<number, number>): PlainFunction {
  if ([...place].every(([rank, at]) => rank === at)) return fn;
  const to = (rank: number): number => place.get(rank) ?? -1;
  const nodes = fn.nodes.map((node): PlainFunction["nodes"][number] => {
    const [op, inputs, attrs, avals] = node;
    if (op === "collective") {
      const { groups, rank, sends, receives } = attrs as Attrs;
      const moved = {
        ...(attrs as Attrs),
        // Drop groups that none of these members belong to.
        groups: groups.filter((members) => members.every((r) => place.has(r))).map((members) => members.map(to)),
        rank: to(rank),
        sends: sends.map((box) => ({ ...box, rank: to(box.rank) })),
        receives: receives.map((box) => ({ ...box, rank: to(box.rank) })),
      };
      return [op, inputs, moved, avals];
    }
    const body = (attrs as { body?: { $fn: PlainFunction } }).body;
    if (body === undefined) return node;
    return [op, inputs, { ...(attrs as object), body: { $fn: renumber(body.$fn, place) } }, avals];
  });
  return { ...fn, nodes };
}
