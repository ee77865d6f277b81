// A worker's reports of completed instructions, by client: the dispatcher sends the next ones by them.
import type { FromWorker } from "./protocol.js";

/** Instructions of one client after which a report is sent at once; milliseconds after which every other one is. */
const progressEvery = 64;
const reportMs = 4;

export class ProgressReports {
  readonly #done = new Map<number, { done: number; seconds: number }>();
  #timer: NodeJS.Timeout | null = null;

  constructor(readonly send: (message: Extract<FromWorker, { t: "progress" }>) => void) {}

  /** An instruction was completed. Large ones are reported at once. */
  count(client: number, seconds: number, large = false): void {
    const entry = this.#done.get(client) ?? { done: 0, seconds: 0 };
    entry.done++;
    entry.seconds += seconds;
    this.#done.set(client, entry);
    if (large || entry.done >= progressEvery) this.#report(client);
    else this.#timer ??= setTimeout(() => this.#reportAll(), reportMs);
  }

  /** The client, or every client, has left. */
  forget(client: number | null): void {
    if (client === null) this.#done.clear();
    else this.#done.delete(client);
  }

  #reportAll(): void {
    this.#timer = null;
    for (const client of [...this.#done.keys()]) this.#report(client);
  }

  #report(client: number): void {
    const entry = this.#done.get(client);
    this.#done.delete(client);
    if (entry !== undefined) this.send({ t: "progress", client, ...entry });
  }
}
