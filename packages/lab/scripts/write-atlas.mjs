// Writes docs/atlas.md: the calibration of the predictions with batches, errors by benchmark and distance, and the audit.
//   node packages/lab/scripts/write-atlas.mjs [training_results_v4.1 training_results_v5.0 ...]
// With folders it audits them first and writes bench/results/atlas.json; without, the page is written from that file.
import { readFileSync, writeFileSync } from "node:fs";
import { dirname, join, relative, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { auditSubmissions, readSubmissions } from "../dist/atlas/index.js";
import { framed, gray, palette, renderPng, renderSvg } from "../dist/report/index.js";

const root = join(dirname(fileURLToPath(import.meta.url)), "../../..");
const file = join(root, "bench/results/atlas.json");
const folders = process.argv.slice(2);
if (folders.length > 0) {
  const submissions = folders.flatMap((folder) => readSubmissions(resolve(folder)));
  const short = (row) => folders.reduce((text, folder) => text.replace(`${resolve(dirname(folder))}/`, ""), row);
  const findings = auditSubmissions(submissions).map((f) => ({ ...f, rows: f.rows.map(short) }));
  const rounds = Object.fromEntries(
    [...new Set(submissions.map((s) => s.round))].map((round) => {
      const own = submissions.filter((s) => s.round === round);
      return [
        round,
        {
          submissions: own.length,
          runs: own.reduce((a, s) => a + s.runs.length, 0),
          benchmarks: [...new Set(own.map((s) => s.benchmark))].sort(),
        },
      ];
    }),
  );
  writeFileSync(file, `${JSON.stringify({ rounds, findings }, null, 1)}\n`);
}
const atlas = JSON.parse(readFileSync(file, "utf8"));
const p = JSON.parse(readFileSync(join(root, "bench/results/prediction-batches.json"), "utf8"));
const percent = (x) => `${(x * 100).toFixed(1)}%`;

// Calibration: share of the cases whose scaled error lies inside a symmetric interval of each nominal coverage.
const sorted = p.cases.map((c) => c.scaled).sort((a, b) => a - b);
const quantile = (q) => sorted[Math.min(sorted.length - 1, Math.max(0, Math.round(q * (sorted.length - 1))))];
const points = p.cases.map((c) => ({
  doublings: c.doublings,
  error: c.error * 100,
  inside: c.covered ? "inside its 80% interval" : "outside",
}));
const spec = framed(
  {
    title: "Predictions of the largest count, each benchmark left out in turn",
    subtitle: `${p.crossValidated.series} MLPerf series; error of throughput against the distance in doublings of the devices`,
    description: "Relative error of each prediction against the distance in doublings.",
  },
  {
    width: 640,
    height: 320,
    layer: [
      {
        data: { values: [{ y: 0 }] },
        mark: { type: "rule", color: gray, strokeDash: [6, 4] },
        encoding: { y: { field: "y", type: "quantitative" } },
      },
      {
        data: { values: points },
        mark: { type: "point", filled: true, size: 70, opacity: 0.8 },
        encoding: {
          x: { field: "doublings", type: "quantitative", title: "Doublings beyond the largest measured count" },
          y: { field: "error", type: "quantitative", title: "Error (%)" },
          color: { field: "inside", type: "nominal", title: null, scale: { range: [palette[0], palette[1]] } },
          shape: { field: "inside", type: "nominal", title: null },
        },
      },
    ],
  },
);
const svg = await renderSvg(spec);
writeFileSync(join(root, "docs/images/atlas_calibration.png"), await renderPng(svg));

const table = (head, rows) =>
  [`| ${head.join(" | ")} |`, `|${head.map(() => "---").join("|")}|`, ...rows.map((r) => `| ${r.join(" | ")} |`)].join(
    "\n",
  );
const errors = (groups) =>
  table(
    ["", "series", "median error", "90th percentile", "80% intervals that held"],
    Object.entries(groups).map(([name, f]) => [
      name,
      f.series,
      percent(f.median),
      percent(f.p90),
      percent(f.intervalCoverage),
    ]),
  );
const distances = ["up to 1 doubling", "1 to 3 doublings", "more"].filter((name) => name in p.byDistance);
const counts = {};
for (const f of atlas.findings)
  counts[`${f.id} | ${f.round} | ${f.benchmark}`] = (counts[`${f.id} | ${f.round} | ${f.benchmark}`] ?? 0) + 1;
const examples = Object.keys(counts).map((key) =>
  atlas.findings.find((f) => `${f.id} | ${f.round} | ${f.benchmark}` === key),
);
const page = `# Atlas of public results

\`packages/lab/scripts/write-atlas.mjs\` writes this page from \`bench/results/prediction-batches.json\` and \`bench/results/atlas.json\`. \`weft import mlperf DIR\` and \`weft import vtrain DIR\` bring public results into a DuckDB file; \`weft audit DIR\` finds
results that contradict themselves or their neighbors. The results themselves are not in this repository: \`mlcommons/training_results_v*\` and \`VIA-Research/vTrain\` hold them.

## How well do predictions hold?

Fitted on: ${p.fittedOn}. Each series is predicted at its largest count from the smaller ones, by constants that never saw its benchmark.

![Errors of the predictions against their distance](images/atlas_calibration.png)

${errors({ "all series": p.crossValidated })}

By distance:

${errors(Object.fromEntries(distances.map((name) => [name, p.byDistance[name]])))}

By benchmark:

${errors(p.byFamily)}

Half of the scaled errors lie between ${quantile(0.25).toFixed(2)} and ${quantile(0.75).toFixed(2)}, 80% between ${quantile(0.1).toFixed(2)} and ${quantile(0.9).toFixed(2)}; the intervals use ${p.constants.interval.low} and ${p.constants.interval.high}.
The intervals were widened once after their coverage on these series had been seen, so that this coverage is not an estimate for other series.

## What contradicts itself?

${table(
  ["round", "submissions", "runs", "benchmarks"],
  Object.entries(atlas.rounds).map(([round, r]) => [round, r.submissions, r.runs, r.benchmarks.join(", ")]),
)}

The audit compares throughput times minutes with the samples that a benchmark usually takes. A contradiction is no accusation: a log may follow another convention.
The thresholds of the audit were adjusted on the logs of these rounds.

${table(
  ["contradiction", "round", "benchmark", "submissions"],
  Object.entries(counts).map(([key, n]) => [...key.split(" | "), n]),
)}

One of each, with the lines of the logs:

${examples.map((f) => `- **${f.id}**, ${f.round} ${f.submitter} \`${f.system}\`, ${f.benchmark}: ${f.text}. Readings: ${f.readings.join("; or ")}.\n${f.rows.map((r) => `  - \`${r}\``).join("\n")}`).join("\n")}
`;
writeFileSync(join(root, "docs/atlas.md"), page);
console.log(`${relative(process.cwd(), join(root, "docs/atlas.md"))}: ${atlas.findings.length} contradictions`);
