// Scheduling and code generation of large functions off the main thread, which they would block for up to seconds.
import { Worker } from "node:worker_threads";
import { functionOrder, type GraphFn, type PlainFunction, toPlain, WeftError } from "../../graph/index.js";
import type { Value } from "../../ops/index.js";
import type { CompileOptions } from "../contract.js";
import { InterruptedError } from "./compiler.js";
import { type GeneratedProgram, generateProgram } from "./generate.js";

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

/** A request that is not answered. */
interface Waiting {
  request: GenerationRequest;
  resolve(program: GeneratedProgram | null): void;
  reject(error: Error): void;
}

let thread: Worker | null = null;
let requests = 0;
const waiting = new Map<number, Waiting>();

function startThread(): Worker {
  // Options of the process, such as a program in the command line, are not for the thread.
  const worker = new Worker(new URL("./generate-thread.js", import.meta.url), { execArgv: [] });
  worker.on("message", ({ id, program }: GenerationAnswer) => settle(id, ({ resolve }) => resolve(program)));
  const fail = (error?: NodeJS.ErrnoException): void => {
    if (thread !== worker) return;
    thread = null;
    for (const id of [...waiting.keys()])
      settle(id, ({ resolve, reject }) => {
        // It would take the memory of the process in the main thread.
        if (error?.code === "ERR_WORKER_OUT_OF_MEMORY")
          reject(new WeftError("there is not enough memory to compile this function; divide it into several"));
        else resolve(null);
      });
  };
  worker.on("error", fail);
  worker.on("exit", () => fail());
  return worker;
}

function settle(id: number, answer: (entry: Waiting) => void): void {
  const entry = waiting.get(id);
  waiting.delete(id);
  // An idle thread does not keep the process alive.
  if (waiting.size === 0) thread?.unref();
  if (entry !== undefined) answer(entry);
}

/** Gives up a request. A thread that works on it has no other use: another one continues with the other requests. */
function giveUp(id: number): void {
  if (!waiting.has(id)) return;
  settle(id, ({ reject }) => reject(new InterruptedError("interrupted while a program was generated")));
  void thread?.terminate();
  thread = null;
  for (const { request } of waiting.values()) post(request);
}

function post(request: GenerationRequest): void {
  thread ??= startThread();
  thread.ref();
  thread.postMessage(request);
}

const ownSettings = (): Record<string, string> =>
  Object.fromEntries(
    Object.entries(process.env).flatMap(([name, value]) =>
      name.startsWith("WEFT_") && value !== undefined ? [[name, value]] : [],
    ),
  );

/** Like `generate`. Whatever goes wrong in the thread is repeated here, where it throws its error. */
export async function generateAsync(fn: GraphFn, options: CompileOptions): Promise<GeneratedProgram> {
  if (functionOrder(fn).length < worthThread) return generateProgram(fn, options);
  const { donated = [], constants = new Map(), signal } = options;
  const id = requests++;
  const request = { id, fn: toPlain(fn), donated, constants, environment: ownSettings() };
  const abandon = (): void => giveUp(id);
  const program = await new Promise<GeneratedProgram | null>((resolve, reject) => {
    waiting.set(id, { request, resolve, reject });
    post(request);
    signal?.addEventListener("abort", abandon, { once: true });
    if (signal?.aborted === true) abandon();
  }).finally(() => signal?.removeEventListener("abort", abandon));
  return program ?? generateProgram(fn, options);
}
