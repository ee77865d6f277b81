// The tables of imported public results: MLPerf submissions and their runs, and vTrain's measured configurations.
import { existsSync } from "node:fs";
import { join } from "node:path";
import { ImportError, readCsvFile } from "../import/index.js";
import { type Table, tableColumns } from "../store/index.js";
import type { Submission } from "./submissions.js";

/** Submissions and runs as tables. */
export function submissionTables(submissions: readonly Submission[]): Table[] {
  return [
    {
      name: "submissions",
      columns: tableColumns(
        "round VARCHAR, submitter VARCHAR, system VARCHAR, benchmark VARCHAR, accelerator VARCHAR",
        "devices INTEGER, devices_per_node INTEGER, global_batch DOUBLE, throughput DOUBLE",
        "minutes DOUBLE, runs INTEGER",
      ),
      rows: submissions.map((s) => [
        s.round,
        s.submitter,
        s.system,
        s.benchmark,
        s.accelerator,
        s.devices,
        s.devicesPerNode,
        s.globalBatch,
        s.throughput,
        s.minutes,
        s.runs.length,
      ]),
    },
    {
      name: "submission_runs",
      columns: tableColumns(
        "round VARCHAR, submitter VARCHAR, system VARCHAR, benchmark VARCHAR, file VARCHAR",
        "throughput DOUBLE, minutes DOUBLE, samples DOUBLE, success BOOLEAN",
      ),
      rows: submissions.flatMap((s) =>
        s.runs.map((r) => [
          s.round,
          s.submitter,
          s.system,
          s.benchmark,
          r.path,
          r.throughput,
          r.minutes,
          r.samples,
          r.success,
        ]),
      ),
    },
  ];
}

const largestCsv = 64 << 20;

/** vTrain's measured configurations (data/ground_truth_*.csv) as tables, one column per column of the files. */
export function vtrainTables(directory: string): Table[] {
  const tables = (["single", "multi"] as const).flatMap((kind): Table[] => {
    const path = join(directory, "data", `ground_truth_${kind}.csv`);
    if (!existsSync(path)) return [];
    const [header, ...rows] = readCsvFile(path, largestCsv).map((row) => row.fields);
    if (header === undefined) throw new ImportError(`${path}: the file is empty`);
    const isNumber = header.map((_, i) => rows.every((row) => row[i] === "" || Number.isFinite(Number(row[i]))));
    return [
      {
        name: `vtrain_${kind}`,
        columns: header.map((name, i): [string, "DOUBLE" | "VARCHAR"] => [
          name.trim() || `column${i}`,
          isNumber[i] ? "DOUBLE" : "VARCHAR",
        ]),
        rows: rows.map((row) =>
          header.map((_, i) => (row[i] === undefined || row[i] === "" ? null : isNumber[i] ? Number(row[i]) : row[i])),
        ),
      },
    ];
  });
  if (tables.length === 0)
    throw new ImportError(
      `${directory}: expected data/ground_truth_single.csv or data/ground_truth_multi.csv (VIA-Research/vTrain)`,
    );
  return tables;
}
