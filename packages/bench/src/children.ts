// The measuring processes of the benchmark. Each runs one job round by round on request, so that configurations that are
// compared run one right after the other.
import { type ChildProcess, fork } from "node:child_process";
import { fileURLToPath } from "node:url";
import type { ChildMessage, MeasureJob, ParentMessage, RowFacts } from "./child.js";
import type { RowTimes } from "./measure.js";

export type RowOutcome = { measured: RowTimes; facts: RowFacts } | { failed: string; outOfMemory: boolean };

const childPath = fileURLToPath(new URL("./child.js", import.meta.url));

/** Runs one job in a process of its own; an aborted signal ends it. */
export class Child {
  readonly process: ChildProcess;
  readonly #listeners = new Set<(message: ChildMessage) => void>();
  #stderr = "";
  #broken: string | null = null;
  /** Resolves when the process has ended: null after success, else the reason. */
  readonly ended: Promise<string | null>;
  #over: string | null = null;

  constructor(job: MeasureJob, signal: AbortSignal | undefined) {
    this.process = fork(childPath, [], { stdio: ["ignore", "inherit", "pipe", "ipc"], serialization: "advanced" });
    this.process.stderr!.on("data", (data: Buffer) => {
      this.#stderr = (this.#stderr + data).slice(-4000);
    });
    this.process.on("message", (message) => {
      const received = message as ChildMessage;
      if (received.kind === "broken") this.#broken = received.message;
      if (received.kind === "ready") this.#ready = true;
      for (const listener of this.#listeners) listener(received);
    });
    const stop = (): void => {
      this.process.kill("SIGTERM");
    };
    signal?.addEventListener("abort", stop, { once: true });
    if (signal?.aborted) stop();
    this.ended = new Promise((resolve) => {
      const end = (why: string | null): void => {
        signal?.removeEventListener("abort", stop);
        this.#over = this.#broken ?? why ?? "no result";
        resolve(this.#broken ?? why);
      };
      this.process.once("exit", (code, killed) =>
        end(code === 0 ? null : `the measuring process ended with ${killed ?? `code ${code}`}\n${this.#stderr}`),
      );
      this.process.once("error", (error) => end(error.message));
    });
    this.process.send(job);
  }

  on(listener: (message: ChildMessage) => void): void {
    this.#listeners.add(listener);
  }

  /** The first message for which `take` returns a value, or the reason why the process ended. */
  #next<T>(take: (message: ChildMessage) => T | undefined): Promise<T | string> {
    return new Promise((resolve) => {
      const done = (found: T | string): void => {
        this.#listeners.delete(listener);
        resolve(found);
      };
      const listener = (message: ChildMessage): void => {
        const found = take(message);
        if (found !== undefined) done(found);
      };
      this.#listeners.add(listener);
      void this.ended.then(() => done(this.#over!));
    });
  }

  #ready = false;

  /** Resolves when the child waits for its first round, or has ended. */
  async ready(): Promise<void> {
    if (this.#ready || this.#over !== null) return;
    await this.#next((message) => (message.kind === "ready" ? true : undefined));
  }

  #send(message: ParentMessage): void {
    if (this.#over === null && this.process.connected) this.process.send(message, () => {});
  }

  /** One round of a row: null before the last round, then the outcome; a failure ends the row early. */
  async measure(row: number, round: number): Promise<RowOutcome | null> {
    const outcome = this.#next((message): RowOutcome | null | undefined => {
      if (message.kind === "round" && message.row === row && message.round === round) return null;
      if (message.kind === "row" && message.row === row) return { measured: message.measured, facts: message.facts };
      if (message.kind === "failed" && message.row === row)
        return { failed: message.message, outOfMemory: message.outOfMemory };
      return undefined;
    });
    this.#send({ kind: "round", row, round });
    const found = await outcome;
    return typeof found === "string" ? { failed: found, outOfMemory: false } : found;
  }

  async end(): Promise<void> {
    this.#send({ kind: "end" });
    await this.ended;
  }
}

/** Processes that measure the same rows at the same time. */
export class Team {
  readonly children: Child[];

  constructor(
    readonly what: string,
    jobs: readonly MeasureJob[],
    signal: AbortSignal | undefined,
  ) {
    this.children = jobs.map((job) => new Child(job, signal));
  }

  async ready(): Promise<void> {
    await Promise.all(this.children.map((child) => child.ready()));
  }

  async measure(row: number, round: number): Promise<(RowOutcome | null)[]> {
    return Promise.all(this.children.map((child) => child.measure(row, round)));
  }

  async end(): Promise<void> {
    await Promise.all(this.children.map((child) => child.end()));
  }
}
