// Shared by analyze, diagnose and predict: reading studies, the ledger, and the text of findings.
import { existsSync } from "node:fs";
import { dirname, join } from "node:path";
import { plainText } from "@weft/formats/text";
import { type Analysis, analyzeStudy, type StudyReport } from "@weft/lab/internal/diagnosis";
import { readStudies } from "@weft/lab/internal/import";
import { ledgerScore, predictionsOf, readLedger, recordPredictions, scoreLedger } from "@weft/lab/internal/ledger";
import type { Finding, ImportProblem, Study } from "@weft/lab/internal/model";
import {
  classText,
  effectText,
  efficiencyText,
  findingTitle,
  ratioText,
  readingText,
  verdictLine,
  workText,
} from "@weft/lab/internal/report";
import { table, warn } from "../terminal/index.js";
import { labWork } from "./lab-work.js";
import { cliSettings } from "./settings.js";

interface StudyInputOptions {
  warmup?: number;
  datasets?: string[];
}

export function loadStudies(paths: readonly string[], options: StudyInputOptions): Promise<Study[]> {
  return labWork(() =>
    readStudies(paths, {
      ...(options.warmup !== undefined && { warmup: options.warmup }),
      ...(options.datasets !== undefined && { names: options.datasets }),
    }),
  );
}

export const analyzeAll = (studies: readonly Study[]): Analysis[] => studies.map(analyzeStudy);

export function warnProblems(problems: readonly ImportProblem[]): void {
  for (const p of problems) warn(`${p.message}${p.file === "" ? "" : ` (${p.file})`}`);
}

/** The ledger file: the option, WEFT_LEDGER, or `.weft/ledger.jsonl`. */
export const ledgerPath = (given?: string): string =>
  given ?? cliSettings.ledger.get() ?? join(".weft", "ledger.jsonl");

/** Scores predictions with these studies, then records theirs; returns a summary. */
export function keepLedger(reports: readonly StudyReport[], path: string): string {
  const now = Date.now() / 1000;
  const scored = scoreLedger(path, reports, now);
  const recorded = recordPredictions(
    path,
    reports.flatMap((report) => predictionsOf(report, now)),
  );
  if (!existsSync(dirname(path)) || !existsSync(path)) return "";
  const score = ledgerScore(readLedger(path));
  const rate =
    score.hitRate === null
      ? "none scored yet"
      : `${(score.hitRate * 100).toFixed(0)}% of ${score.withInterval} intervals held`;
  return `ledger ${path}: ${recorded.length} new prediction${recorded.length === 1 ? "" : "s"}, ${scored.length} scored now; ${rate}`;
}

export function scalingTable(report: StudyReport): string {
  const rows = report.runs.map((run) => {
    const point = report.scaling.find((p) => p.devices === run.devices);
    const e = run.epochSeconds;
    return [
      run.id,
      run.devicesUnknown ? "?" : String(run.devices),
      e === null ? "-" : `${e.mean.toFixed(3)} +- ${e.std.toFixed(3)}`,
      e === null ? "-" : String(e.n),
      run.devicesUnknown ? "-" : ratioText(point),
      run.devicesUnknown ? "-" : workText(point),
      run.devicesUnknown ? "-" : efficiencyText(point),
      run.devicesUnknown ? "-" : classText(point),
    ];
  });
  return table(["run", "devices", "seconds", "n", "speedup", "work/s", "efficiency", "class"], rows);
}

export const verdictText = (report: StudyReport): string =>
  `${plainText(report.name)}: ${plainText(verdictLine(report))}`;

function findingText(finding: Finding, index: number): string {
  const lines = [
    findingTitle(finding, index),
    ...finding.evidence.flatMap((e) => [
      `     ${e.rank.padEnd(9)} ${e.text}`,
      ...(finding.id.startsWith("trace-") ? (e.rows ?? []).map((row) => `               ${row}`) : []),
    ]),
    ...(finding.readings ?? []).map((r) => `     reading   ${readingText(r)}`),
    `   cause       ${finding.cause}`,
    ...(finding.fix === null ? [] : [`   fix         ${finding.fix}`]),
  ];
  const effect = effectText(finding.predicted);
  if (effect !== null) lines.push(`   predicted   ${effect}`);
  lines.push(`   refuted by  ${finding.refutedBy}`);
  return plainText(lines.join("\n"));
}

export function findingsText(report: Pick<StudyReport, "findings">): string {
  if (report.findings.length === 0) return "No findings: no rule found a problem in these measurements.";
  return report.findings.map(findingText).join("\n");
}
