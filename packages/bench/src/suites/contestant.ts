// Contestants: who computes a row and is timed. One protocol for all of them: prepare a row (the answer is checked), time
// it, release it. Weft on a GPU is timed in this process; every other contestant is a process that reads one JSON request
// per line. peers/peer.py is the same protocol in Python.
import { type ChildProcessWithoutNullStreams, spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { pinned, threadEnvironment } from "../harness/index.js";
import { runningChildren } from "./process.js";

/** A row that is ready to be timed. */
export interface PreparedRow {
  call(): unknown;
  /** Numbers by which the answer is checked. */
  check: number[];
  info?: Record<string, unknown>;
  isAsync?: boolean;
  /** Waits for the device; part of the time. */
  finish?(): void;
  /** Waits for the device after the clock has stopped, for rows that time only the host. */
  settle?(): void;
  release?(): void;
}

/** Prepares a row by name. */
export type RowMakers = Record<string, () => PreparedRow | Promise<PreparedRow>>;

export interface Contestant {
  /** Process whose use of the cores is its own. */
  readonly pid: number;
  versions(): Promise<Record<string, unknown>>;
  prepare(row: string): Promise<{ check: number[]; info: Record<string, unknown> }>;
  time(row: string, seconds: number, least: number): Promise<number[]>;
  release(row: string): Promise<void>;
  stop(): void;
}

/** Calls are timed in groups that last at least this long, in milliseconds. */
const groupMs = 5;

async function timeCalls(row: PreparedRow, seconds: number, least: number): Promise<number[]> {
  const run = async (count: number): Promise<number> => {
    const start = performance.now();
    if (row.isAsync) for (let i = 0; i < count; i++) await row.call();
    else for (let i = 0; i < count; i++) row.call();
    row.finish?.();
    const ms = (performance.now() - start) / count;
    row.settle?.();
    return ms;
  };
  // The first call is not a sample: another contestant had the caches, or the GPU, until now.
  const group = Math.max(1, Math.ceil(groupMs / Math.max(await run(1), 1e-4)));
  const samples: number[] = [];
  const end = performance.now() + seconds * 1e3;
  while (samples.length < least || performance.now() < end) samples.push(await run(group));
  return samples;
}

/** Rows of this process. */
export class LocalContestant implements Contestant {
  readonly pid = process.pid;
  readonly #ready = new Map<string, PreparedRow>();

  constructor(
    readonly rows: RowMakers,
    readonly about: Record<string, unknown>,
    /** Seconds of calls before the first sample. */
    readonly warmup = 0.2,
  ) {}

  async versions(): Promise<Record<string, unknown>> {
    return this.about;
  }

  async prepare(row: string): Promise<{ check: number[]; info: Record<string, unknown> }> {
    if (this.rows[row] === undefined) throw new Error(`no row ${row}`);
    const start = performance.now();
    const made = await this.rows[row]();
    const firstSeconds = (performance.now() - start) / 1e3;
    this.#ready.set(row, made);
    await timeCalls(made, this.warmup, 2);
    return { check: made.check, info: { firstSeconds, ...made.info } };
  }

  time(row: string, seconds: number, least: number): Promise<number[]> {
    return timeCalls(this.#ready.get(row)!, seconds, least);
  }

  async release(row: string): Promise<void> {
    this.#ready.get(row)?.release?.();
    this.#ready.delete(row);
  }

  stop(): void {}
}

interface Request {
  id: number;
  do: "versions" | "prepare" | "time" | "release";
  row: string;
  seconds: number;
  least: number;
}

/** Answers requests on standard input until it ends. */
export async function serveContestant(contestant: Contestant): Promise<void> {
  const handlers: Record<Request["do"], (request: Request) => Promise<object>> = {
    versions: () => contestant.versions(),
    prepare: ({ row }) => contestant.prepare(row),
    time: async ({ row, seconds, least }) => ({ samples: await contestant.time(row, seconds, least) }),
    release: async ({ row }) => {
      await contestant.release(row);
      return {};
    },
  };
  for await (const line of createInterface({ input: process.stdin })) {
    const request = JSON.parse(line) as Request;
    const answer = await handlers[request.do](request).catch((error: Error) => ({
      error: error.stack ?? String(error),
    }));
    process.stdout.write(`${JSON.stringify({ id: request.id, ...answer })}\n`);
  }
}

interface Waiting {
  resolve(answer: Record<string, unknown>): void;
  reject(error: Error): void;
}

/** A contestant in a process of its own, on the cores and with the threads that all contestants share. */
export class PeerProcess implements Contestant {
  readonly #waiting = new Map<number, Waiting>();
  readonly #child: ChildProcessWithoutNullStreams;
  #next = 0;
  #stderr = "";
  #ended: string | null = null;

  constructor(
    readonly name: string,
    /** Null for a process that places its own workers. */
    cores: readonly number[] | null,
    command: string,
    args: readonly string[],
    /** Seconds after which a request that is not answered ends the process. */
    readonly limit = 600,
  ) {
    const [file, line] = cores === null ? [command, args] : pinned(cores, command, args);
    const env = { ...process.env, ...(cores !== null && threadEnvironment(cores)) };
    this.#child = spawn(file, line, { env });
    runningChildren.add(this.#child);
    this.#child.stderr.on("data", (text: Buffer) => {
      this.#stderr = (this.#stderr + text).slice(-4000);
    });
    this.#child.on("error", (error) => this.#end(error.message));
    this.#child.on("close", (code) => this.#end(`exit ${code}`));
    this.#child.stdin.on("error", () => {});
    createInterface({ input: this.#child.stdout }).on("line", (text) => {
      if (!text.startsWith("{")) return;
      const { id, error, ...answer } = JSON.parse(text) as { id: number; error?: string };
      const waiting = this.#waiting.get(id);
      this.#waiting.delete(id);
      if (error !== undefined) waiting?.reject(new Error(`${this.name}: ${error}`));
      else waiting?.resolve(answer);
    });
  }

  #end(reason: string): void {
    runningChildren.delete(this.#child);
    this.#ended ??= `${this.name} ended (${reason})\n${this.#stderr}`;
    for (const { reject } of this.#waiting.values()) reject(new Error(this.#ended));
    this.#waiting.clear();
  }

  async #ask(request: Partial<Request>): Promise<Record<string, unknown>> {
    if (this.#ended !== null) throw new Error(this.#ended);
    const id = this.#next++;
    const late = setTimeout(() => {
      this.#end(`no answer within ${this.limit} s`);
      this.#child.kill("SIGKILL");
    }, this.limit * 1e3);
    try {
      return await new Promise((resolve, reject) => {
        this.#waiting.set(id, { resolve, reject });
        this.#child.stdin.write(`${JSON.stringify({ id, ...request })}\n`);
      });
    } finally {
      clearTimeout(late);
    }
  }

  get pid(): number {
    return this.#child.pid ?? process.pid;
  }

  versions(): Promise<Record<string, unknown>> {
    return this.#ask({ do: "versions" });
  }

  async prepare(row: string): Promise<{ check: number[]; info: Record<string, unknown> }> {
    const { check, info } = await this.#ask({ do: "prepare", row });
    return { check: check as number[], info: (info ?? {}) as Record<string, unknown> };
  }

  async time(row: string, seconds: number, least: number): Promise<number[]> {
    return (await this.#ask({ do: "time", row, seconds, least })).samples as number[];
  }

  async release(row: string): Promise<void> {
    await this.#ask({ do: "release", row });
  }

  /** Ends the input, so that the process can close what it opened; kills it if it has not ended after five seconds. */
  stop(): void {
    this.#child.stdin.end();
    const late = setTimeout(() => this.#child.kill(), 5000);
    this.#child.once("close", () => clearTimeout(late));
    if (this.#ended !== null) clearTimeout(late);
  }
}
