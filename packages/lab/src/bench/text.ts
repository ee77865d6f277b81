// A benchmark as text: per group a table of time, rate and speedup for each device count, the summary and the advice.

import { medianOrNull } from "@weft/formats/stats";
import { plainText } from "@weft/formats/text";
import { classMeaning } from "../metrics/index.js";
import { type BenchJudgment, type Clock, clockName, clocks, type RowVerdict } from "./judge.js";
import { splitParts } from "./record.js";

const devicesText = (n: number): string => `${n} device${n === 1 ? "" : "s"}`;

export function secondsText(s: number): string {
  if (s === 0) return "0";
  if (s >= 1) return `${s.toFixed(3)} s`;
  if (s >= 1e-3) return `${(s * 1e3).toFixed(2)} ms`;
  return `${(s * 1e6).toFixed(1)} us`;
}

function rateText(teraflops: number | null): string {
  if (teraflops === null) return "";
  return teraflops >= 0.1 ? ` (${teraflops.toFixed(2)} TFLOPS)` : ` (${(teraflops * 1e3).toFixed(1)} GFLOPS)`;
}

const timeCell = (v: RowVerdict | undefined): string =>
  v === undefined ? "-" : `${secondsText(v.seconds)}${rateText(v.teraflops)}${v.result.simulated ? " predicted" : ""}`;

const speedupCell = (v: RowVerdict | undefined): string =>
  v === undefined
    ? "-"
    : v.class === "baseline"
      ? "baseline"
      : `${v.speedup.toFixed(2)}x ${v.class}${v.result.simulated ? ", predicted" : ""}`;

function groupTable(
  title: string,
  labels: string[],
  counts: number[],
  find: (label: string, n: number) => RowVerdict | undefined,
): string {
  const head = ["", ...counts.map(devicesText)];
  const body = labels.flatMap((label) => [
    [label, ...counts.map((n) => timeCell(find(label, n)))],
    ["  speedup", ...counts.map((n) => speedupCell(find(label, n)))],
  ]);
  const widths = head.map((cell, i) => Math.max(cell.length, ...body.map((row) => row[i]!.length)));
  const line = (cells: string[]): string =>
    cells
      .map((cell, i) => cell.padEnd(widths[i]!))
      .join(" | ")
      .trimEnd();
  return [`--- ${title} ---`, line(head), "-".repeat(widths.reduce((a, b) => a + b + 3, -3)), ...body.map(line)].join(
    "\n",
  );
}

function clockTables(judged: BenchJudgment, clock: Clock): string {
  const mine = judged.verdicts.filter((v) => v.clock === clock);
  if (mine.length === 0) return "";
  const counts = [...new Set(mine.map((v) => v.result.devices))].sort((a, b) => a - b);
  const groups = [...new Set(mine.map((v) => v.row.group))];
  const tables = groups.map((group) => {
    const rows = mine.filter((v) => v.row.group === group);
    const find = (label: string, n: number) => rows.find((v) => v.row.label === label && v.result.devices === n);
    return groupTable(group, [...new Set(rows.map((v) => v.row.label))], counts, find);
  });
  const summary = judged.summaries
    .filter((s) => s.clock === clock)
    .map((s) => {
      const predicted = s.simulated ? "predicted (simulated devices): " : "";
      return (
        `${devicesText(s.devices)} against ${devicesText(judged.baselineDevices)}, ${s.rows} row${s.rows === 1 ? "" : "s"}:\n` +
        `  ${predicted}average speedup ${s.average.toFixed(2)}x   minimum ${s.minimum.toFixed(2)}x   maximum ${s.maximum.toFixed(2)}x   ${s.class} (${classMeaning[s.class]})`
      );
    });
  return [`Clock: ${clockName[clock]}`, ...tables, ...(summary.length === 0 ? [] : ["SUMMARY", ...summary])].join(
    "\n\n",
  );
}

/** Time breakdown of the end-to-end clock, for each row and count. */
function splitTable(judged: BenchJudgment): string {
  const rows = judged.verdicts.filter((v) => v.clock === "endToEnd" && !v.result.simulated);
  if (rows.length === 0) return "";
  const lines = rows.map((v) => {
    const parts = splitParts.map((part) => `${part} ${secondsText(v.result.split[part])}`).join("   ");
    return `  ${v.row.label}, ${devicesText(v.result.devices)}: ${parts}`;
  });
  return ["Where the time of one call goes (medians)", ...lines].join("\n");
}

