// Scheduling and code generation of large functions off the main thread, which they would block for up to seconds.
import { Worker } from "node:worker_threads";
import { functionOrder, type GraphFn, type PlainFunction, toPlain } from "../../graph/index.js";
import type { Value } from "../../ops/index.js";
import type { CompileOptions } from "../contract.js";
import { type GeneratedProgram, generate } from "./generate.js";

export interface GenerationRequest {
  id: number;
  fn: PlainFunction;
  donated: readonly boolean[];
  constants: ReadonlyMap<number, Value>;
  environment: Record<string, string>;
}

export interface GenerationAnswer {
  id: number;
  program: GeneratedProgram | null;
  error: string | null;
}

/** Functions with fewer nodes take a few milliseconds: less than the thread needs for a copy of them. */
const worthThread = 300;

let thread: Worker | null = null;
let requests = 0;
const waiting = new Map<number, (program: GeneratedProgram | null) => void>();

function startThread(): Worker {
  // Options of the process, such as a program in the command line, are not for the thread.
  const worker = new Worker(new URL("./generate-thread.js", import.meta.url), { execArgv: [] });
  worker.on("message", ({ id, program }: GenerationAnswer) => settle(id, program));
  const fail = (): void => {
    if (thread === worker) thread = null;
    for (const id of [...waiting.keys()]) settle(id, null);
  };
  worker.on("error", fail);
  worker.on("exit", fail);
  return worker;
}

function settle(id: number, program: GeneratedProgram | null): void {
  const done = waiting.get(id);
  waiting.delete(id);
  // An idle thread does not keep the process alive.
  if (waiting.size === 0) thread?.unref();
  done?.(program);
}

const ownSettings = (): Record<string, string> =>
  Object.fromEntries(
    Object.entries(process.env).flatMap(([name, value]) =>
      name.startsWith("WEFT_") && value !== undefined ? [[name, value]] : [],
    ),
  );

/** Like `generate`. Whatever goes wrong in the thread is repeated here, where it throws its error. */
export async function generateAsync(fn: GraphFn, options: CompileOptions): Promise<GeneratedProgram> {
  if (functionOrder(fn).length < worthThread) return generate(fn, options);
  const { donated = [], constants = new Map() } = options;
  const program = await new Promise<GeneratedProgram | null>((resolve) => {
    thread ??= startThread();
    thread.ref();
    const id = requests++;
    waiting.set(id, resolve);
    thread.postMessage({
      id,
      fn: toPlain(fn),
      donated,
      constants,
      environment: ownSettings(),
    } satisfies GenerationRequest);
  });
  return program ?? generate(fn, options);
}
