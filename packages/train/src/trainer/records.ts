// What a run writes down: metrics.csv (one row an epoch, the columns that such files have everywhere) and JSON lines in the
// lab's record format (one line a step and rank). Plain files; nothing of the lab is needed here.
import { appendFileSync, existsSync, mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { hostname } from "node:os";
import { join } from "node:path";

/** One row of metrics.csv. */
export interface EpochRow {
  epoch: number;
  trainLoss: number;
  seconds: number;
  valLoss: number | null;
  valAccuracy: number | null;
}

const header = "epoch,train_loss,train_time,val_loss,val_acc";
const cell = (value: number | null): string => (value === null ? "" : String(value));
const rowOf = (r: EpochRow): string => [r.epoch, r.trainLoss, r.seconds, r.valLoss, r.valAccuracy].map(cell).join(",");

/** Replaces the file as a whole: a run that was resumed has each epoch once. */
export function writeMetrics(folder: string, rows: readonly EpochRow[]): void {
  const path = join(folder, "metrics.csv");
  const temporary = `${path}.tmp`;
  writeFileSync(temporary, `${[header, ...rows.map(rowOf)].join("\n")}\n`);
  renameSync(temporary, path);
}

export interface StepRecord {
  step: number;
  epoch: number;
  durationUs: number;
  dataWaitUs: number;
  computeUs: number;
  /** Left out where collectives are not timed. */
  commUs?: number;
  exposedCommUs?: number;
  /** Processor time of the rank's threads, on CPUs: less than the step took where a core was taken away or waited for others. */
  cpuUs?: number;
  samples: number;
  loss: number;
  gradientNorm: number;
  learningRate: number;
  compile?: true;
  /** float16: the scale of the loss, and whether the step was left out because its gradients overflowed. */
  lossScale?: number;
  skipped?: boolean;
}

/** The JSON lines of one rank, written in whole lines, in blocks. */
export class RecordWriter {
  readonly #paths: string[];
  readonly #rank: number;
  #lines: string[] = [];
  #last = performance.now();
  /** So that times of the file can be compared with each other. */
  readonly #origin = performance.now();

  /**
   * `folders` get one file each. A run that goes on at `fromStep` keeps the lines of the steps before; a fresh one starts
   * an empty file.
   */
  constructor(folders: readonly string[], rank: number, fromStep: number) {
    this.#rank = rank;
    this.#paths = folders.map((folder) => join(folder, `rank${rank}.jsonl`));
    for (const path of this.#paths) {
      mkdirSync(join(path, ".."), { recursive: true });
      const kept = fromStep > 0 && existsSync(path) ? linesBefore(readFileSync(path, "utf8"), fromStep) : "";
      writeFileSync(path, kept);
    }
  }

  write(type: string, fields: Record<string, unknown>): void {
    this.#lines.push(JSON.stringify({ v: 1, type, t: Date.now() / 1000, rank: this.#rank, ...fields }));
    if (this.#lines.length >= 256 || performance.now() - this.#last > 1000) this.flush();
  }

  /** `startMs` is on the clock of `performance.now()`. */
  step(record: StepRecord, startMs: number): void {
    const startUs = (startMs - this.#origin) * 1000;
    const { gradientNorm, ...rest } = record;
    // The format has no word for what is not a number: such a field is left out.
    const norm = Number.isFinite(gradientNorm) ? { gradientNorm } : {};
    this.write("step", { ...rest, ...norm, startUs: Math.max(0, startUs) });
  }

  flush(): void {
    if (this.#lines.length === 0) return;
    const text = `${this.#lines.join("\n")}\n`;
    this.#lines = [];
    this.#last = performance.now();
    for (const path of this.#paths) appendFileSync(path, text);
  }
}

/** Lines that a run wrote before it reached a step; ends and half lines are dropped. */
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

export interface RunHead {
  name: string;
  ranks: number;
  workload: Record<string, unknown>;
  startedAt: number;
  /** That all ranks of this host may use together. */
  cores: number;
}

/** run.json, as the lab's runner writes it; rewritten when the run ends. */
export function writeRunFile(folder: string, head: RunHead, status: string, more: Record<string, unknown> = {}): void {
  const path = join(folder, "run.json");
  const record = {
    v: 1,
    id: head.name,
    devices: head.ranks,
    repeat: 0,
    order: 0,
    command: process.argv.slice(2),
    status,
    startedAt: head.startedAt,
    machine: { host: hostname(), cores: head.cores },
    workload: head.workload,
    ...more,
  };
  writeFileSync(`${path}.tmp`, `${JSON.stringify(record, null, 1)}\n`);
  renameSync(`${path}.tmp`, path);
}
