// Ranks the findings that may explain a study. Faults of the measurement come first, then causes, then symptoms and open questions. Ties
// are broken by severity, by kind of evidence (counted before inferred), and by predicted gain.
import { bySeverity, type Finding } from "../model/index.js";
import { gain } from "./reported.js";

/** Findings about the measurement itself or the whole run: they never explain why a job scales badly. */
const circumstances = new Set([
  "disturbed-machine",
  "noisy",
  "not-distinguishable",
  "past-the-peak",
  "serial-initialization",
  "cheap-switches",
  "dirty-data",
  "count-failed",
  "no-scaling-data",
  "compile-time",
]);

/** Findings that say that time is lost, not why. */
export const symptoms: ReadonlySet<string> = new Set([
  "communication-cost",
  "communication-dominates",
  "poor-overlap",
  "small-messages",
  "small-batch",
  "bucket-size",
  "parallel-efficiency",
  "low-utilization",
  "device-idle",
  "host-wait",
  "work-after-update",
  "trace-outside-operators",
]);

/** Rank of the first piece of evidence by its origin: counted before inferred. */
const inferred = ({ evidence: [first] }: Finding): number => Number(first?.rank === "inferred");

const matters = (f: Finding): boolean => ["invalid", "unresolved", "high", "moderate"].includes(f.severity);

/** What the timeline of a trace shows: why the device was idle. */
const ofTraces = [
  "trace-data-wait",
  "trace-recompilation",
  "trace-host-callback",
  "trace-synchronization",
  "trace-allocation",
  "trace-small-kernels",
  "trace-copies",
];

/** Findings that are a consequence of another one, where both are found. */
const consequences: Readonly<Record<string, readonly string[]>> = {
  "launch-bound": ofTraces,
  "python-pauses": ofTraces,
  "trace-host-bound": ofTraces,
  // Processes that start again compete for the cores, and the first batches come late.
  "cpu-oversubscription": ["loaders-restarted"],
  "input-bound": ["loaders-restarted"],
  // Many small exchanges measure latency, not the link.
  "slow-link": ["small-buckets"],
};

/** Causes, consequences of another finding, open questions, symptoms. */
function kindOf(f: Finding, all: readonly Finding[]): number {
  if (symptoms.has(f.id)) return 3;
  if (f.severity === "unresolved") return 2;
  return Number(all.some((o) => matters(o) && consequences[f.id]?.includes(o.id)));
}

/** Findings that may explain a study, the best explanation first. `largest` is the largest measured device count. */
export function causesOf(findings: readonly Finding[], largest: number | undefined): Finding[] {
  return findings
    .filter((f) => matters(f) && !circumstances.has(f.id))
    .filter(
      (f) =>
        f.severity === "invalid" ||
        f.devices === undefined ||
        largest === undefined ||
        f.devices === largest ||
        f.shownBy?.devices.includes(largest),
    )
    .sort((a, b) => {
      const hard = Number(b.severity === "invalid") - Number(a.severity === "invalid");
      const cause = kindOf(a, findings) - kindOf(b, findings);
      return hard || cause || bySeverity(a, b) || inferred(a) - inferred(b) || gain(b) - gain(a);
    });
}
