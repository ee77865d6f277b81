// The tables of a report: a CSV of raw numbers with units in the header, a LaTeX table and a plain-text report.

import { csvCell } from "@weft/formats/csv";
import { plainText, shortNumber } from "@weft/formats/text";
import type { StudyReport } from "../diagnosis/index.js";
import { classMeaning } from "../metrics/index.js";
import { plural } from "./rows.js";
import {
  classText,
  effectText,
  efficiencyText,
  findingTitle,
  ratioText,
  readingText,
  secondsColumn,
  verdictLine,
  workText,
} from "./words.js";

type Value = string | number | boolean | null | undefined;

/** One row per run: column -> value. The keys are the header of the CSV. */
function summaryRows(reports: readonly StudyReport[]): Record<string, Value>[] {
  return reports.flatMap((report) =>
    report.runs.map((run) => {
      const point = report.scaling.find((p) => p.devices === run.devices);
      return {
        study: report.name,
        run: run.id,
        devices: run.devices,
        status: run.status,
        mean_epoch_s: run.epochSeconds?.mean,
        std_epoch_s: run.epochSeconds?.std,
        measurements: run.epochSeconds?.n,
        mean_epoch_mixed_s: run.epochSecondsMixed?.mean,
        total_s: run.totalSeconds,
        measured_ratio: point?.speedup,
        valid_as_speedup: point?.valid,
        verdict: point?.status,
        work_ratio: point?.workRatio,
        work_speedup: point?.workSpeedup,
        work_efficiency: point?.workEfficiency,
        class: classText(point),
        throughput_samples_per_s: run.samplesPerSecond,
        work_samples_per_s: run.workSamplesPerSecond,
        final_val_accuracy: run.finalAccuracy,
        source: run.source,
      };
    }),
  );
}

export function summaryCsv(reports: readonly StudyReport[]): string {
  const rows = summaryRows(reports);
  const header = Object.keys(rows[0] ?? { study: "", run: "", devices: "" });
  return [header.join(","), ...rows.map((row) => header.map((key) => csvCell(row[key])).join(","))].join("\n") + "\n";
}