function advice(judged: BenchJudgment): string {
  const lines = judged.verdicts
    .filter((v) => v.class !== "baseline" && (v.efficiency < 0.875 || v.speedup <= 1))
    .map((v) => {
      const machine =
        v.machineEfficiency === null
          ? ""
          : `, ${(v.machineEfficiency * 100).toFixed(0)}% of what independent workers reach`;
      const todo = v.advice === "" ? "" : `; ${v.advice}`;
      const predicted = v.result.simulated ? "predicted " : "";
      return `  ${v.row.label}, ${devicesText(v.result.devices)}, ${predicted}${v.clock === "compute" ? "compute" : "end to end"}: ${v.class} (${(v.efficiency * 100).toFixed(0)}%${machine}): ${v.cause}${todo}`;
    });
  if (lines.length === 0) return "";
  return ["Why, and what to do", ...lines].join("\n");
}

/** Workers compared with the same cores in one device, and single calls with calls in flight. */
function coresTable(judged: BenchJudgment): string {
  const lines = judged.verdicts.flatMap((v) =>
    v.sameCores === null || v.result.simulated
      ? []
      : [
          `  ${v.row.label}, ${devicesText(v.result.devices)}: ${secondsText(v.seconds)}, one device with as many cores ${secondsText(v.seconds * v.sameCores)} (${(v.sameCores * 100).toFixed(0)}%)`,
        ],
  );
  return lines.length === 0 ? "" : ["Against one device that has the cores of all workers", ...lines].join("\n");
}

/** Seconds of one awaited call. */
function aloneTable(judged: BenchJudgment): string {
  const lines = judged.verdicts.flatMap((v) => {
    const alone = medianOrNull(v.result.alone ?? []);
    if (v.clock !== "compute" || alone === null || v.result.simulated) return [];
    const { inFlight = 1 } = v.result;
    return [
      `  ${v.row.label}, ${devicesText(v.result.devices)}: ${secondsText(alone)}; ${inFlight === 1 ? "no more" : inFlight} in flight: ${secondsText(v.seconds)} each`,
    ];
  });
  return lines.length === 0 ? "" : ["One call, waited for", ...lines].join("\n");
}

function rawTable(judged: BenchJudgment): string {
  const lines = judged.verdicts.flatMap((v) => {
    if (v.clock !== "compute" || v.row.raw === undefined || v.result.devices !== 1 || v.result.simulated) return [];
    const raw = [...v.row.raw].sort((a, b) => a - b)[Math.floor(v.row.raw.length / 2)]!;
    return [
      `  ${v.row.label}: library alone ${secondsText(raw)}, Weft ${secondsText(v.seconds)}, overhead ${((v.seconds / raw - 1) * 100).toFixed(1)}%`,
    ];
  });
  return lines.length === 0 ? "" : ["The library underneath, called directly", ...lines].join("\n");
}

/** Formats the verdicts on a benchmark as text. */
export function benchText(judged: BenchJudgment): string {
  const { record } = judged;
  const checked = judged.verdicts.filter((v) => v.result.error !== null);
  const worst = checked.reduce((a, v) => Math.max(a, v.result.error ?? 0), 0);
  const failures = judged.failures.map((f) => `  ${f.row}, ${devicesText(f.devices)}: ${f.message}`);
  const cores =
    record.coresPerWorker === null
      ? ""
      : `, ${record.coresPerWorker} core${record.coresPerWorker === 1 ? "" : "s"} per worker`;
  const how = judged.verdicts.every((v) => v.result.simulated)
    ? "nothing was measured"
    : `${record.warmup} warm-up and ${record.repeats} measured calls, medians`;
  return [
    `Device ${record.device}${cores}, ${record.precision}, ${how}`,
    ...(record.machine?.disturbance == null
      ? []
      : [
          `DISTURBED: ${plainText(String(record.machine.disturbance))}; no advice is given. Repeat on a quiet machine.`,
        ]),
    ...clocks.map((clock) => clockTables(judged, clock)),
    splitTable(judged),
    aloneTable(judged),
    coresTable(judged),
    rawTable(judged),
    advice(judged),
    ...(failures.length === 0 ? [] : [["Failed", ...failures].join("\n")]),
    ...(checked.length === 0
      ? []
      : [`Results verified: ${checked.length} measurements, largest relative error ${worst.toExponential(1)}`]),
  ]
    .filter((part) => part !== "")
    .join("\n\n");
}
