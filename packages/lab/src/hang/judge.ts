// From evidence to a verdict: which rank, which collective, which line, what kind. The order of the rules matters: a rank
// that raised, died or was stopped explains every rank that waits; only then is the order of the calls compared.
import { absentFromUnrecorded, absentRank, fromLogs, nobodyWaits } from "./absence.js";
import { HangContext } from "./context.js";
import { disagreement } from "./disagreement.js";
import type { HangEvidence } from "./evidence.js";
import { failedRank } from "./failures.js";
import { nameHelpers } from "./helper-sites.js";
import { pointToPoint } from "./point-to-point.js";
import { differentRoots } from "./roots.js";
import type { HangVerdict } from "./verdict.js";

const rules = [
  failedRank,
  pointToPoint,
  differentRoots,
  disagreement,
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
    if (verdict !== null) return verdict;
  }
  return nothingFound(context);
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
