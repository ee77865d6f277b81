// Groups that overlap: ranks that wait for each other in a circle, each in a call of another group. No group has a wrong order of
// its own; the order between the groups differs on one rank.
import { firstIncomplete, groupName, type HangContext, lastSequence, siteOfRank } from "./context.js";
import type { RankCalls, RankEvidence } from "./evidence.js";
import { type HangVerdict, ranksText } from "./verdict.js";

/** A rank that waits in a call, and one that has not issued it because it waits in another group. */
interface Edge {
  own: RankEvidence;
  calls: RankCalls;
  index: number;
  next: number;
}

/** Members of a group that are asked: in a circle most of those that wait elsewhere are missing. */
const mostTried = 64;

/** A circle of ranks that wait for each other in calls of different groups; the ones that never took this order before. */
export function crossedGroups(context: HangContext): HangVerdict | null {
  const { evidence } = context;
  const edges = new Map<number, Edge>();
  const pending = new Map<number, number>();
  for (const own of evidence.ranks.values()) pending.set(own.rank, firstIncomplete(own));
  for (const own of evidence.ranks.values()) {
    const index = pending.get(own.rank) as number;
    if (index < 0 || own.calls === undefined || own.calls.pointToPoint[index] === 1) continue;
    const group = own.calls.group[index];
    let tried = 0;
    const next = context.members(group).find((rank) => {
      const other = evidence.ranks.get(rank);
      const at = pending.get(rank) ?? -1;
      if (other?.calls === undefined || rank === own.rank || at < 0 || other.calls.group[at] === group) return false;
      return ++tried <= mostTried && (lastSequence(other, group) ?? -1) < (own.calls as RankCalls).sequence[index];
    });
    if (next !== undefined) edges.set(own.rank, { own, calls: own.calls, index, next });
  }
  const ring = circleOf(edges);
  if (ring === null) return null;
  const odd = ring.filter(isNewOrder);
  const named = odd.length > 0 && odd.length < ring.length ? odd : ring;
  const { own, calls, index } = named[0];
  const call = evidence.calls[calls.call[index]];
  return context.verdict(
    "order",
    named.map((edge) => edge.own.rank),
    {
      site: call.site ?? siteOfRank(own),
      collective: { op: call.op, group: groupName(evidence, calls.group[index]), sequence: calls.sequence[index] },
      confidence: named === odd ? "likely" : "guess",
      evidence: [
        ring
          .map((edge) => `rank ${edge.own.rank} waits in group ${groupName(evidence, edge.calls.group[edge.index])}`)
          .join(", ") + ": each for one of the others, which waits in another group",
        ...(named === odd
          ? [`${ranksText(odd.map((edge) => edge.own.rank))} never went from the group before to this one`]
          : []),
      ],
    },
  );
}

function circleOf(edges: ReadonlyMap<number, Edge>): Edge[] | null {
  const seen = new Set<number>();
  for (const first of edges.values()) {
    const path: Edge[] = [];
    const places = new Map<number, number>();
    let edge: Edge | undefined = first;
    while (edge !== undefined && !seen.has(edge.own.rank)) {
      seen.add(edge.own.rank);
      places.set(edge.own.rank, path.length);
      path.push(edge);
      edge = edges.get(edge.next);
    }
    const start = edge === undefined ? undefined : places.get(edge.own.rank);
    if (start !== undefined && path.length - start > 1) return path.slice(start);
  }
  return null;
}

/** Whether a rank goes from the group of its last call to this one for the first time, having left that group before. */
function isNewOrder({ calls, index }: Edge): boolean {
  if (index < 1) return false;
  let left = 0;
  for (let i = 1; i < index; i++) {
    if (calls.group[i - 1] !== calls.group[index - 1]) continue;
    if (calls.group[i] === calls.group[index]) return false;
    left++;
  }
  return left > 0;
}
