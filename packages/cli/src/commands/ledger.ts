// weft ledger: recorded predictions, their outcomes, and how often their intervals were right.
import { shortNumber } from "@weft/formats/text";
import { type Ledger, ledgerScore, readLedger, scoreLedger } from "@weft/lab/internal/ledger";
import type { Command } from "commander";
import { attempt, CommandError, printJson, printText, table, warn, writeFiles } from "../terminal/index.js";
import { analyzeAll, ledgerPath, loadStudies } from "./studies.js";

interface Options {
  ledger?: string;
  json?: boolean;
  out?: string;
}

const help = `
Examples:
  weft ledger                                   every prediction, its outcome, and the hit rate
  weft ledger --score runs/2026-11-16T09        score what this study answers, then show

analyze and diagnose write predictions here and score them when a later run of the same study (the same name) arrives. The predicted effect of a
fix is scored by a study without that finding.`;

export default function add(program: Command): void {
  program
    .command("ledger")
    .description("Show recorded predictions and their outcomes.")
    .option("--score <paths...>", "studies to score predictions with")
    .option("--ledger <file>", "the ledger (default: .weft/ledger.jsonl, or WEFT_LEDGER)")
    .option("--json", "predictions, outcomes and score as JSON on standard output")
    .option("--out <dir>", "write ledger.json into a directory")
    .addHelpText("after", help)
    .action((options: Options & { score?: string[] }) => attempt(() => run(options)));
}

async function run(options: Options & { score?: string[] }): Promise<void> {
  const path = ledgerPath(options.ledger);
  if (options.score !== undefined) {
    const reports = analyzeAll(await loadStudies(options.score, {})).map((a) => a.report);
    scoreLedger(path, reports, Date.now() / 1000);
  }
  const ledger = readLedger(path);
  if (
    ledger.predictions.length === 0 &&
    ledger.unreadable === 0 &&
    options.ledger !== undefined &&
    options.score === undefined
  )
    throw new CommandError(`${path} holds no prediction; weft analyze STUDY --ledger ${path} writes them`);
  if (ledger.unreadable > 0) warn(`${path}: ${ledger.unreadable} unreadable lines passed over`);
  const result = { ...ledger, score: ledgerScore(ledger) };
  if (options.out !== undefined) writeFiles(options.out, { "ledger.json": `${JSON.stringify(result, null, 2)}\n` });
  if (options.json) printJson(result);
  else printText(`${show(ledger)}\n`);
}

function show(ledger: Ledger): string {
  if (ledger.predictions.length === 0) return "No predictions yet: weft analyze and weft diagnose write them.";
  const outcomes = new Map(ledger.outcomes.map((o) => [o.prediction, o]));
  const rows = ledger.predictions.map((p) => {
    const o = outcomes.get(p.id);
    return [
      p.study,
      p.finding ?? "extrapolation",
      String(p.devices),
      `${shortNumber(p.to)} ${p.unit}`,
      p.interval === null ? "-" : `${shortNumber(p.interval[0])} to ${shortNumber(p.interval[1])}`,
      o === undefined ? "open" : shortNumber(o.value),
      o === undefined ? "" : o.inside === null ? "no interval" : o.inside ? "held" : "missed",
    ];
  });
  const score = ledgerScore(ledger);
  const rate =
    score.hitRate === null
      ? "nothing scored yet"
      : `${score.scored} scored: ${(score.hitRate * 100).toFixed(0)}% of the intervals held, median error ${((score.medianError ?? 0) * 100).toFixed(1)}%`;
  return `${table(["study", "what", "devices", "predicted", "80% interval", "measured", ""], rows, 2)}\n\n${score.predictions} predictions, ${rate}`;
}
