// weft import: public results (MLPerf Training, vTrain) into a DuckDB file, for SQL.
import { readSubmissions, submissionTables, vtrainTables } from "@weft/lab/internal/atlas";
import { type Table, writeTables } from "@weft/lab/internal/store";
import { Argument, type Command } from "commander";
import { attempt, printJson, printText, withProgress } from "../terminal/index.js";
import { labWork } from "./lab-work.js";

const help = `
Examples:
  weft import mlperf training_results_v5.0 --db atlas.duckdb    submissions and runs: devices, batch, throughput, minutes
  weft import vtrain vTrain --db atlas.duckdb                   measured 3-D-parallel configurations
  weft analyze --help                                           --db and --sql query such a file`;

export default function add(program: Command): void {
  program
    .command("import")
    .description("Import public results (MLPerf Training, vTrain) into a DuckDB file.")
    .addArgument(new Argument("<kind>", "what the folder holds").choices(["mlperf", "vtrain"]))
    .argument("<dir>", "a checkout of mlcommons/training_results_vX or VIA-Research/vTrain")
    .option("--db <file>", "the DuckDB file", "atlas.duckdb")
    .option("--json", "the rows as JSON on standard output")
    .addHelpText("after", help)
    .action((kind: string, directory: string, options: { db: string; json?: boolean }) =>
      attempt(() => run(kind, directory, options)),
    );
}

async function run(kind: string, directory: string, options: { db: string; json?: boolean }): Promise<void> {
  const written = await withProgress(async (progress) => {
    const tables: Table[] = await labWork(() =>
      kind === "vtrain"
        ? vtrainTables(directory)
        : submissionTables(readSubmissions(directory, progress.update.bind(progress))),
    );
    progress.note(`writing ${options.db}`);
    return writeTables(options.db, tables);
  });
  if (options.json) printJson(written, 0);
  else for (const [name, rows] of Object.entries(written)) printText(`${name}: ${rows} rows in ${options.db}\n`);
}
