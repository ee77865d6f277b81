// From evidence to a verdict: which rank, which collective, which line, what kind. The order of the rules matters: a rank
// that raised, died or was stopped explains every rank that waits; only then is the order of the calls compared.
import { absentFromUnrecorded, absentRank, fromLogs, nobodyWaits } from "./absence.js";
import { HangContext } from "./context.js";
import { crossedGroups } from "./crossed-groups.js";
import { disagreement } from "./disagreement.js";
import { type HangEvidence, userSite } from "./evidence.js";
import { failedRank } from "./failures.js";
import { nameHelpers } from "./helper-sites.js";
import { pointToPoint } from "./point-to-point.js";
import { differentGroups, differentRoots, differentWorlds } from "./roots.js";
import { type HangVerdict, isConsequence, siteText } from "./verdict.js";

const rules = [
  failedRank,
  differentWorlds,
  pointToPoint,
  differentRoots,
  differentGroups,
  disagreement,
  crossedGroups,
  absentRank,
  absentFromUnrecorded,
  fromLogs,
  nobodyWaits,
];

/** Names the culprit of a stuck job. */
export function judgeHang(evidence: HangEvidence): HangVerdict {
  nameHelpers(evidence);
  const context = new HangContext(evidence);
  for (const rule of rules) {
    const verdict = rule(context);
    if (verdict !== null) return withException(context, verdict);
  }
  return nothingFound(context);
}

/** A culprit that handles an exception: that is why it left the loop or issued another call. */
function withException({ evidence }: HangContext, verdict: HangVerdict): HangVerdict {
  const handled = verdict.culprits.length === 1 ? evidence.ranks.get(verdict.culprits[0])?.handling : undefined;
  if (handled === undefined || verdict.kind === "raised" || isConsequence(handled)) return verdict;
  const site = userSite(handled.frames);
  const fact = `rank ${verdict.culprits[0]} handles ${handled.type}: ${handled.message.split("\n")[0].slice(0, 200)}${site === null ? "" : ` (raised at ${siteText(site)})`}`;
  const evidenceLines = [...verdict.evidence, fact];
  if (verdict.kind !== "uneven" || site === null) return { ...verdict, evidence: evidenceLines };
  return { ...verdict, kind: "raised", site, at: verdict.at, evidence: evidenceLines };
}

function nothingFound(context: HangContext): HangVerdict {
  const anything = context.waiting.length > 0;
  return context.verdict(anything ? "unknown" : "none", [], {
    site: context.waiting[0]?.site ?? null,
    confidence: "guess",
    evidence: [
      anything
        ? "every rank that left a record waits in the same call: a rank without a record, or the network, holds it up"
        : "no call is waiting in these files",
    ],
  });
}
