// The sharding tables of docs/performance.md: one section for each bench.json of `weft bench` that lies in results/.
import { judgeBench } from "../../packages/lab/dist/bench/index.js";

const line = (cells) => `| ${cells.join(" | ")} |`;
const middle = (values) => [...values].sort((a, b) => a - b)[values.length >> 1];
const percent = (x) => (x === null || x === undefined ? "-" : `${(x * 100).toFixed(0)}%`);

const clockLine =
  '- Compute: calls back to back, on one device as on many, inputs resident and results left where they are; "one call alone" is waited for; "of one device with these cores" compares with one process that has the cores of all workers';

function time(s) {
  if (s >= 1) return `${s.toFixed(2)} s`;
  return s >= 1e-3 ? `${(s * 1e3).toFixed(2)} ms` : `${(s * 1e6).toFixed(0)} us`;
}

export function shardSection(record) {
  const judged = judgeBench(record);
  const { hardware: h } = record;
  const columns = [
    "row",
    "devices",
    "compute",
    "range",
    "speedup",
    "efficiency",
    "of independent workers",
    "of one device with these cores",
    "one call alone",
    "end to end",
    "speedup",
    "moved",
    "why",
  ];
  const rows = judged.verdicts
    .filter((v) => v.clock === "compute")
    .map((v) => {
      const whole = judged.verdicts.find((w) => w.clock === "endToEnd" && w.row === v.row && w.result === v.result);
      const label = v.result.simulated ? `${v.result.devices} (predicted)` : String(v.result.devices);
      return line([
        v.row.label,
        label,
        time(v.seconds),
        `${time(v.range[0])} to ${time(v.range[1])}`,
        v.class === "baseline" ? "baseline" : `${v.speedup.toFixed(2)}x`,
        v.class === "baseline" ? "" : percent(v.efficiency),
        percent(v.machineEfficiency),
        percent(v.sameCores),
        v.result.alone?.length > 0 ? time(middle(v.result.alone)) : "-",
        whole === undefined ? "-" : time(whole.seconds),
        whole === undefined || whole.class === "baseline" ? "" : `${whole.speedup.toFixed(2)}x`,
        `${(v.result.bytesMoved / 1e6).toFixed(1)} MB`,
        [v.cause, v.advice].filter((t) => t !== "" && t !== "nothing held it back").join("; "),
      ]);
    });
  const summary = judged.summaries.map(
    (s) =>
      `- ${s.devices} devices, ${s.clock === "compute" ? "compute" : "end to end"}${s.simulated ? " (predicted)" : ""}: average ${s.average.toFixed(2)}x, minimum ${s.minimum.toFixed(2)}x, maximum ${s.maximum.toFixed(2)}x over ${s.rows} rows`,
  );
  return [
    `## Sharding: ${record.device}${record.coresPerWorker === null ? "" : `, ${record.coresPerWorker} core a worker`}, ${h.cores} cores${record.suite === "quick" ? ", --quick" : ""}`,
    "",
    `- Machine: ${h.processor}; measured ${record.at.slice(0, 10)} with \`weft bench\`, medians of ${record.repeats} calls after ${record.warmup} for warm-up, ${record.precision}`,
    '- Efficiency is the speedup divided by the number of devices; "of independent workers" compares with N times the slowest of N workers that ran the same row at the same time and shared nothing',
    ...(record.rows.some((row) => row.results.some((r) => r.inFlight !== undefined)) ? [clockLine] : []),
    ...summary,
    "",
    line(columns),
    line(columns.map(() => "---")),
    ...rows,
    "",
  ];
}
