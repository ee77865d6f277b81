// Charts and page of a benchmark: speedup over device count with the ideal line, and the time breakdown.
import { framed, gray, type ReportChart, renderPng, renderSvg } from "../report/index.js";
import { type BenchJudgment, type Clock, clockName, clocks } from "./judge.js";
import { splitParts } from "./record.js";
import { benchText, secondsText } from "./text.js";

const escape = (text: unknown): string =>
  String(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;").replaceAll('"', "&quot;");

function speedupChart(judged: BenchJudgment, clock: Clock): ReportChart | null {
  const mine = judged.verdicts.filter((v) => v.clock === clock);
  const counts = [...new Set(mine.map((v) => v.result.devices))].sort((a, b) => a - b);
  if (counts.length < 2) return null;
  const values = mine.map((v) => ({
    devices: v.result.devices,
    speedup: v.speedup,
    row: v.row.label,
    kind: v.result.simulated ? "predicted" : "measured",
  }));
  const ideal = counts.map((n) => ({ devices: n, speedup: n / judged.baselineDevices }));
  const title = `Speedup, ${clock === "compute" ? "compute" : "end to end"}`;
  const description = `${title} over ${counts.join(", ")} devices for ${new Set(mine.map((v) => v.row.label)).size} rows; the dashed line is ideal.`;
  const x = { field: "devices", type: "quantitative", title: "Devices", axis: { values: counts, format: "d" } };
  const y = { field: "speedup", type: "quantitative", title: "Speedup", scale: { zero: true } };
  return {
    name: `speedup_${clock}`,
    title,
    description,
    spec: framed(
      { title, subtitle: [clockName[clock], "dashed: ideal"], description },
      {
        width: 620,
        height: 340,
        layer: [
          { data: { values: ideal }, mark: { type: "line", strokeDash: [6, 4], color: gray }, encoding: { x, y } },
          {
            data: { values },
            mark: { type: "line", strokeWidth: 1.5 },
            encoding: { x, y, color: { field: "row", type: "nominal", title: null } },
          },
          {
            data: { values },
            mark: { type: "point", size: 60, filled: false },
            encoding: {
              x,
              y,
              color: { field: "row", type: "nominal", title: null },
              shape: {
                field: "kind",
                type: "nominal",
                title: null,
                scale: { domain: ["measured", "predicted"], range: ["circle", "diamond"] },
              },
            },
          },
        ],
      },
    ),
  };
}

function splitChart(judged: BenchJudgment): ReportChart | null {
  const mine = judged.verdicts.filter((v) => v.clock === "endToEnd" && !v.result.simulated);
  if (mine.length === 0) return null;
  // Parts are measured with waits between them: their sum differs from the call, so shares are relative to the sum.
  const values = mine.flatMap((v) => {
    const whole = splitParts.reduce((sum, part) => sum + v.result.split[part], 0);
    return splitParts.map((part, order) => ({
      row: `${v.row.label}, ${v.result.devices}`,
      part,
      order,
      share: whole === 0 ? 0 : v.result.split[part] / whole,
    }));
  });
  const description =
    "Share of an end-to-end call spent creating, planning, computing, communicating and fetching, for each row and device count.";
  return {
    name: "split",
    title: "Where the time goes",
    description,
    spec: framed(
      { title: "Where the time goes", subtitle: "end to end, row and device count; medians", description },
      {
        data: { values },
        width: 620,
        height: { step: 20 },
        mark: { type: "bar" },
        encoding: {
          y: { field: "row", type: "nominal", sort: null, title: null, axis: { labelLimit: 320 } },
          x: {
            field: "share",
            type: "quantitative",
            title: "Share of the parts",
            stack: "zero",
            axis: { format: "%" },
          },
          color: { field: "part", type: "nominal", title: null, sort: [...splitParts] },
          order: { field: "order", type: "quantitative" },
        },
      },
    ),
  };
}

const benchCharts = (judged: BenchJudgment): ReportChart[] =>
  [...clocks.map((clock) => speedupChart(judged, clock)), splitChart(judged)].filter(
    (c): c is ReportChart => c !== null,
  );

const style = `body{margin:0 auto;padding:1rem;max-width:64rem;font:16px/1.5 "DejaVu Sans",Verdana,system-ui,sans-serif;color:#111827}
h1{font-size:1.5rem}h2{font-size:1.2rem;margin-top:2rem;border-bottom:2px solid #d1d5db}.scroll{overflow-x:auto}
table{border-collapse:collapse;font-size:.875rem}th,td{padding:.25rem .6rem;border-bottom:1px solid #d1d5db;text-align:right;white-space:nowrap}
th:first-child,td:first-child{text-align:left;white-space:normal;min-width:10rem}th{color:#4b5563;font-weight:normal}
figure{margin:1rem 0}figure svg{max-width:100%;height:auto}figcaption{color:#4b5563;font-size:.875rem}pre{overflow-x:auto;background:#f9fafb;padding:.75rem;font-size:.8125rem}
tr.negative td{background:#fef2f2}tr.predicted td{font-style:italic}tr.why td{color:#4b5563;padding-left:1.6rem}tr:has(+tr.why) td{border-bottom:0}`;

function verdictTable(judged: BenchJudgment, clock: Clock): string {
  const rows = judged.verdicts.filter((v) => v.clock === clock);
  if (rows.length === 0) return "";
  const body = rows
    .map((v) => {
      const kind = v.result.simulated ? "predicted" : v.class === "negative" ? "negative" : "";
      const why = [v.cause, v.advice].filter((t) => t !== "").join("; ");
      const rate = v.teraflops === null ? "-" : v.teraflops.toFixed(3);
      const machine = v.machineEfficiency === null ? "-" : `${(v.machineEfficiency * 100).toFixed(0)}%`;
      const same = v.sameCores === null ? "-" : `${(v.sameCores * 100).toFixed(0)}%`;
      const range = `${secondsText(v.range[0])} to ${secondsText(v.range[1])}`;
      const numbers = `<tr class="${kind}"><td>${escape(v.row.label)}</td><td>${v.result.devices}${v.result.simulated ? " (predicted)" : ""}</td><td>${secondsText(v.seconds)}</td><td>${range}</td><td>${rate}</td><td>${v.speedup.toFixed(2)}x</td><td>${(v.efficiency * 100).toFixed(0)}%</td><td>${machine}</td><td>${same}</td><td>${v.class}</td></tr>`;
      // The reason gets its own line under the numbers, so that it is never beyond the edge of the screen.
      return why === "" ? numbers : `${numbers}\n<tr class="${kind} why"><td colspan="10">${escape(why)}</td></tr>`;
    })
    .join("\n");
  return `<h2>${escape(clockName[clock])}</h2><div class="scroll"><table><tr><th>row</th><th>devices</th><th>time</th><th>range</th><th>TFLOPS</th><th>speedup</th><th>efficiency</th><th>of independent</th><th>of one device with these cores</th><th>class</th></tr>
${body}</table></div>`;
}

/** Files of the report by name: the page, the text, and one image per chart. */
export async function benchFiles(judged: BenchJudgment): Promise<Record<string, string | Uint8Array>> {
  const files: Record<string, string | Uint8Array> = { "bench.txt": `${benchText(judged)}\n` };
  const figures: string[] = [];
  for (const chart of benchCharts(judged)) {
    const svg = await renderSvg(chart.spec);
    files[`${chart.name}.png`] = await renderPng(svg);
    const named = svg.replace("<svg ", `<svg role="img" aria-label="${escape(chart.description)}" `);
    figures.push(`<figure>${named}<figcaption>${escape(chart.description)}</figcaption></figure>`);
  }
  const { record } = judged;
  const failed = judged.failures
    .map((f) => `<li>${escape(`${f.row}, ${f.devices} devices: ${f.message}`)}</li>`)
    .join("");
  files["bench.html"] = `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Weft benchmark</title><style>${style}</style></head><body>
<h1>Weft benchmark</h1>
<p>${escape(record.at)}: device ${escape(record.device)}, ${escape(record.precision)}, medians of ${record.repeats} calls after ${record.warmup} for warm-up. Every number was measured, or says that it is predicted.</p>
${figures.join("\n")}
${clocks.map((clock) => verdictTable(judged, clock)).join("\n")}
${failed === "" ? "" : `<h2>Failed</h2><ul>${failed}</ul>`}
<h2>As text</h2><pre>${escape(benchText(judged))}</pre>
<details><summary>Machine and versions</summary><pre>${escape(JSON.stringify({ hardware: record.hardware, versions: record.versions }, null, 2))}</pre></details>
</body></html>
`;
  return files;
}
