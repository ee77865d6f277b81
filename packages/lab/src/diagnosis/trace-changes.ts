// What changed between two traces and why: the parts of a step, before and after, the largest change first.
import { median } from "@weft/formats/stats";
import type { RankReport, TraceReport } from "../trace/index.js";

interface TraceChange {
  what: string;
  /** Microseconds per step and rank. */
  beforeUs: number;
  afterUs: number;
  /** What such a change means. */
  meaning: string;
}

export interface TraceChanges {
  /** Median step (mean span where steps are not marked), in microseconds. */
  beforeUs: number;
  afterUs: number;
  /** Parts with a change of at least two percent of the longer step, the largest first. */
  changes: TraceChange[];
}

const part =
  (value: (rank: RankReport) => number | null | undefined) =>
  (report: TraceReport): number => {
    const ranks = report.ranks.filter((rank) => rank.spanUs !== undefined);
    return ranks.reduce((sum, rank) => sum + (value(rank) ?? 0) / Math.max(1, rank.steps.length) / ranks.length, 0);
  };

const mainHostWait = (rank: RankReport): number => {
  const main = [...rank.idle].sort((a, b) => b.busyUs - a.busyUs)[0];
  return Math.max(0, (main?.hostWaitUs ?? 0) - (rank.dataLoaderUs ?? 0));
};

/** The parts of a step that have a cause of their own. They may overlap, so they need not add up to the step. */
const parts: readonly { what: string; value: (report: TraceReport) => number; less: string; more: string }[] = [
  {
    what: "data wait",
    value: part((rank) => rank.dataLoaderUs),
    less: "the batches are ready earlier (more loader processes, or a faster storage)",
    more: "the loader is slower than the device (fewer processes, or a slower storage)",
  },
  {
    what: "exposed communication",
    value: part((rank) => rank.exposedCommunicationUs),
    less: "more of the communication is hidden, or there is less of it",
    more: "less of the communication is hidden, or there is more of it",
  },
  {
    what: "computation on the device",
    value: part((rank) => rank.computeUs),
    less: "the kernels take less time (see the table)",
    more: "the kernels take more time (see the table)",
  },
  {
    what: "copies that nothing hides",
    value: part((rank) => Math.max(0, (rank.nonComputeUs ?? 0) - (rank.exposedCommunicationUs ?? 0))),
    less: "less is copied, or from pinned memory",
    more: "more is copied, or from pageable memory",
  },
  {
    what: "device waiting for launches (without data wait)",
    value: part(mainHostWait),
    less: "the host launches earlier",
    more: "the host launches later",
  },
  {
    what: "compilation",
    value: part((rank) => rank.host?.compilation.us),
    less: "functions are compiled less often",
    more: "functions are compiled again",
  },
];

function stepOf(report: TraceReport): number {
  const steps = report.ranks.flatMap((rank) => rank.steps.map((step) => step.us));
  return steps.length > 0 ? median(steps) : part((rank) => rank.spanUs)(report);
}

/** The parts of a step that changed. */
export function traceChanges(before: TraceReport, after: TraceReport): TraceChanges {
  const beforeUs = stepOf(before);
  const afterUs = stepOf(after);
  const threshold = 0.02 * Math.max(beforeUs, afterUs);
  const changes = parts
    .map(({ what, value, less, more }) => {
      const [from, to] = [value(before), value(after)];
      return { what, beforeUs: from, afterUs: to, meaning: to < from ? less : more };
    })
    .filter((change) => Math.abs(change.afterUs - change.beforeUs) >= threshold)
    .sort((a, b) => Math.abs(b.afterUs - b.beforeUs) - Math.abs(a.afterUs - a.beforeUs));
  return { beforeUs, afterUs, changes };
}
