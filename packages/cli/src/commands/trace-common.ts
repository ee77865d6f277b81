// Shared by `weft trace` and `weft diagnose`: reading traces, and the table of replays.
import { analyzeTraces, parsePeaks, type RankReport, type TraceReport } from "@weft/lab/internal/trace";
import {
  CommandError,
  percent,
  shorten,
  significant,
  table,
  time,
  withProgress,
  wrongUsage,
} from "../terminal/index.js";

/** Reads traces with a progress line. */
export async function readTraces(
  files: readonly string[],
  options: { hta?: boolean; peaks?: string },
): Promise<TraceReport> {
  const { hta = false } = options;
  const peaks = options.peaks === undefined ? undefined : givenPeaks(options.peaks);
  return withProgress((progress) => {
    let what = "";
    return analyzeTraces(files, {
      hta,
      ...(peaks !== undefined && { peaks }),
      onFile: (file, index, of) => {
        what = of > 1 ? `${index + 1}/${of} ${shorten(file, 40)}` : shorten(file, 48);
      },
      onProgress: (bytes, total) => progress.update(what, bytes, total),
    });
  });
}

function givenPeaks(text: string): ReturnType<typeof parsePeaks> {
  try {
    return parsePeaks(text);
  } catch (error) {
    throw new CommandError(`--peaks ${text}: ${(error as Error).message}`, wrongUsage);
  }
}

/** Operators with their rates, the modules and lines behind them, and how much of the device they use. */
export function operatorText(rank: RankReport, top: number): string {
  const { operators } = rank;
  if (operators === null || operators.rows.length === 0) return "";
  const rows = operators.rows
    .slice(0, top)
    .map((row) => [
      shorten(row.name, 44),
      String(row.calls),
      time(row.deviceUs),
      row.flops === null ? "-" : `${significant(row.flops / 1e9)} G`,
      row.tflops === null ? "-" : significant(row.tflops),
      row.bandwidthGBps === null ? "-" : significant(row.bandwidthGBps),
      row.roofPercent === null ? "-" : percent(row.roofPercent),
      row.limit ?? "-",
      percent(row.tensorCorePercent),
    ]);
  const header = ["operator", "calls", "device", "FLOP", "TFLOP/s", "GB/s", "of roof", "limit", "tensor cores"];
  const places = (title: string, list: readonly { name: string; us: number }[]): string =>
    list.length === 0
      ? ""
      : `${title}: ${list
          .slice(0, 5)
          .map(({ name, us }) => `${shorten(name, 60)} ${time(us)}`)
          .join("; ")}.`;
  const { peaks, mfuPercent } = operators;
  const roof =
    peaks === null
      ? "The device is not in the table of rates: --peaks gives them."
      : `Roof: ${peaks.name}, ${Object.entries(peaks.tflops)
          .map(([name, rate]) => `${name} ${rate}`)
          .join(", ")} TFLOP/s, ${peaks.bandwidthGBps} GB/s (${peaks.from}).`;
  const use = `Tensor cores: ${percent(operators.tensorCorePercent)} of the computing time${
    operators.matrixTensorCorePercent === null
      ? ""
      : `, ${percent(operators.matrixTensorCorePercent)} of that of matrix kernels`
  }. Attributed to operators: ${percent(operators.attributedPercent)} of the device time.`;
  const mfu =
    mfuPercent === null
      ? "Model FLOP utilization is not known (it needs record_shapes=True, operators outside of CUDA graphs, and the device's rates)."
      : `Model FLOP utilization: ${significant(mfuPercent)}%: ${operators.mfuDefinition}.`;
  return [
    `Operators of rank ${rank.rank}`,
    table(header, rows),
    places("Modules", operators.modules),
    places("Lines", operators.lines),
    roof,
    use,
    mfu,
  ]
    .filter((line) => line !== "")
    .join("\n");
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