const texSpecial: Record<string, string> = {
  "\\": "\\textbackslash{}",
  "{": "\\{",
  "}": "\\}",
  "~": "\\textasciitilde{}",
  "^": "\\textasciicircum{}",
};
/** Escapes TeX commands and drops characters that pdflatex cannot typeset. */
export const texText = (text: string): string =>
  text
    .replaceAll(/[\\{}~^]/g, (c) => texSpecial[c]!)
    .replaceAll(/[%_&#$]/g, (c) => `\\${c}`)
    .replaceAll(/[^\x20-\x7e]/g, "?");

export function summaryTex(reports: readonly StudyReport[]): string {
  const lines = reports.flatMap((report) =>
    report.runs.map((run) => {
      const point = report.scaling.find((p) => p.devices === run.devices);
      const time =
        run.epochSeconds === null
          ? "--"
          : `$${secondsColumn(run.epochSeconds.mean)} \\pm ${secondsColumn(run.epochSeconds.std, run.epochSeconds.mean)}$`;
      const tex = (text: string): string => (text === "-" ? "--" : texText(text.replaceAll("x", "")));
      const ratio = point?.valid === false ? point.status : tex(ratioText(point));
      const normalized = tex(workText(point));
      const efficiency = tex(efficiencyText(point));
      const accuracy = run.finalAccuracy === null ? "--" : run.finalAccuracy.toFixed(3);
      const rate = run.samplesPerSecond === null ? "--" : run.samplesPerSecond.toFixed(0);
      return `${texText(report.name)} & ${run.devices} & ${time} & ${ratio} & ${normalized} & ${efficiency} & ${rate} & ${accuracy} \\\\`;
    }),
  );
  return `% Summary of a scaling study. \\input{} it in a document; booktabs is used when it is loaded.
\\providecommand{\\toprule}{\\hline}
\\providecommand{\\midrule}{\\hline}
\\providecommand{\\bottomrule}{\\hline}
\\begin{table}[htbp]
\\centering
\\caption{Scaling summary. \`\`Speedup'' is given only where the measurement is valid; \`\`Work'' is work per second relative to the baseline, and the efficiency is its.}
\\label{tab:comprehensive}
\\footnotesize
\\setlength{\\tabcolsep}{4pt}
\\begin{tabular}{lrrrrrrr}
\\toprule
Study & $N$ & Epoch (s) & Speedup & Work & Eff. & Samples/s & Acc. \\\\
\\midrule
${lines.join("\n")}
\\bottomrule
\\end{tabular}
\\end{table}
`;
}

const rule = "=".repeat(80);

const timeName = { epoch: "Mean epoch time", steps: "Epoch time from steps", run: "Time of the whole run" } as const;

function studyText(report: StudyReport): string[] {
  const time = timeName[report.basis ?? "epoch"];
  const out: string[] = [rule, `Study: ${report.name}`, `Verdict: ${verdictLine(report)}`, ""];
  for (const run of report.runs) {
    const point = report.scaling.find((p) => p.devices === run.devices);
    out.push(`Configuration: ${run.id} (${plural(run.devices)})`);
    if (run.epochSeconds === null) out.push(`  No usable measurement (status ${run.status}).`);
    else {
      const mixed = run.epochSecondsMixed;
      const label = mixed === undefined ? "" : " separated";
      out.push(
        `  ${time}: ${secondsColumn(run.epochSeconds.mean)} +- ${secondsColumn(run.epochSeconds.std, run.epochSeconds.mean)} s${label} (n = ${run.epochSeconds.n})`,
      );
      if (mixed !== undefined)
        out.push(
          `  ${time}: ${secondsColumn(mixed.mean)} +- ${secondsColumn(mixed.std, mixed.mean)} s mixed with a second job (n = ${mixed.n})`,
        );
    }
    if (run.totalSeconds !== null && report.basis !== "run")
      out.push(`  Total training time: ${run.totalSeconds.toFixed(1)} s (${(run.totalSeconds / 60).toFixed(1)} min)`);
    if (run.samplesPerSecond !== null) out.push(`  Throughput: ${run.samplesPerSecond.toFixed(0)} samples/s`);
    if (run.stepSampling !== undefined)
      out.push(
        `  Short steps: the probe counted all and recorded one of ${run.stepSampling}, so that it costs less than 1%.`,
      );
    if (run.disturbed === true) out.push("  Others used the machine during this run.");
    if (point !== undefined && point.class === "baseline") out.push("  Baseline.");
    else if (point?.valid === true)
      out.push(
        `  Speedup: ${point.speedup.toFixed(2)}x, efficiency ${(point.efficiency * 100).toFixed(1)}% (${point.class}: ${classMeaning[point.class]})`,
      );
    else if (point !== undefined)
      out.push(
        `  Ratio of times: ${point.speedup.toFixed(2)}, ${point.status === "undecided" ? "undecided" : "not a speedup"}. ` +
          (point.workSpeedup === null
            ? "The runs are not comparable: no speedup can be given."
            : `Work per second relative to the baseline: ${workText(point)} (efficiency ${efficiencyText(point)}).`),
      );
    if (run.finalAccuracy !== null) out.push(`  Final validation accuracy: ${run.finalAccuracy.toFixed(3)}`);
    out.push("");
  }
  for (const p of report.predictions) {
    const range =
      p.interval === null ? "no interval" : `80%: ${shortNumber(p.interval[0])} to ${shortNumber(p.interval[1])} s`;
    out.push(
      `Prediction at ${plural(p.devices)}: ${p.value === null ? "none" : `${shortNumber(p.value)} s`} (${range}); ${p.reason}`,
    );
  }
  if (report.predictions.length > 0) out.push("");
  if (report.findings.length === 0) out.push("No findings.");
  report.findings.forEach((f, i) => {
    out.push(findingTitle(f, i));
    for (const e of f.evidence) out.push(`   ${`${e.rank}:`.padEnd(11)} ${e.text}`);
    for (const r of f.readings ?? []) out.push(`   reading:    ${readingText(r)}`);
    out.push(`   cause:      ${f.cause}`);
    for (const a of f.alternatives ?? []) out.push(`   looked at:  ${a}`);
    if (f.fix !== null) out.push(`   fix:        ${f.fix}`);
    const effect = effectText(f.predicted);
    if (effect !== null) out.push(`   predicted:  ${effect}`);
    out.push(`   refuted by: ${f.refutedBy}`, `   rule from:  ${f.source}`, "");
  });
  for (const p of report.problems) out.push(`Note: ${p.message}${p.file === "" ? "" : ` (${p.file})`}`);
  return out;
}

/** Formats study reports as plain text. */
export function performanceReport(reports: readonly StudyReport[]): string {
  return plainText(`${[rule, "SCALING REPORT", ...reports.flatMap(studyText), rule].join("\n")}\n`);
}
