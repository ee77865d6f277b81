// From the findings of single runs to those of a report: one finding per cause, and no advice from the times of a machine that
// others used.

import { mean, median } from "@weft/formats/stats";
import { listSome } from "@weft/formats/text";
import { bySeverity, disturbanceIn, evidence, type Finding, type Run } from "../model/index.js";

/** Rules that judge a device count as a whole: how many runs show them is no question. */
const ofCounts = new Set([
  "work-not-divided",
  "work-left-out",
  "baseline-mismatch",
  "not-distinguishable",
  "noisy",
  "past-the-peak",
]);

/** Runs per device count from which a finding in a minority of them is an exception. */
const fewestRepeats = 3;

/** The share of the time that a fix is predicted to save; 0 without a prediction. */
export const gain = ({ predicted }: Finding): number =>
  predicted?.from == null || predicted.to === null || !(predicted.from > 0) ? 0 : 1 - predicted.to / predicted.from;

/** What makes two findings one: the rule, and its words without their numbers. */
const keyOf = (f: Finding): string =>
  [f.id, f.title, f.cause, f.evidence[0]?.what ?? ""].join("\n").replaceAll(/\d+(?:\.\d+)?/g, "#");

/** Findings against the study itself come first, then those at more devices. */
function first(a: Finding, b: Finding): number {
  const against = (f: Finding): number => ["invalid", "unresolved"].indexOf(f.severity) >>> 0;
  return against(a) - against(b) || (b.devices ?? 0) - (a.devices ?? 0) || bySeverity(a, b);
}

/** The finding that stands for all with the same cause: of those at its count and severity, the one with the middle gain. */
function middleOf(group: readonly Finding[]): Finding {
  const top = [...group].sort(first)[0]!;
  const peers = group.filter((f) => f.devices === top.devices && f.severity === top.severity);
  const middle = median(peers.map(gain));
  return peers.reduce((a, b) => (Math.abs(gain(b) - middle) < Math.abs(gain(a) - middle) ? b : a));
}

/**
 * Joins the findings that repeats and device counts share. What `ofTimes` lists and only a minority of the repeats of a count
 * shows is an exception: it is reported, but explains nothing.
 */
export function onePerCause(
  findings: readonly Finding[],
  runs: readonly Run[],
  ofTimes: ReadonlySet<string>,
): Finding[] {
  const groups = new Map<string, Finding[]>();
  for (const f of findings) groups.set(keyOf(f), [...(groups.get(keyOf(f)) ?? []), f]);
  return [...groups.values()]
    .map((group): Finding => {
      const found = middleOf(group);
      const shown = ofCounts.has(found.id) ? [] : [...new Set(group.flatMap((f) => f.run ?? []))];
      const devices = [...new Set(group.flatMap((f) => f.devices ?? []))].sort((a, b) => a - b);
      const of = runs.filter((run) => devices.includes(run.devices)).length;
      const repeats = runs.filter((run) => run.devices === found.devices).length;
      const here = new Set(group.flatMap((f) => (f.devices === found.devices ? (f.run ?? []) : []))).size;
      const matters = found.severity === "high" || found.severity === "moderate";
      const exception = matters && ofTimes.has(found.id) && repeats >= fewestRepeats && here < repeats / 2;
      return {
        ...found,
        ...(of > 1 && devices.length > 0 && { shownBy: { runs: shown, devices, of } }),
        ...(exception && { severity: "low" as const }),
        ...(found.id === "disturbed-machine" && { evidence: group.flatMap((f) => f.evidence) }),
      };
    })
    .sort(bySeverity);
}

/**
 * Leaves out what rests on the times of disturbed runs, and names it in the finding about the machine. What was counted stays,
 * without promised times.
 */
export function withoutDisturbed(
  findings: readonly Finding[],
  runs: readonly Run[],
  ofTimes: ReadonlySet<string>,
): Finding[] {
  const disturbed = new Set(runs.filter((run) => disturbanceIn(run) !== null).map((run) => run.id));
  const isOf = (f: Finding): boolean => f.run !== undefined && disturbed.has(f.run);
  const left = findings.filter((f) => isOf(f) && (ofTimes.has(f.id) || f.id.startsWith("trace-")));
  return findings
    .filter((f) => !left.includes(f))
    .map((f): Finding => {
      if (!isOf(f)) return f;
      const own = left.filter((o) => o.run === f.run).map((o) => o.id);
      if (f.id !== "disturbed-machine" || own.length === 0) return { ...f, predicted: null };
      const text = `${f.run}: its times suggest ${listSome(own)}; cannot say on a disturbed machine`;
      return {
        ...f,
        predicted: null,
        evidence: [...f.evidence, evidence("left out", own.length, { rank: "inferred", text })],
      };
    });
}

/** Why nothing can be said about the times of a study: every run of some count was disturbed. Null if nothing speaks against them. */
export function studyDisturbance(runs: readonly Run[]): string | null {
  const seen = runs.map((run) => ({ devices: run.devices, disturbance: disturbanceIn(run) }));
  const spoiled = seen.filter(({ devices }) =>
    seen.every((other) => other.devices !== devices || other.disturbance !== null),
  );
  if (spoiled.length === 0) return null;
  // Without the processes, which the finding names.
  const shares = spoiled.flatMap(({ disturbance }) =>
    Number(/^others used (\d+)% of the cores/.exec(disturbance!)?.[1] ?? []),
  );
  return shares.length === spoiled.length
    ? `others used ${mean(shares).toFixed(0)}% of the cores`
    : spoiled[0]!.disturbance!.replaceAll(/: [^;]*/g, "");
}
