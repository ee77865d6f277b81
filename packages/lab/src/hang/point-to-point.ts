// Diagnoses hangs in point-to-point communication: sends and receives without a matching call.
import { reasonOfAbsence } from "./absence.js";
import { groupName, type HangContext, siteOfRank } from "./context.js";
import type { PointToPoint, RankEvidence } from "./evidence.js";
import type { HangVerdict } from "./verdict.js";

const kindOf = (op: string): "send" | "recv" => (op.includes("send") ? "send" : "recv");

/** How many calls of a kind a rank has issued to a partner: only the last ones are kept, but they are numbered. */
function countOf(calls: readonly PointToPoint[], kind: "send" | "recv", peer: number): number {
  const found = calls.filter((call) => kindOf(call.op) === kind && call.peer === peer);
  return found.reduce((most, call) => Math.max(most, call.index ?? 0), found.length);
}

interface Blocked {
  own: RankEvidence;
  call: PointToPoint;
  peer: number;
}

/** A send and a receive that wait for each other with different tags: the rank whose tag does not continue its own before. */
function differentTags(context: HangContext, blocked: readonly Blocked[]): HangVerdict | null {
  for (const one of blocked) {
    const other = blocked.find(({ own, peer }) => own.rank === one.peer && peer === one.own.rank);
    if (other === undefined || kindOf(one.call.op) === kindOf(other.call.op)) continue;
    if (one.call.tag === null || other.call.tag === null || one.call.tag === other.call.tag) continue;
    const odd = [one, other].filter((side) => !continuesTags(side));
    const named = odd.length === 1 ? odd : [one, other];
    const text = ({ own, call }: Blocked) => `rank ${own.rank} waits in ${call.op} with tag ${call.tag}`;
    return context.verdict(
      "point-to-point",
      named.map(({ own }) => own.rank),
      {
        site: named[0].call.site,
        collective: { op: kindOf(named[0].call.op), group: "", sequence: null },
        confidence: odd.length === 1 ? "likely" : "guess",
        evidence: [`${text(one)}, ${text(other)}: a message only meets a receive with its own tag`],
      },
    );
  }
  return null;
}

/** Whether the tag of a call goes on as those before it did: constant, or in steps of one size. */
function continuesTags({ own, call, peer }: Blocked): boolean {
  const tags = own.pointToPoint
    .filter((one) => kindOf(one.op) === kindOf(call.op) && one.peer === peer && one.tag !== null)
    .map((one) => one.tag as number);
  const [before, last, now] = tags.slice(-3);
  return tags.length < 3 || now - last === last - before;
}

/** Ranks that wait for each other in a circle with the same kind of call, none further than the others: each of them comes first. */
function circle(context: HangContext, blocked: readonly Blocked[]): HangVerdict | null {
  const byRank = new Map(blocked.map((one) => [one.own.rank, one]));
  for (const first of blocked) {
    const ring: Blocked[] = [];
    let next: Blocked | undefined = first;
    while (next !== undefined && !ring.includes(next)) {
      ring.push(next);
      next = byRank.get(next.peer);
    }
    const isEven = ring.every(
      ({ own, call }) =>
        kindOf(call.op) === kindOf(first.call.op) && own.pointToPoint.length === first.own.pointToPoint.length,
    );
    if (next !== first || ring.length < 2 || !isEven) continue;
    const half = kindOf(first.call.op) === "recv" ? "receives before it sends" : "sends before it receives";
    return context.verdict(
      "point-to-point",
      ring.map(({ own }) => own.rank),
      {
        site: first.call.site,
        collective: { op: kindOf(first.call.op), group: "", sequence: null },
        confidence: "certain",
        evidence: [
          `${ring.map(({ own, call, peer }) => `rank ${own.rank} waits in ${call.op} with rank ${peer}`).join(", ")}: each of them ${half}`,
        ],
      },
    );
  }
  return null;
}

