// How the suites of random programs run them: compiled by jit, several in one program, or, with WEFT_FUZZ_MODE=eager, as users run
// them outside jit: one by one, some values read on the way, small programs interpreted first (unless WEFT_INTERPRET=0).
import { jit, type Tensor } from "../index.js";
import { isTracing } from "../runtime/index.js";
import type { Result } from "./compare.js";
import { Dice } from "./dice.js";
import { type Job, runEagerly, runJobs } from "./jobs.js";

const isEager = process.env.WEFT_FUZZ_MODE === "eager";

/** The function, compiled unless programs run eagerly. */
export const compiled: typeof jit = isEager ? (((fn: unknown) => fn) as typeof jit) : jit;

/** Number of random programs in one compiled program: one call of the compiler for all of them. */
export const perProgram = (device: string, together: number): number =>
  isEager || device === "reference" ? 1 : together;

/** Results of jobs on the current device. */
export const runRandom = (jobs: readonly Job[], device: string, together: number): (Result[] | Error)[] =>
  isEager ? jobs.map(runEagerly) : runJobs(jobs, perProgram(device, together));

const readings = new Dice(Number(process.env.WEFT_FUZZ_SEED ?? 0));

/** Outside jit, computes some of the values before the program needs them, and reads some of those. Returns the value. */
export function glimpse(value: Tensor): Tensor {
  if (!isEager || isTracing()) return value;
  if (readings.chance(30)) value.realize();
  if (readings.chance(10)) value.dataSync();
  return value;
}
