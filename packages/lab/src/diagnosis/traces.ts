// Attaches summaries of the traces in a run's folder to the run.
import { existsSync, readdirSync, statSync } from "node:fs";
import { join } from "node:path";
import { weightedMean } from "@weft/formats/stats";
import { weightedTimes } from "../metrics/index.js";
import type { Run, Study, TraceSummary } from "../model/index.js";
import { analyzeTraces, type RankReport } from "../trace/index.js";
import { traceFindings } from "./trace-rules.js";

const sum = (values: readonly number[]): number => values.reduce((a, b) => a + b, 0);

/** The summary of one rank; null when nothing could be measured. */
function summarizeTrace(report: RankReport): TraceSummary | null {
  const { spanUs, idleUs, computeUs, nonComputeUs } = report;
  if (spanUs === undefined || idleUs === undefined || computeUs === undefined || nonComputeUs === undefined)
    return null;
  const { launches, idle, queues } = report;
  const collectives = report.collectives.flatMap((c) =>
    c.bytes === null
      ? []
      : [
          {
            name: String(c.collective),
            bytes: c.bytes,
            durationUs: c.meanUs,
            count: c.count,
            ...(c.busGBps !== null && { busGBps: c.busGBps }),
          },
        ],
  );
  return {
    rank: report.rank,
    spanUs,
    idleUs,
    computeUs,
    nonComputeUs,
    ...(report.communicationUs !== undefined && { commUs: report.communicationUs }),
    ...(report.exposedCommunicationUs !== undefined && { exposedCommUs: report.exposedCommunicationUs }),
    ...(report.overlapPercent != null && { overlapPercent: report.overlapPercent }),
    ...(idle.length > 0 && {
      hostWaitUs: sum(idle.map((i) => i.hostWaitUs)),
      kernelWaitUs: sum(idle.map((i) => i.kernelWaitUs)),
      otherWaitUs: sum(idle.map((i) => i.otherUs)),
    }),
    ...(launches !== null && {
      kernels: launches.launches,
      shortKernels: launches.shorterThanCall,
      launchUs: launches.callUs.mean * launches.launches,
    }),
    ...(queues.length > 0 && { meanQueueLength: Math.max(...queues.map((q) => q.mean)) }),
    ...(report.dataLoaderUs !== null && { dataLoaderUs: report.dataLoaderUs }),
    ...(collectives.length > 0 && { collectives }),
  };
}

/** Findings about a device that waits for its host: a profiler slows the host and causes them. */
const aboutIdleTime = new Set(["trace-host-bound", "trace-small-kernels"]);

/**
 * Mean step without a profiler, from the records of a run, over the time in which the device is busy in a traced step; null
 * where either is not known. Near 1 the device is never idle without the profiler.
 */
function stepOverBusy(run: Run, report: RankReport): number | null {
  const times = weightedTimes(run.steps.filter((s) => s.rank === report.rank && s.compile !== true));
  const { spanUs, idleUs, steps } = report;
  if (times.length < 20 || spanUs === undefined || idleUs === undefined || steps.length === 0) return null;
  // The mean, because a host that runs ahead has short steps and then a long one.
  const own = weightedMean(times.slice(Math.min(10, Math.floor(times.length / 5))));
  const busy = (spanUs - idleUs) / steps.length;
  return busy > 0 ? own / busy : null;
}

/** A summary without the idle time that the profiler added. */
function withoutProfiler(summary: TraceSummary): TraceSummary {
  const { hostWaitUs: _, kernelWaitUs: __, otherWaitUs: ___, launchUs: ____, ...rest } = summary;
  return { ...rest, spanUs: summary.spanUs - summary.idleUs, idleUs: 0, shortKernels: 0 };
}

/** Trace files of a run: in its own directory, or in `traces` below it. */
function traceFiles(run: Run): string[] {
  const home = run.source.path;
  if (!existsSync(home) || !statSync(home).isDirectory()) return [];
  const inside = (directory: string): string[] =>
    existsSync(directory)
      ? readdirSync(directory)
          .filter((name) => /(trace|\.pt\.trace).*\.json(\.gz)?$/.test(name))
          .sort()
          .map((name) => join(directory, name))
      : [];
  return [...inside(home), ...inside(join(home, "traces"))];
}

/** Reads the traces of the runs of a study and attaches their summaries. */
export async function attachTraces(
  study: Study,
  onFile?: (file: string, index: number, of: number) => void,
): Promise<void> {
  for (const run of study.runs) {
    const files = traceFiles(run);
    if (files.length === 0) continue;
    const report = await analyzeTraces(files, { ...(onFile !== undefined && { onFile }) });
    const busy = new Set(report.ranks.filter((r) => (stepOverBusy(run, r) ?? 2) < 1.15).map((r) => r.rank));
    const summaries = report.ranks
      .map(summarizeTrace)
      .filter((s) => s !== null)
      .map((s) => (busy.has(s.rank) ? withoutProfiler(s) : s));
    const idles = busy.size < report.ranks.length;
    const findings = traceFindings(report).filter((f) => idles || !aboutIdleTime.has(f.id));
    if (summaries.length > 0) Object.assign(run, { traces: summaries, traceFindings: findings });
    for (const message of [...report.problems, ...report.ranks.flatMap((r) => r.problems)])
      run.problems.push({ file: files[0]!, id: "trace", message });
  }
}
