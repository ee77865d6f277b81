// Ranks that raised an exception, died or were stopped.
import { groupName, type HangContext, siteOfRank } from "./context.js";
import { type Raised, type RankEvidence, type Site, userSite } from "./evidence.js";
import { placeOf } from "./programs.js";
import { type HangVerdict, isConsequence } from "./verdict.js";

/** Ranks that raised, died or were stopped. */
export function failedRank(context: HangContext): HangVerdict | null {
  const ranks = [...context.evidence.ranks.values()];
  const raised = ranks.filter((own) => own.raised !== undefined && !isConsequence(own.raised));
  if (raised.length > 0) {
    const [first] = raised;
    const { type, message, frames } = first.raised as Raised;
    const culprits = raised.map((own) => own.rank);
    return context.verdict("raised", culprits, {
      collective:
        context.mainCollective(culprits) ?? raisedCollective(context, culprits) ?? nextCollective(context, first),
      site: userSite(frames) ?? frames[0] ?? null,
      confidence: "certain",
      evidence: [`rank ${first.rank} raised ${type}: ${message.split("\n")[0].slice(0, 300)}`],
    });
  }
  for (const state of ["stopped", "dead"] as const) {
    const found = ranks.filter((own) => own.process?.state === state && own.raised === undefined);
    if (found.length === 0) continue;
    const culprits = found.map((own) => own.rank);
    const site = context.mainWaiting(culprits)?.site ?? raisedSite(context, culprits) ?? siteOfRank(found[0]);
    return context.verdict(state, culprits, {
      site,
      at: siteOfRank(found[0]),
      collective: context.mainCollective(culprits) ?? raisedCollective(context, culprits),
      confidence: "certain",
      evidence: found.slice(0, 4).map((own) => `rank ${own.rank}: ${own.process?.detail}`),
    });
  }
  return endedEarly(context, ranks);
}

/** Ranks whose program has ended by itself, while others lost their connections to them in a collective. */
function endedEarly(context: HangContext, ranks: readonly RankEvidence[]): HangVerdict | null {
  const ended = ranks.filter((own) => own.process?.state === "exited").map((own) => own.rank);
  const site = raisedSite(context, ended);
  if (ended.length === 0 || site === null || ended.length === ranks.length) return null;
  return context.verdict("uneven", ended, {
    site,
    collective: raisedCollective(context, ended),
    evidence: ended.slice(0, 4).map((rank) => `rank ${rank}: ${context.evidence.ranks.get(rank)?.process?.detail}`),
  });
}

/** Where ranks were when they reported the failure of another one. */
function raisedSite(context: HangContext, culprits: readonly number[]): Site | null {
  for (const own of context.evidence.ranks.values())
    if (own.raised !== undefined && !culprits.includes(own.rank)) {
      const site = userSite(own.raised.frames);
      if (site !== null) return site;
    }
  return null;
}

function raisedCollective(context: HangContext, culprits: readonly number[]): HangVerdict["collective"] {
  for (const own of context.evidence.ranks.values()) {
    const { calls } = own;
    if (own.raised === undefined || calls === undefined || calls.count === 0 || culprits.includes(own.rank)) continue;
    const i = calls.count - 1;
    const { op } = context.evidence.calls[calls.call[i]];
    return { op, group: groupName(context.evidence, calls.group[i]), sequence: calls.sequence[i] };
  }
  return null;
}

/** What a rank would have issued next, going by its own loop. */
function nextCollective(context: HangContext, { calls }: RankEvidence): HangVerdict["collective"] {
  if (calls === undefined || calls.count === 0) return null;
  const last = calls.count - 1;
  const place = placeOf(context.evidence.calls[calls.call[last]]);
  for (let i = last - 1; i > 0; i--)
    if (placeOf(context.evidence.calls[calls.call[i - 1]]) === place) {
      const group = groupName(context.evidence, calls.group[i]);
      return { op: context.evidence.calls[calls.call[i]].op, group, sequence: null };
    }
  return null;
}
