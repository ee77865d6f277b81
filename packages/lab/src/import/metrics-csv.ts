// metrics.csv (epoch,train_loss,train_time,val_loss,val_acc; one row an epoch) to epochs in file order. Rows that cannot be
// measurements are left out and counted; that two jobs share a file is not decided here.
import type { Epoch } from "../model/index.js";
import { type ProblemLog, readLines } from "./lines.js";

type Column = "epoch" | "seconds" | "trainLoss" | "valLoss" | "valAccuracy" | "samples" | "steps";

// Names that such files carry in the wild.
const columnNames: Record<string, Column> = {
  epoch: "epoch",
  train_time: "seconds",
  epoch_time: "seconds",
  time: "seconds",
  seconds: "seconds",
  train_loss: "trainLoss",
  loss: "trainLoss",
  val_loss: "valLoss",
  val_acc: "valAccuracy",
  val_accuracy: "valAccuracy",
  accuracy: "valAccuracy",
  samples: "samples",
  steps: "steps",
};

const expectedHeader = "epoch,train_loss,train_time,val_loss,val_acc";

export interface CsvResult {
  epochs: Epoch[];
  /** Rows after the header, good or bad. */
  rows: number;
}

function readHeader(text: string): Map<Column, number> {
  const columns = new Map<Column, number>();
  text.split(",").forEach((name, i) => {
    const column = columnNames[name.trim().toLowerCase().replaceAll('"', "")];
    if (column !== undefined && !columns.has(column)) columns.set(column, i);
  });
  return columns;
}

export function readMetricsCsv(path: string, problems: ProblemLog): CsvResult {
  const epochs: Epoch[] = [];
  let columns: Map<Column, number> | null = null;
  let header = "";
  let width = 0;
  let rows = 0;
  for (const { text, number, complete } of readLines(path)) {
    if (text.trim() === "") continue;
    if (columns === null) {
      columns = readHeader(text);
      header = text;
      width = text.split(",").length;
      if (!columns.has("epoch") || !columns.has("seconds")) {
        problems.add(
          path,
          "no-header",
          `expected a header such as ${expectedHeader}, found ${text.slice(0, 80)}`,
          number,
        );
        return { epochs: [], rows: 0 };
      }
      continue;
    }
    rows++;
    if (text === header) {
      problems.add(path, "repeated-header", "a header in the middle of the file: another job wrote here", number);
      continue;
    }
    const cells = text.split(",");
    if (cells.length < width) {
      // A cut last line may end inside a number, so nothing of it can be trusted.
      problems.add(
        path,
        complete ? "short-row" : "truncated-line",
        complete ? `row with ${cells.length} of ${width} columns left out` : "half-written last row left out",
        number,
      );
      continue;
    }
    const value = (column: Column): number | undefined => {
      const at = columns!.get(column);
      const cell = at === undefined ? "" : cells[at]!.trim();
      const parsed = cell === "" ? Number.NaN : Number(cell);
      return Number.isFinite(parsed) ? parsed : undefined;
    };
    const epoch = value("epoch");
    const seconds = value("seconds");
    if (epoch === undefined || !Number.isInteger(epoch) || epoch < 0)
      problems.add(path, "bad-epoch", `row left out: epoch is ${JSON.stringify(cells[columns.get("epoch")!])}`, number);
    else if (seconds === undefined)
      problems.add(path, "bad-time", `row left out: time is ${JSON.stringify(cells[columns.get("seconds")!])}`, number);
    else if (seconds <= 0)
      problems.add(
        path,
        "negative-time",
        `row left out: ${seconds} s is not a duration (a clock that went back?)`,
        number,
      );
    else {
      const row: Epoch = { epoch, seconds, line: number };
      for (const key of ["trainLoss", "valLoss", "valAccuracy", "samples", "steps"] as const) {
        const optional = value(key);
        if (optional !== undefined) row[key] = optional;
      }
      epochs.push(row);
    }
  }
  if (columns === null) problems.add(path, "empty-file", "the file is empty");
  else if (rows === 0) problems.add(path, "no-rows", "the file has a header and no rows");
  return { epochs, rows };
}
