// The tape of a training run: each kernel and collective of its first steps, with its time, in the format of docs/tape.md.
import type { Executable } from "@weft/core/internal/device";
import { type Instruction, tapeHeader } from "@weft/formats/internal";
import { appendWhole, replaceFile } from "./run-files.js";

/** Writes the instructions of the first steps of one rank. */
export class StepTape {
  #left: number;
  #step = -1;

  constructor(
    private readonly path: string,
    private readonly worker: number,
    steps: number,
  ) {
    this.#left = steps;
    replaceFile(path, `${JSON.stringify(tapeHeader())}\n`);
  }

  get full(): boolean {
    return this.#left <= 0;
  }

  /** Returns the function to call after each executable of a step, with its start on the clock of `performance.now()`. */
  watch(step: number): (executable: Executable, startMs: number) => void {
    if (step !== this.#step) this.#left--;
    this.#step = step;
    return ({ kernels, lastTimes }, startMs) => {
      let at = (performance.timeOrigin + startMs) * 1000;
      const lines = kernels.flatMap(({ name: op, kind, flops, bytes }, i) => {
        const startUs = at;
        at += (lastTimes?.[i] ?? 0) * 1e6;
        if (at === startUs) return [];
        const line: Instruction = {
          type: "instruction",
          worker: this.worker,
          workerId: `rank ${this.worker}`,
          step,
          program: 0,
          op,
          kind,
          startUs,
          endUs: at,
          bytes,
          flops,
          cause: null,
          inputs: [],
          outputs: [],
          shapes: [],
        };
        return [`${JSON.stringify(line)}\n`];
      });
      appendWhole(this.path, lines.join(""));
    };
  }
}
