// The words for verdicts and ratios: every output (terminal, text report, TeX, CSV, page, charts) takes them from here, so that
// they agree.
import { listSome, shortNumber } from "@weft/formats/text";
import type { StudyReport } from "../diagnosis/index.js";
import type { Finding } from "../model/index.js";
import type { ScalingPoint } from "../validity/index.js";
import { plural } from "./rows.js";

const times = (x: number): string => `${x.toFixed(2)}x`;
const percent = (x: number): string => `${(x * 100).toFixed(1)}%`;

/** Seconds with two decimals; those of short times (`mean`) with as many digits as they need. */
export const secondsColumn = (x: number, mean = x): string => (mean >= 1 || x === 0 ? x.toFixed(2) : shortNumber(x));

/** The speedup of a count, or what it is instead. */
export const ratioText = (point: ScalingPoint | undefined): string =>
  point === undefined ? "-" : point.valid ? times(point.speedup) : point.status;

/** Work per second relative to the baseline; both readings where the ratio is undecided. */
export function workText(point: ScalingPoint | undefined): string {
  if (point?.workSpeedup == null) return "-";
  if (point.valid || point.readings.length === 0) return times(point.workSpeedup);
  return point.readings.map((r) => times(r.speedup!)).join(" or ");
}

/** Efficiency of the work per second, where one number can be given. */
export const efficiencyText = (point: ScalingPoint | undefined): string =>
  point?.workEfficiency == null || (!point.valid && point.readings.length > 0) ? "-" : percent(point.workEfficiency);

/** The class of a count; none where the number behind it cannot be defended. */
export const classText = (point: ScalingPoint | undefined): string =>
  point === undefined || point.workSpeedup === null || (!point.valid && point.readings.length > 0) ? "-" : point.class;

/** "each rank does all of the work: work per second 1.85x (97%)". */
export const readingText = (reading: { text: string; likelihood: number }): string =>
  `${reading.text} (likelihood ${(reading.likelihood * 100).toFixed(0)}%)`;

/** Why an invalid study has no speedup, and what can still be said. */
function notValidText(report: StudyReport): string {
  const last = report.scaling.at(-1)!;
  const causes = [...new Set(report.findings.filter((f) => f.severity === "invalid").map((f) => f.id))].join(", ");
  if (last.workSpeedup === null) return `NOT VALID as a scaling result (${causes}); no speedup can be given`;
  if (last.readings.length > 0)
    return `NOT VALID as a scaling result (${causes}); on ${plural(last.devices)} either ${last.readings.map(readingText).join(", or ")}`;
  return `NOT VALID as a scaling result (${causes}); the work-normalized speedup is ${times(last.workSpeedup)} (${((last.workEfficiency ?? 0) * 100).toFixed(0)}%) on ${plural(last.devices)}, work per second`;
}

/** How the division of the work is known, for a valid study. */
function knownText(report: StudyReport): string {
  const known = report.scaling.filter((p) => p.workKnown !== "baseline").map((p) => p.workKnown);
  if (known.every((k) => k === "counted")) return "the work of each rank was counted";
  if (known.every((k) => k === "counted" || k === "derived")) return "the work of each rank follows from its steps";
  return "that the work is divided is assumed: nothing counted it";
}

/** The verdict on a study in one line. */
export function verdictLine(report: StudyReport): string {
  const doubt = report.disturbance;
  const said = statusLine(report);
  return doubt === null || report.status === "nothing to compare"
    ? said
    : `${said}; how well it scales: cannot say: ${doubt}`;
}

function statusLine(report: StudyReport): string {
  const last = report.scaling.at(-1);
  switch (report.status) {
    case "nothing to compare":
      return report.runs.some((r) => r.devicesUnknown)
        ? "nothing to compare: nothing says on how many devices it ran"
        : "nothing to compare (a speedup needs two device counts)";
    case "valid":
      return `valid, ${last!.weak ? "weak scaling, " : ""}${times(last!.speedup)} on ${plural(last!.devices)} (${percent(last!.efficiency)}); ${knownText(report)}`;
    case "undecided": {
      const open = report.findings.filter((f) => f.severity === "unresolved");
      const point = report.scaling.findLast((p) => p.status === "undecided")!;
      const why = [...new Set(open.map((f) => f.id))].join(", ");
      return point.readings.length > 0
        ? `UNDECIDED (${why}): on ${plural(point.devices)} either ${point.readings.map(readingText).join(", or ")}`
        : `UNDECIDED (${why}): the ratio on ${plural(point.devices)} is ${times(point.speedup)}; the findings say what would settle it`;
    }
    case "not valid":
      return notValidText(report);
    default:
      return report.status satisfies never;
  }
}

/** The verdict in a few words, for the titles of charts. */
export function verdictTitle(report: StudyReport): string {
  const first = report.findings.find((f) => f.severity === "invalid" || f.severity === "unresolved");
  if (report.status === "valid") return `valid: ${knownText(report)}`;
  if (report.status === "not valid") return `not valid as a scaling result: ${first!.title.toLowerCase()}`;
  return report.status === "undecided" ? `undecided: ${first!.title.toLowerCase()}` : report.status;
}

/** Exit codes of a verdict: counted evidence against the study, or two readings that fit. */
export const verdictExitCodes = { "not valid": 3, undecided: 4, valid: 0, "nothing to compare": 0 } as const;

/** The exit code of several studies: the worst verdict decides. */
export const verdictExitCode = (reports: readonly StudyReport[]): number =>
  verdictExitCodes[
    (["not valid", "undecided"] as const).find((status) => reports.some((r) => r.status === status)) ?? "valid"
  ];

/** "1. [invalid] Title (rule-id, 4 devices)". */
export const findingTitle = (finding: Finding, index: number): string =>
  `${index + 1}. [${finding.severity}] ${finding.title} (${[finding.id, ...whereText(finding)].join(", ")})`;

/** The device counts that show a finding and, of several runs, how many of them. */
export function whereText({ devices, shownBy }: Finding): string[] {
  if (shownBy === undefined) return devices === undefined ? [] : [plural(devices)];
  const counts = shownBy.devices.length === 1 ? plural(shownBy.devices[0]!) : `${listSome(shownBy.devices)} devices`;
  return [counts, ...(shownBy.runs.length === 0 ? [] : [`${shownBy.runs.length} of ${shownBy.of} runs`])];
}

/** The predicted effect of a finding as text; null without a prediction. */
export function effectText(predicted: Finding["predicted"]): string | null {
  if (predicted === null) return null;
  const [low, high] = predicted.interval ?? [null, null];
  const between = low === null ? null : `${shortNumber(low)} to ${shortNumber(high!)} ${predicted.unit}`;
  // Without a value there are only bounds, without a probability.
  const to = predicted.to === null ? (between ?? "unknown") : `${shortNumber(predicted.to)} ${predicted.unit}`;
  const range = predicted.to === null || between === null ? "" : ` (80%: ${between})`;
  const from = predicted.from === null ? "" : `${shortNumber(predicted.from)} -> `;
  return `${predicted.metric}${predicted.devices === undefined ? "" : ` at ${plural(predicted.devices)}`}: ${from}${to}${range}; ${predicted.reason}`;
}
