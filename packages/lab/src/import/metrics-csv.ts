// Imports metrics.csv (one row per epoch) as epochs in file order. Rows that cannot be measurements are left out and counted;
// whether two jobs wrote to one file is decided later.
import { readFileSync, statSync } from "node:fs";
import { type MetricsColumn, metricsColumn, metricsColumns, metricsHeader, type TrainingEpoch } from "@weft/formats";
import { CsvError, type CsvRow, readCsvText } from "@weft/formats/csv";
import { ImportError, type ProblemLog } from "./lines.js";

/** A file of one row per epoch is far smaller; anything larger is something else. */
const largestBytes = 256 << 20;

/** The epochs of a metrics.csv. */
interface MetricsCsv {
  epochs: TrainingEpoch[];
  /** Rows after the header, valid or not. */
  rows: number;
}

function* rowsOf(path: string, problems: ProblemLog): Generator<CsvRow<string>> {
  if (statSync(path).size > largestBytes)
    throw new ImportError(`${path}: larger than 256 MiB; a metrics.csv has one row per epoch`);
  try {
    yield* readCsvText(readFileSync(path), path);
  } catch (error) {
    if (!(error instanceof CsvError)) throw error;
    problems.add(path, "bad-row", `the rest of the file was left out: ${error.message}`);
  }
}

/** Reads metrics.csv; problems are added to `problems`. */
export function readMetricsCsv(path: string, problems: ProblemLog): MetricsCsv {
  const epochs: TrainingEpoch[] = [];
  let header: string[] | null = null;
  const columns = new Map<MetricsColumn, number>();
  let rows = 0;
  for (const { fields: cells, line, complete } of rowsOf(path, problems)) {
    if (cells.length === 1 && cells[0].trim() === "") continue;
    const problem = (id: string, message: string): void => problems.add(path, id, message, line);
    if (header === null) {
      header = cells;
      cells.forEach((name, i) => {
        const column = metricsColumn(name);
        if (column !== undefined && !columns.has(column)) columns.set(column, i);
      });
      if (columns.has("epoch") && columns.has("seconds")) continue;
      const found = cells.join(",").slice(0, 80);
      problem("no-header", `expected a header such as ${metricsHeader.join(",")}, found ${found}`);
      return { epochs: [], rows: 0 };
    }
    rows++;
    if (cells[0] === header[0] && cells.join() === header.join()) {
      problem("repeated-header", "a header in the middle of the file: another job wrote here");
      continue;
    }
    if (cells.length < header.length) {
      // An unfinished last line may end inside a number, so none of its values can be trusted.
      if (complete) problem("short-row", `row with ${cells.length} of ${header.length} columns left out`);
      else problem("truncated-line", "half-written last row left out");
      continue;
    }
    const cell = (column: MetricsColumn): string => {
      const at = columns.get(column);
      return at === undefined ? "" : cells[at];
    };
    const value = (column: MetricsColumn): number | undefined => {
      const text = cell(column).trim();
      const parsed = text === "" ? Number.NaN : Number(text);
      return Number.isFinite(parsed) ? parsed : undefined;
    };
    const epoch = value("epoch");
    const seconds = value("seconds");
    if (epoch === undefined || !Number.isInteger(epoch) || epoch < 0)
      problem("bad-epoch", `row left out: epoch is ${JSON.stringify(cell("epoch").slice(0, 40))}`);
    else if (seconds === undefined)
      problem("bad-time", `row left out: time is ${JSON.stringify(cell("seconds").slice(0, 40))}`);
    else if (seconds <= 0)
      problem("negative-time", `row left out: ${seconds} s is not a duration (a clock that went back?)`);
    else {
      const row: TrainingEpoch = { epoch, seconds, line };
      for (const key of ["trainLoss", "valLoss", "valAccuracy", "samples", "steps"] as const) {
        const optional = value(key);
        if (optional !== undefined) row[key] = optional;
        else if (cell(key).trim() !== "")
          problem(
            "bad-field",
            `${metricsColumns[key][0]} left out: ${JSON.stringify(cell(key).slice(0, 40))} is not a number`,
          );
      }
      epochs.push(row);
    }
  }
  if (header === null) problems.add(path, "empty-file", "the file is empty");
  else if (rows === 0) problems.add(path, "no-rows", "the file has a header and no rows");
  return { epochs, rows };
}
