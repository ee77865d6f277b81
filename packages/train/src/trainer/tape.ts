// The tape of a run: each kernel and collective of its first steps with the time that it took, as JSON lines in the lab's
// format. Knows executables by their kernels alone.
import { appendFileSync, writeFileSync } from "node:fs";
import type { Executable } from "@weft/core/internal/device";

export class Tape {
  #left: number;
  #step = -1;
  readonly #origin = performance.now();

  constructor(
    private readonly path: string,
    private readonly worker: number,
    steps: number,
  ) {
    this.#left = steps;
    writeFileSync(path, "");
  }

  get full(): boolean {
    return this.#left <= 0;
  }

  /** What is to be told of the runs of one step. */
  watch(step: number): (executable: Executable, startMs: number) => void {
    if (step !== this.#step) this.#left--;
    this.#step = step;
    return ({ kernels, lastTimes }, startMs) => {
      let at = (startMs - this.#origin) * 1000;
      const lines = kernels.flatMap((kernel, i) => {
        const startUs = at;
        at += (lastTimes?.[i] ?? 0) * 1e6;
        if (at === startUs) return [];
        const { name: op, kind, flops, bytes } = kernel;
        const line = {
          v: 1,
          type: "instruction",
          worker: this.worker,
          step,
          op,
          kind,
          startUs,
          endUs: at,
          flops,
          bytes,
        };
        return [`${JSON.stringify(line)}\n`];
      });
      appendFileSync(this.path, lines.join(""));
    };
  }
}
