// Compares two traces by name: added, removed, slower and faster events, ranked by the change in time. Counts and times are per
// step where both traces have step annotations.
import type { KernelRow } from "./kernels.js";
import type { TraceReport } from "./ranks.js";

/** The change of one name between two traces. */
interface DiffRow {
  name: string;
  type: string;
  change: "added" | "removed" | "increased" | "decreased" | "unchanged";
  before: { count: number; us: number };
  after: { count: number; us: number };
  deltaUs: number;
  deltaCount: number;
}

/** The differences between two trace reports. */
export interface TraceDiff {
  /** Whether the values are per step and rank, or per rank over the whole trace. */
  per: "step" | "trace";
  /** Times of the first trace. */
  before: { spanUs: number; computeUs: number; communicationUs: number; idleUs: number };
  /** Times of the second trace. */
  after: { spanUs: number; computeUs: number; communicationUs: number; idleUs: number };
  /** Operators with their times before and after. */
  rows: DiffRow[];
  /** What could not be compared. */
  problems: string[];
}

interface Totals {
  rows: Map<string, { type: string; count: number; us: number }>;
  times: TraceDiff["before"];
}

function totals(report: TraceReport, perStep: boolean): Totals {
  const rows: Totals["rows"] = new Map();
  const times = { spanUs: 0, computeUs: 0, communicationUs: 0, idleUs: 0 };
  for (const rank of report.ranks) {
    const share = 1 / (report.ranks.length * (perStep ? rank.steps.length : 1));
    times.spanUs += (rank.spanUs ?? 0) * share;
    times.computeUs += (rank.computeUs ?? 0) * share;
    times.communicationUs += (rank.communicationUs ?? 0) * share;
    times.idleUs += (rank.idleUs ?? 0) * share;
    for (const kernel of rank.kernels) addKernel(rows, kernel, share);
  }
  return { rows, times };
}

function addKernel(rows: Totals["rows"], kernel: KernelRow, share: number): void {
  const row = rows.get(kernel.name);
  if (row === undefined)
    rows.set(kernel.name, { type: kernel.type, count: kernel.count * share, us: kernel.sumUs * share });
  else {
    row.count += kernel.count * share;
    row.us += kernel.sumUs * share;
  }
}

/** Changes under this share of the longer time (and under 1 us) count as noise. */
const noise = 0.02;

/** Compares two trace reports by name. */
export function diffTraces(before: TraceReport, after: TraceReport): TraceDiff {
  const marksSteps = (report: TraceReport): boolean => report.ranks.every((rank) => rank.steps.length > 0);
  const perStep = marksSteps(before) && marksSteps(after);
  const a = totals(before, perStep);
  const b = totals(after, perStep);
  const none = { type: "", count: 0, us: 0 };
  const rows = [...new Set([...a.rows.keys(), ...b.rows.keys()])].map((name): DiffRow => {
    const left = a.rows.get(name) ?? none;
    const right = b.rows.get(name) ?? none;
    const deltaUs = right.us - left.us;
    const small = Math.abs(deltaUs) < 1 || Math.abs(deltaUs) < noise * Math.max(left.us, right.us);
    return {
      name,
      type: left.type || right.type,
      change:
        left.count === 0
          ? "added"
          : right.count === 0
            ? "removed"
            : small && left.count === right.count
              ? "unchanged"
              : deltaUs > 0
                ? "increased"
                : "decreased",
      before: { count: left.count, us: left.us },
      after: { count: right.count, us: right.us },
      deltaUs,
      deltaCount: right.count - left.count,
    };
  });
  rows.sort((x, y) => Math.abs(y.deltaUs) - Math.abs(x.deltaUs) || (x.name < y.name ? -1 : 1));
  const problems: string[] = [];
  if (!perStep) problems.push("at least one trace marks no steps: whole traces are compared, whatever their length");
  for (const [which, report] of [
    ["first", before],
    ["second", after],
  ] as const)
    if (report.ranks.some((rank) => !rank.complete))
      problems.push(`the ${which} trace is cut short: what is missing from it looks as if it had become faster`);
  return { per: perStep ? "step" : "trace", before: a.times, after: b.times, rows, problems };
}
