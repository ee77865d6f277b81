// Writes the files of a training run: metrics.csv (one row per epoch) and record files (one JSON line per step and rank). The
// formats are those of @weft/formats.
import { existsSync, mkdirSync, readFileSync } from "node:fs";
import { hostname } from "node:os";
import { join } from "node:path";
import {
  formatMetrics,
  type RecordOf,
  type RecordType,
  type RunFile,
  recordVersion,
  type TrainingStep,
  type Workload,
} from "@weft/formats/internal";
import { appendWhole, replaceFile } from "./run-files.js";

/** One row of metrics.csv. */
export interface EpochRow {
  /** Number of the epoch, from 1. */
  epoch: number;
  /** Mean loss of its steps. */
  trainLoss: number;
  /** Training time without evaluation. */
  seconds: number;
  /** Loss on held-out rows; null without evaluation. */
  valLoss: number | null;
  /** Accuracy on held-out rows; null without evaluation. */
  valAccuracy: number | null;
  /** F1 of entities, or mean F1 of the classes, on held-out rows; null or absent without counts by class. */
  valF1?: number | null;
  /** Pearson's correlation coefficient on held-out rows of a regression. */
  valPearson?: number;
  /** Spearman's correlation coefficient on held-out rows of a regression. */
  valSpearman?: number;
}

/** Replaces metrics.csv as a whole, so that a resumed run has each epoch once. */
export function writeMetrics(folder: string, rows: readonly EpochRow[]): void {
  replaceFile(join(folder, "metrics.csv"), formatMetrics(rows));
}

/** What the writer itself adds to every record. */
type Envelope = "v" | "type" | "t" | "rank";

/** Writes the record file of one rank, in blocks of whole lines. */
export class RecordWriter {
  readonly #paths: string[];
  readonly #rank: number;
  #lines: string[] = [];
  #last = performance.now();
  /** Origin of `startUs`, so that the steps of a file share one time axis. */
  readonly #origin = performance.now();

  /**
   * @param folders Each gets the same file.
   * @param fromStep Step at which a resumed run continues: the records of earlier steps are kept. 0 starts an empty file.
   */
  constructor(folders: readonly string[], rank: number, fromStep: number) {
    this.#rank = rank;
    this.#paths = folders.map((folder) => join(folder, `rank${rank}.jsonl`));
    for (const path of this.#paths) {
      mkdirSync(join(path, ".."), { recursive: true });
      const kept = fromStep > 0 && existsSync(path) ? linesBefore(readFileSync(path, "utf8"), fromStep) : "";
      replaceFile(path, kept);
    }
  }

  write<T extends RecordType>(type: T, fields: Omit<RecordOf<T>, Envelope>): void {
    const record = { v: recordVersion, type, t: Date.now() / 1000, rank: this.#rank, ...fields };
    this.#lines.push(JSON.stringify(record, withoutNonFinite));
    if (this.#lines.length >= 256 || performance.now() - this.#last > 1000) this.flush();
  }

  /** @param startMs Start of the step on the clock of `performance.now()`. */
  step(step: Omit<TrainingStep, "rank" | "startUs">, startMs: number): void {
    this.write("step", { ...step, startUs: Math.max(0, (startMs - this.#origin) * 1000) });
  }

  flush(): void {
    if (this.#lines.length === 0) return;
    const text = `${this.#lines.join("\n")}\n`;
    for (const path of this.#paths) appendWhole(path, text);
    this.#lines = [];
    this.#last = performance.now();
  }
}

/** JSON has no NaN and no infinity, and the format has no `null`: such a field is left out. */
const withoutNonFinite = (_key: string, value: unknown): unknown =>
  typeof value === "number" && !Number.isFinite(value) ? undefined : value;

/** The records of the steps before a step; end records and unfinished lines are dropped. */
function linesBefore(text: string, step: number): string {
  return text
    .split("\n")
    .slice(0, -1)
    .filter((line) => {
      try {
        const record = JSON.parse(line) as { type: string; step?: number; lastStep?: number };
        if (record.type === "end") return false;
        const at = record.type === "step" ? record.step : record.type === "epoch" ? (record.lastStep ?? 0) - 1 : -1;
        return (at ?? -1) < step;
      } catch {
        return false;
      }
    })
    .map((line) => `${line}\n`)
    .join("");
}

/** What run.json says from the start of a run. */
export interface RunHead {
  name: string;
  ranks: number;
  workload: Workload;
  startedAt: number;
  /** Cores that all ranks of this host may use together. */
  cores: number;
  /** Steps that the run will take, if it is not stopped. */
  steps: number;
}

/** Writes run.json; it is rewritten when the run ends. */
export function writeTrainingRunFile(
  folder: string,
  head: RunHead,
  status: RunFile["status"],
  more: Partial<RunFile> = {},
): void {
  const path = join(folder, "run.json");
  const record: RunFile = {
    v: recordVersion,
    id: head.name,
    devices: head.ranks,
    repeat: 0,
    order: 0,
    command: process.argv.slice(2),
    status,
    startedAt: head.startedAt,
    machine: { host: hostname(), cores: head.cores },
    workload: head.workload,
    steps: head.steps,
    ...more,
  };
  replaceFile(path, `${JSON.stringify(record, null, 1)}\n`);
}
