// Imports metrics.csv (one row per epoch) as epochs in file order. Rows that cannot be measurements are left out and counted;
// whether two jobs wrote to one file is decided later.

import { CsvError, type CsvRow, readCsvText } from "@weft/formats/csv";
import {
  type MetricsColumn,
  metricsColumn,
  metricsColumns,
  metricsHeader,
  type TrainingEpoch,
} from "@weft/formats/internal";
import { type ProblemLog, readImport } from "./lines.js";
import { secondsOf, type TimeColumn, timeColumn, timeValue } from "./time-column.js";

/** The epochs of a metrics.csv. */
interface MetricsCsv {
  epochs: TrainingEpoch[];
  /** Rows after the header, valid or not. */
  rows: number;
}

function* rowsOf(path: string, problems: ProblemLog): Generator<CsvRow<string>> {
  const bytes = readImport(path);
  try {
    yield* readCsvText(bytes, path);
  } catch (error) {
    if (!(error instanceof CsvError)) throw error;
    problems.add(path, "bad-row", `the rest of the file was left out: ${error.message}`);
  }
}

/** What the columns of a header are. */
interface Columns {
  /** Position of each field; of several names of one field the clearest. */
  at: Map<MetricsColumn, number>;
  time: TimeColumn;
  /** A file with steps has many rows per epoch: the last one that has a time counts. */
  hasSteps: boolean;
}

const stepNames = new Set(["step", "global_step", "_step", "trainer/global_step", "train/global_step"]);
const exports: readonly [RegExp, string][] = [
  [/^wall time,step,value$/, "this is one scalar of TensorBoard"],
  [/(?:^|,)step(?:,|$)/, "the logger of PyTorch Lightning writes no times: log one, as epoch_time"],
  [/(?:^|,)(?:val_)?loss(?:,|$)/, "the CSV logger of Keras writes no times: add one by a callback, as epoch_time"],
];

/** The columns of a header, or what is wrong with it. */
function columnsOf(header: readonly string[]): Columns | string {
  const at = new Map<MetricsColumn, number>();
  const rank = (column: MetricsColumn, name: string): number =>
    metricsColumns[column].indexOf(
      name
        .trim()
        .toLowerCase()
        .replace(/^.* - /, "")
        .replaceAll("/", "_"),
    );
  let time: TimeColumn | null = null;
  const runs = new Set<string>();
  header.forEach((name, i) => {
    const found = timeColumn(name);
    if (found !== null && (time === null || found.rank < time.rank)) {
      time = found;
      at.set("seconds", i);
    }
    const column = metricsColumn(name);
    if (column !== undefined || found !== null) runs.add(/^(.*) - /.exec(name)?.[1] ?? "");
    if (column === undefined || column === "seconds") return;
    const before = at.get(column);
    if (before === undefined || rank(column, name) < rank(column, header[before]!)) at.set(column, i);
  });
  runs.delete("");
  if (runs.size > 1) return `columns of several runs (${[...runs].slice(0, 3).join(", ")}): export each run by itself`;
  if (time !== null && at.has("epoch"))
    return { at, time, hasSteps: header.some((name) => stepNames.has(name.trim().toLowerCase())) };
  const line = header.map((name) => name.trim().toLowerCase()).join();
  const hint = exports.find(([pattern]) => pattern.test(line))?.[1];
  return `expected a header such as ${metricsHeader.join(",")}, found ${header.join(",").slice(0, 80)}${hint === undefined ? "" : ` (${hint})`}`;
}

/** Reads metrics.csv; problems are added to `problems`. */
export function readMetricsCsv(path: string, problems: ProblemLog): MetricsCsv {
  const found: (TrainingEpoch & { value: number })[] = [];
  let header: string[] | null = null;
  let columns: Columns | null = null;
  let rows = 0;
  for (const { fields: cells, line, complete } of rowsOf(path, problems)) {
    if (cells.length === 1 && cells[0].trim() === "") continue;
    const problem = (id: string, message: string): void => problems.add(path, id, message, line);
    if (header === null || columns === null) {
      header = cells;
      const read = columnsOf(cells);
      if (typeof read !== "string") {
        columns = read;
        continue;
      }
      problem("no-header", read);
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
    const { at, time, hasSteps } = columns;
    const cell = (column: MetricsColumn): string => cells[at.get(column) ?? -1] ?? "";
    const value = (column: MetricsColumn): number | undefined => {
      const text = cell(column).trim();
      const parsed = text === "" ? Number.NaN : Number(text);
      return Number.isFinite(parsed) ? parsed : undefined;
    };
    // Rows of steps may count epochs in fractions: 1.5 lies in the second one.
    const epoch = hasSteps && value("epoch") !== undefined ? Math.ceil(value("epoch")!) : value("epoch");
    const seconds = timeValue(cell("seconds"), time);
    if (hasSteps && cell("seconds").trim() === "") continue;
    if (epoch === undefined || !Number.isInteger(epoch) || epoch < 0)
      problem("bad-epoch", `row left out: epoch is ${JSON.stringify(cell("epoch").slice(0, 40))}`);
    else if (seconds === undefined)
      problem("bad-time", `row left out: time is ${JSON.stringify(cell("seconds").slice(0, 40))}`);
    else {
      const row: (typeof found)[number] = { epoch, seconds: 0, value: seconds, line };
      for (const key of ["trainLoss", "valLoss", "valAccuracy", "samples", "steps"] as const) {
        const optional = value(key);
        if (optional !== undefined) row[key] = optional;
        else if (cell(key).trim() !== "")
          problem(
            "bad-field",
            `${metricsColumns[key][0]} left out: ${JSON.stringify(cell(key).slice(0, 40))} is not a number`,
          );
      }
      if (hasSteps && found.at(-1)?.epoch === epoch) found[found.length - 1] = row;
      else found.push(row);
    }
  }
  if (header === null) problems.add(path, "empty-file", "the file is empty");
  else if (rows === 0) problems.add(path, "no-rows", "the file has a header and no rows");
  return { epochs: columns === null ? [] : timed(path, found, columns, header!, problems), rows };
}

/** The rows with their seconds; rows without a duration are left out. */
function timed(
  path: string,
  rows: readonly (TrainingEpoch & { value: number })[],
  { at, time }: Columns,
  header: readonly string[],
  problems: ProblemLog,
): TrainingEpoch[] {
  const { seconds, note } = secondsOf(rows, time);
  if (note !== null)
    problems.add(path, "time-column", `column ${JSON.stringify(header[at.get("seconds")!])} is ${note}`);
  return rows.flatMap(({ value: _, ...row }, i) => {
    const duration = seconds[i]!;
    if (duration === null) return [];
    if (duration > 0) return [{ ...row, seconds: duration }];
    problems.add(
      path,
      "negative-time",
      `row left out: ${duration} s is not a duration (a clock that went back?)`,
      row.line,
    );
    return [];
  });
}
