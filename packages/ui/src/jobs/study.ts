// Analyzes a study with the lab, for the scaling page.
import { lstatSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { plainText } from "@weft/formats/text";
import { analyzeStudy, type StudyReport } from "@weft/lab/internal/diagnosis";
import { studyFromScaleDirectory } from "@weft/lab/internal/import";
import type { Finding, Study } from "@weft/lab/internal/model";
import { classText, effectText, readingText, verdictLine } from "@weft/lab/internal/report";
import { type FindingCard, RequestError, type ScalingView } from "../wire/index.js";

/** Bytes of record files that are analyzed; more is for the command line. */
const mostBytes = 1 << 30;

/** The lab reads with plain calls: a pipe would block it, a link would lead elsewhere. */
function checkFiles(folder: string): void {
  let bytes = 0;
  const visit = (path: string, depth: number): void => {
    for (const entry of readdirSync(path, { withFileTypes: true })) {
      const inside = join(path, entry.name);
      if (entry.isDirectory() && depth > 0) visit(inside, depth - 1);
      else if (entry.isFile()) bytes += lstatSync(inside).size;
      else if (!entry.isDirectory() && /\.(jsonl?|csv|yaml)$/.test(entry.name))
        throw new RequestError(422, `${inside} is not a plain file; the study is not read`);
    }
  };
  visit(folder, 2);
  if (bytes > mostBytes)
    throw new RequestError(422, `the study holds ${(bytes / 1e9).toFixed(1)} GB of files; weft analyze reads it`);
}

const quoted = (word: string): string =>
  /^[\w./:=@%+,{}-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;

/** The measurement that would settle a finding: the same study once more, with repeats; its name makes the ledger score it. */
function commandOf(study: Study, report: StudyReport): string | null {
  if (study.command === undefined || study.command.length === 0) return null;
  const counts = [...new Set(report.runs.map((run) => run.devices))].sort((a, b) => a - b);
  const launcher =
    study.launcher === undefined || study.launcher === "local" ? "" : ` --launcher ${quoted(study.launcher)}`;
  return plainText(
    `weft scale --name ${quoted(report.name)} --devices ${counts.join(",")} --repeats 5${launcher} -- ${study.command.map(quoted).join(" ")}`,
  ).slice(0, 2000);
}

/** One card per rule and cause; the counts and runs that it concerns are joined. */
function cardsOf(findings: readonly Finding[], command: string | null): FindingCard[] {
  const cards = new Map<string, FindingCard>();
  for (const finding of findings) {
    const found = cards.get(finding.id);
    const evidence = finding.evidence.map(({ rank, text }) => ({ rank, text: plainText(text.slice(0, 1000)) }));
    if (found !== undefined) {
      if (finding.devices !== undefined && !found.devices.includes(finding.devices))
        found.devices.push(finding.devices);
      found.evidence.push(...evidence.filter(({ text }) => !found.evidence.some((one) => one.text === text)));
      continue;
    }
    cards.set(finding.id, {
      id: finding.id,
      title: plainText(finding.title),
      severity: finding.severity,
      devices: finding.shownBy?.devices ?? (finding.devices === undefined ? [] : [finding.devices]),
      evidence,
      readings: (finding.readings ?? []).map((reading) => plainText(readingText(reading))),
      cause: plainText(finding.cause),
      fix: finding.fix === null ? null : plainText(finding.fix),
      effect: textOrNull(effectText(finding.predicted)),
      refutedBy: plainText(finding.refutedBy),
      command: finding.severity === "info" ? null : command,
    });
  }
  return [...cards.values()].map((card) => ({ ...card, evidence: card.evidence.slice(0, 6) }));
}

const textOrNull = (text: string | null): string | null => (text === null ? null : plainText(text));

/** The page of a study. */
export function viewStudy({ folder }: { folder: string }): ScalingView {
  checkFiles(folder);
  const study = studyFromScaleDirectory(folder);
  const { report, verdict } = analyzeStudy(study);
  const base = verdict.view.baseline;
  const secondsOf = (devices: number): number | null =>
    verdict.view.counts.find((count) => count.devices === devices)?.seconds.mean ?? null;
  // A prediction is of a time; its ratio to the baseline's time is a speedup, and a longer time is a smaller one.
  const ratio = (seconds: number | null): number | null =>
    seconds === null || base === null || seconds <= 0 ? null : base.seconds.mean / seconds;
  return {
    name: plainText(report.name),
    status: report.status,
    verdict: plainText(verdictLine(report)),
    basis: report.basis,
    points: report.scaling.map((point) => ({
      devices: point.devices,
      speedup: point.speedup,
      interval: point.interval,
      efficiency: point.efficiency,
      workSpeedup: point.workSpeedup,
      valid: point.valid,
      status: point.status,
      class: classText(point),
      seconds: secondsOf(point.devices),
      runs: report.runs.filter((run) => run.devices === point.devices).length,
    })),
    predictions: report.predictions.map(({ devices, value, interval, reason }) => ({
      devices,
      speedup: ratio(value),
      interval: interval === null ? null : [ratio(interval[1]) ?? 0, ratio(interval[0]) ?? 0],
      reason: plainText(reason),
    })),
    findings: cardsOf(report.findings, commandOf(study, report)),
    problems: report.problems.slice(0, 20).map(({ message }) => plainText(message.slice(0, 500))),
  };
}
