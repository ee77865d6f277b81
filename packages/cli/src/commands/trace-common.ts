// Shared by `weft trace` and `weft diagnose`: reading traces, and the table of replays.
import { analyzeTraces, type RankReport, type TraceReport } from "@weft/lab/internal";
import { ProgressLine, percent, shorten, table, time } from "../terminal/index.js";

/** Reads traces with a progress line. */
export async function readTraces(files: readonly string[], { hta = false }: { hta?: boolean }): Promise<TraceReport> {
  const progress = new ProgressLine();
  let what = "";
  try {
    return await analyzeTraces(files, {
      hta,
      onFile: (file, index, of) => {
        what = of > 1 ? `${index + 1}/${of} ${shorten(file, 40)}` : shorten(file, 48);
      },
      onProgress: (bytes, total) => progress.update(what, bytes, total),
    });
  } finally {
    progress.clear();
  }
}

/** What is wrong with the traces, each message once. */
export function traceMessages(report: TraceReport): string[] {
  return [
    ...report.problems,
    ...report.ranks.flatMap((rank) => rank.problems.map((problem) => `${rank.file}: ${problem}`)),
  ].filter((message, i, all) => all.indexOf(message) === i);
}

/** Step times under changes, replayed. */
export function whatIfText(rank: RankReport): string {
  if (rank.whatIf === null) return "";
  const { measuredStepUs, replayedStepUs, rows } = rank.whatIf;
  const lines = rows.map(({ name, stepUs, speedup }) => [name, time(stepUs), `${speedup.toFixed(2)}x`]);
  const error = percent(100 * Math.abs(replayedStepUs / measuredStepUs - 1));
  return `What if (rank ${rank.rank}, step ${time(measuredStepUs)}; the unchanged replay is off by ${error})\n${table(["change", "step", "samples/s"], lines)}`;
}
