// weft analyze: validity, scaling, findings and predictions of studies, with tables, charts and an HTML report.

import type { StudyReport } from "@weft/lab/internal/diagnosis";
import { verdictExitCode, writeReport } from "@weft/lab/internal/report";
import { query, studyTables, type Table, tableColumns, writeTables } from "@weft/lab/internal/store";
import type { Command } from "commander";
import {
  attempt,
  CommandError,
  failed,
  printJson,
  printText,
  table,
  withProgress,
  wrongUsage,
} from "../terminal/index.js";
import {
  analyzeAll,
  findingsText,
  keepLedger,
  ledgerPath,
  loadStudies,
  scalingTable,
  verdictText,
  warnProblems,
} from "./studies.js";

interface Options {
  warmup?: string;
  datasets?: string[];
  json?: boolean;
  out?: string;
  pictures: boolean;
  db?: string;
  sql?: string;
  ledger: string | boolean;
}

const help = `
Examples:
  weft analyze experiments/                              study.yaml and metrics.csv files -> tables, pictures, a page in weft-report/
  weft analyze experiments/ --datasets IMDB --warmup 1   one study, without its first epoch
  weft analyze runs/2026-11-15T10 --out report/          a study that weft scale made
  weft analyze experiments/ --json | jq '.studies[].scaling'
  weft analyze experiments/ --no-pictures --db lab.duckdb --sql "SELECT run, avg(seconds) FROM epochs GROUP BY run"

A study.yaml says which directories belong together:
  studies:
    - name: IMDB
      samples: 25000
      batch_per_rank: 32
      runs:
        - {dir: exp020_imdb_single_gpu, devices: 1}
        - {dir: exp021_imdb_ddp, devices: 4}`;

export default function add(program: Command): void {
  program
    .command("analyze")
    .description("Is this scaling study valid, how well does it scale, why, and what would help?")
    .argument("<paths...>", "study directories, study.yaml, metrics.csv or records (.jsonl)")
    .option("--warmup <n>", "epochs to exclude at the start of each run (default: the study's, else 1)")
    .option("--datasets <names...>", "only studies with these names")
    .option("--json", "the analysis as JSON on standard output; writes files only with --out")
    .option("--out <dir>", "directory for the files (default: weft-report)")
    .option("--no-pictures", "write no PNG, SVG and HTML, which is much faster")
    .option("--db <file>", "write measurements and findings into a DuckDB file")
    .option("--sql <query>", "query that database and print the rows (needs --db)")
    .option("--ledger <file>", "file that records and scores predictions (default: .weft/ledger.jsonl)")
    .option("--no-ledger", "record no predictions")
    .addHelpText("after", help)
    .action((paths: string[], options: Options) => attempt(() => run(paths, options)));
}

function readWarmup(text: string | undefined): number | undefined {
  if (text === undefined) return undefined;
  const warmup = Number(text);
  if (!Number.isInteger(warmup) || warmup < 0)
    throw new CommandError(`--warmup ${text} is not a count of epochs (0, 1, 2, ...)`, wrongUsage);
  return warmup;
}

/** The tables of the conclusions, in addition to those of the measurements. */
function conclusionTables(reports: readonly StudyReport[]): Table[] {
  return [
    {
      name: "scaling",
      columns: tableColumns(
        "study VARCHAR, devices INTEGER, ratio DOUBLE, valid BOOLEAN, verdict VARCHAR, work_ratio DOUBLE",
        "work_speedup DOUBLE, work_efficiency DOUBLE, class VARCHAR",
      ),
      rows: reports.flatMap((r) =>
        r.scaling.map((p) => [
          r.name,
          p.devices,
          p.speedup,
          p.valid,
          p.status,
          p.workRatio,
          p.workSpeedup,
          p.workEfficiency,
          p.class,
        ]),
      ),
    },
    {
      name: "findings",
      columns: tableColumns(
        "study VARCHAR, id VARCHAR, severity VARCHAR, run VARCHAR, devices INTEGER, cause VARCHAR",
        "fix VARCHAR",
      ),
      rows: reports.flatMap((r) => r.findings.map((f) => [r.name, f.id, f.severity, f.run, f.devices, f.cause, f.fix])),
    },
  ];
}

async function run(paths: string[], options: Options): Promise<void> {
  if (options.sql !== undefined && options.db === undefined)
    throw new CommandError("--sql needs --db FILE", wrongUsage);
  const warmup = readWarmup(options.warmup);
  const datasets = options.datasets?.flatMap((name) => name.split(",")).filter((name) => name !== "");
  const studies = await loadStudies(paths, {
    ...(warmup !== undefined && { warmup }),
    ...(datasets !== undefined && { datasets }),
  });
  const analyses = analyzeAll(studies);
  const reports = analyses.map((a) => a.report);
  for (const study of studies) warnProblems(study.problems);

  const directory = options.out ?? (options.json ? undefined : "weft-report");
  let written: string[] = [];
  if (directory !== undefined)
    written = await withProgress((progress) =>
      writeReport(analyses, directory, { pictures: options.pictures, onFile: progress.update.bind(progress) }),
    );
  if (options.db !== undefined) await writeTables(options.db, [...studyTables(studies), ...conclusionTables(reports)]);
  const ledger = typeof options.ledger === "string" ? options.ledger : undefined;
  const kept =
    options.ledger === false || (options.json && ledger === undefined) ? "" : keepLedger(reports, ledgerPath(ledger));

  if (options.json) printJson({ studies: reports });
  else {
    for (const report of reports)
      printText(`${verdictText(report)}\n\n${scalingTable(report)}\n\n${findingsText(report)}\n\n`);
    if (written.length > 0)
      printText(`${written.length} files in ${directory}${options.pictures ? ": open report.html" : ""}\n`);
    if (kept !== "") printText(`${kept}\n`);
  }
  if (options.sql !== undefined) await printQuery(options.db!, options.sql);
  process.exitCode = reports.every((report) => report.runs.every((r) => r.epochSeconds === null))
    ? failed
    : verdictExitCode(reports);
}

async function printQuery(path: string, sql: string): Promise<void> {
  const rows = await query(path, sql).catch((error: Error) => {
    throw new CommandError(`--sql: ${error.message}`);
  });
  const header = Object.keys(rows[0] ?? {});
  if (header.length === 0) printText("no rows\n");
  else
    printText(
      `${table(
        header,
        rows.map((row) => header.map((key) => String(row[key] ?? ""))),
      )}\n`,
    );
}
