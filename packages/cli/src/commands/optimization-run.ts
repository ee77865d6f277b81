// The folder of an optimization as a run: `weft ui` lists it, draws its infidelity and pulses while they change, and can stop it.
import { availableParallelism } from "node:os";
import { join } from "node:path";
import { session } from "@weft/core";
import type { RunFile } from "@weft/formats";
import type { Minimizer, NamedParameters } from "@weft/quantum/internal";

/** What is known when an optimization starts. */
interface OptimizationHead {
  name: string;
  optimizer: string;
  iterations: number;
  /** Iterations that earlier calls did. */
  from: number;
  /** Text of the gate's specification; null for other problems. */
  gate: string | null;
}

/** Between writes of the parameters. */
const betweenMs = 500;

/** Parameters as JSON. */
export const parametersText = (params: NamedParameters): string =>
  `${JSON.stringify(Object.fromEntries(Object.entries(params).map(([key, t]) => [key, t.arraySync()])), null, 1)}\n`;

/** Writes an optimization as a run while it goes on. */
export class OptimizationRun {
  #last = 0;
  #started = performance.now();

  private constructor(
    private readonly folder: string,
    private readonly write: (status: RunFile["status"], more?: Partial<RunFile>) => void,
    private readonly records: import("@weft/train/internal/run-folder").RecordWriter,
    private readonly replaceFile: (path: string, text: string) => void,
    private readonly unlock: () => void,
  ) {}

  /** Locks the folder and writes the start of the run. Throws if another process works there. */
  static async start(folder: string, head: OptimizationHead): Promise<OptimizationRun> {
    const { lockRun, RecordWriter, replaceFile, writeTrainingRunFile } = await import(
      "@weft/train/internal/run-folder"
    );
    const unlock = lockRun(folder);
    const run = {
      name: head.name,
      ranks: 1,
      workload: { model: head.name, optimizer: head.optimizer },
      startedAt: Date.now() / 1000,
      cores: availableParallelism(),
      steps: head.iterations,
    };
    const write = (status: RunFile["status"], more: Partial<RunFile> = {}): void =>
      writeTrainingRunFile(folder, run, status, { lossName: "infidelity", ...more });
    const records = new RecordWriter([folder], 0, head.from);
    records.write("rank", { worldSize: 1, pid: process.pid, device: session().device.name });
    records.flush();
    write("running");
    if (head.gate !== null) replaceFile(join(folder, "gate.yaml"), head.gate);
    return new OptimizationRun(folder, write, records, replaceFile, unlock);
  }

  /** Records an iteration that began at a time of `performance.now()`. */
  step(minimizer: Minimizer, began: number): void {
    const { iteration, value, gradient } = minimizer.progress;
    const now = performance.now();
    this.records.step(
      { step: iteration - 1, durationUs: 1000 * (now - began), loss: value, gradientNorm: gradient },
      began,
    );
    if (now - this.#last < betweenMs) return;
    this.#last = now;
    this.records.flush();
    this.replaceFile(join(this.folder, "parameters.json"), parametersText(minimizer.params));
  }

  /** Writes the end of the run and releases its folder. */
  end(status: Exclude<RunFile["status"], "running">, message?: string): void {
    const seconds = (performance.now() - this.#started) / 1000;
    const why = message === undefined ? {} : { message };
    this.records.write("end", { status, seconds, ...why });
    this.records.flush();
    this.write(status, { endedAt: Date.now() / 1000, seconds, ...why });
    this.unlock();
  }
}