/** A blocked send or receive whose partner never issued the other half. */
export function pointToPoint(context: HangContext): HangVerdict | null {
  const blocked = [...context.evidence.ranks.values()].flatMap((own) => {
    const call = own.pointToPoint.find((one) => one.done === false && one.peer !== null);
    return call === undefined ? [] : [{ own, call, peer: call.peer as number }];
  });
  if (blocked.length === 0) return recordedPointToPoint(context);
  const tags = differentTags(context, blocked);
  if (tags !== null) return tags;
  const ring = circle(context, blocked);
  if (ring !== null) return ring;
  // In a chain of stages all wait for the one whose partner waits in no send or receive. In a ring there is none: then the one
  // that got least far is the cause.
  const isBlocked = new Set(blocked.map((one) => one.own.rank));
  blocked.sort(
    (a, b) =>
      Number(isBlocked.has(a.peer)) - Number(isBlocked.has(b.peer)) ||
      a.own.pointToPoint.length - b.own.pointToPoint.length,
  );
  for (const { own, call, peer } of blocked) {
    const partner = context.evidence.ranks.get(peer);
    const half = kindOf(call.op) === "recv" ? "send" : "recv";
    const mine = call.index ?? countOf(own.pointToPoint, kindOf(call.op), peer);
    const theirs = partner === undefined ? 0 : countOf(partner.pointToPoint, half, own.rank);
    if (theirs >= mine) continue;
    // A partner that is blocked itself, at the same number of calls, is no cause.
    const partnerBlocked = blocked.find((one) => one.own.rank === peer);
    if (partnerBlocked !== undefined && partnerBlocked.own.pointToPoint.length < own.pointToPoint.length) continue;
    const why = reasonOfAbsence(partner);
    if (why !== null && why.kind !== "late")
      return context.verdict(why.kind, [peer], {
        site: why.site,
        evidence: why.facts,
        collective: { op: kindOf(call.op), group: "", sequence: null },
      });
    return context.verdict("point-to-point", [peer], {
      site: call.site,
      at: siteOfRank(partner),
      collective: { op: kindOf(call.op), group: "", sequence: null },
      confidence: "certain",
      evidence: [
        `rank ${own.rank} waits in ${call.op} number ${mine} with rank ${peer}, which has issued ${theirs} ${half}s to it`,
      ],
    });
  }
  return null;
}

/** The same from the recorder's entries, where the backend records point-to-point calls (NCCL). */
function recordedPointToPoint(context: HangContext): HangVerdict | null {
  const issued = new Map<string, number>();
  for (const { rank, calls } of context.evidence.ranks.values())
    for (let i = 0; calls !== undefined && i < calls.count; i++) {
      const { op, peer } = context.evidence.calls[calls.call[i]];
      if (peer !== null) issued.set(`${op} ${rank} ${peer}`, (issued.get(`${op} ${rank} ${peer}`) ?? 0) + 1);
    }
  for (const { rank, calls } of context.evidence.ranks.values())
    for (let i = 0; calls !== undefined && i < calls.count; i++) {
      const call = context.evidence.calls[calls.call[i]];
      if (call.peer === null || calls.state[i] === 2) continue;
      const half = call.op === "recv" ? "send" : "recv";
      const mine = issued.get(`${call.op} ${rank} ${call.peer}`) ?? 0;
      const theirs = issued.get(`${half} ${call.peer} ${rank}`) ?? 0;
      if (theirs >= mine || context.evidence.ranks.get(call.peer)?.calls === undefined) continue;
      return context.verdict("point-to-point", [call.peer], {
        site: call.site,
        collective: { op: call.op, group: groupName(context.evidence, calls.group[i]), sequence: calls.sequence[i] },
        evidence: [
          `rank ${rank} waits in ${call.op} number ${mine} with rank ${call.peer}, which has issued ${theirs} ${half}s to it`,
        ],
      });
    }
  return null;
}
