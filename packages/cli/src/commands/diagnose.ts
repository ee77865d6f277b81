// weft diagnose: findings with evidence, cause, fix and predicted effect, of a study, of a single run, or of traces without a run.
import { attachTraces, traceFindings } from "@weft/lab/internal/diagnosis";
import { verdictExitCode } from "@weft/lab/internal/report";
import type { Command } from "commander";
import { attempt, failed, printJson, printText, warn, withProgress, writeFiles } from "../terminal/index.js";
import { labWork } from "./lab-work.js";
import { analyzeAll, findingsText, keepLedger, ledgerPath, loadStudies, verdictText, warnProblems } from "./studies.js";
import { readTraces, traceMessages, whatIfText } from "./trace-common.js";

interface Options {
  json?: boolean;
  out?: string;
  traces: boolean;
  ledger: string | boolean;
}

const help = `
Examples:
  weft diagnose runs/2026-11-15T10                 everything the rules find in a study that weft scale made
  weft diagnose runs/2026-11-15T10/runs/n4-r0      one run: what its steps, samples and traces say
  weft diagnose rank*.json.gz                      traces of the PyTorch profiler alone
  weft diagnose experiments/ --json | jq '.studies[].findings[] | {id, severity, fix}'

Findings come in the order: is it valid, then the host, the device, and communication last. Nothing is recommended from a
study that is not valid.`;

export default function add(program: Command): void {
  program
    .command("diagnose")
    .description("Find performance problems: evidence, cause, fix and predicted effect.")
    .argument("<paths...>", "study or run directories, study.yaml, records (.jsonl), or traces (.json, .json.gz)")
    .option("--no-traces", "do not read the traces of the runs")
    .option("--json", "the findings as JSON on standard output")
    .option("--out <dir>", "write findings.json and findings.txt into a directory")
    .option("--ledger <file>", "file that records and scores predictions (default: .weft/ledger.jsonl)")
    .option("--no-ledger", "record no predictions")
    .addHelpText("after", help)
    .action((paths: string[], options: Options) => attempt(() => run(paths, options)));
}

const isTrace = (path: string): boolean => /\.json(?:\.gz)?$|\.xplane\.pb$/.test(path);

async function diagnoseTraces(paths: string[], options: Options): Promise<void> {
  const report = await readTraces(paths, {});
  for (const message of traceMessages(report)) warn(message);
  const findings = traceFindings(report);
  const [first] = report.ranks.filter((rank) => rank.whatIf !== null);
  const whatIf = first?.whatIf ?? null;
  const isEmpty = report.ranks.every((rank) => rank.spanUs === undefined);
  const said = isEmpty ? "Cannot say: there is no work in these traces." : findingsText({ findings });
  const parts = [said, ...(first === undefined ? [] : [whatIfText(first)])];
  const text = `${parts.join("\n\n")}\n`;
  if (options.out !== undefined)
    writeFiles(options.out, {
      "findings.json": `${JSON.stringify({ findings, whatIf }, null, 2)}\n`,
      "findings.txt": text,
    });
  if (options.json) printJson({ findings, whatIf });
  else printText(text);
  if (isEmpty) process.exitCode = failed;
}

async function run(paths: string[], options: Options): Promise<void> {
  if (paths.every(isTrace)) return diagnoseTraces(paths, options);
  const studies = await loadStudies(paths, {});
  if (options.traces)
    await withProgress((progress) =>
      labWork(async () => {
        for (const study of studies) await attachTraces(study, progress.update.bind(progress));
      }),
    );
  const reports = analyzeAll(studies).map((a) => a.report);
  for (const study of studies) warnProblems(study.problems);
  const text = reports.map((report) => `${verdictText(report)}\n\n${findingsText(report)}\n`).join("\n");
  const result = {
    studies: reports.map(({ name, status, valid, scaling, findings }) => ({ name, status, valid, scaling, findings })),
  };
  if (options.out !== undefined)
    writeFiles(options.out, { "findings.json": `${JSON.stringify(result, null, 2)}\n`, "findings.txt": text });
  const ledger = typeof options.ledger === "string" ? options.ledger : undefined;
  const kept =
    options.ledger === false || (options.json && ledger === undefined) ? "" : keepLedger(reports, ledgerPath(ledger));
  if (options.json) printJson(result);
  else printText(kept === "" ? text : `${text}\n${kept}\n`);
  if (reports.every((report) => report.runs.length === 0)) {
    warn("no run could be read");
    process.exitCode = failed;
  } else process.exitCode = verdictExitCode(reports);
}
