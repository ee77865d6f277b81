// Work that takes long or reads large files runs in a thread of its own, one per kind: the server stays live, and work that
// takes too long or too much memory is ended without it.
import { Worker } from "node:worker_threads";
import { RequestError } from "../wire/index.js";
import type { JobKind, JobResults, JobTasks } from "./tasks.js";

const longestMs = 60_000;
const mostMegabytes = 2048;
/** Requests that may wait for a thread. */
const mostWaiting = 32;

interface Waiting {
  id: number;
  task: unknown;
  resolve: (value: never) => void;
  reject: (error: Error) => void;
}

/** An answer of the thread. */
type JobAnswer = { id: number; value: unknown } | { id: number; error: string };

/** A thread that does one kind of work, one task after the other. */
class JobThread {
  #worker: Worker | null = null;
  #waiting: Waiting[] = [];
  #timer: NodeJS.Timeout | undefined;
  #next = 0;

  constructor(private readonly kind: JobKind) {}

  run(task: unknown): Promise<never> {
    if (this.#waiting.length >= mostWaiting)
      throw new RequestError(503, "too many requests wait; try again in a moment");
    return new Promise((resolve, reject) => {
      this.#waiting.push({ id: this.#next++, task, resolve, reject });
      if (this.#waiting.length === 1) this.#send();
    });
  }

  #send(): void {
    const [first] = this.#waiting;
    if (first === undefined) return;
    this.#worker ??= this.#start();
    this.#worker.ref();
    this.#worker.postMessage({ id: first.id, task: first.task });
    this.#timer = setTimeout(
      () =>
        this.#end(new RequestError(504, `this takes longer than ${longestMs / 1000} s; use the command line instead`)),
      longestMs,
    );
  }

  #start(): Worker {
    const worker = new Worker(new URL("./thread.js", import.meta.url), {
      workerData: this.kind,
      resourceLimits: { maxOldGenerationSizeMb: mostMegabytes },
    });
    worker.on("message", (answer: JobAnswer) => this.#settle(answer));
    worker.on("error", (error: Error) => this.#end(new RequestError(500, error.message)));
    return worker;
  }

  #settle(answer: JobAnswer): void {
    if (this.#waiting[0]?.id !== answer.id) return;
    clearTimeout(this.#timer);
    const { resolve, reject } = this.#waiting.shift()!;
    if ("error" in answer) reject(new RequestError(422, answer.error));
    else resolve(answer.value as never);
    // An idle thread does not keep the process alive.
    if (this.#waiting.length === 0) this.#worker?.unref();
    this.#send();
  }

  /** Ends the thread; the task that it had fails, the others get a new one. */
  #end(error: RequestError): void {
    clearTimeout(this.#timer);
    void this.#worker?.terminate();
    this.#worker = null;
    this.#waiting.shift()?.reject(error);
    this.#send();
  }

  close(): void {
    clearTimeout(this.#timer);
    void this.#worker?.terminate();
    this.#worker = null;
    for (const { reject } of this.#waiting.splice(0)) reject(new RequestError(503, "the server ends"));
  }
}

/** The threads of one server. */
export class Jobs {
  readonly #threads = new Map<JobKind, JobThread>();

  run<K extends JobKind>(kind: K, task: JobTasks[K]): Promise<JobResults[K]> {
    let thread = this.#threads.get(kind);
    if (thread === undefined) {
      thread = new JobThread(kind);
      this.#threads.set(kind, thread);
    }
    return thread.run(task);
  }

  close(): void {
    for (const thread of this.#threads.values()) thread.close();
  }
}
