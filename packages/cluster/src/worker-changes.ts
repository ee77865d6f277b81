// Changes of the set of workers that clients have not been notified of yet. Changes that follow each other closely, as when a job starts,
// are sent together.
import type { WorkerEntry } from "./dispatcher-state.js";

/** Workers in one message: with the longest descriptions that are accepted they are within the limit of its size. */
const mostInMessage = 128;

/** The parts in which a list of workers is sent, at least one, each with whether more follow. */
export const inParts = <T>(workers: readonly T[]): { part: T[]; more: boolean }[] =>
  Array.from({ length: Math.max(1, Math.ceil(workers.length / mostInMessage)) }, (_, i) => ({
    part: workers.slice(i * mostInMessage, (i + 1) * mostInMessage),
    more: (i + 1) * mostInMessage < workers.length,
  }));

/** Milliseconds in which changes are collected. */
const interval = 20;

export interface LostWorker {
  worker: string;
  reason: string;
}

export class WorkerChanges {
  #joined = new Map<string, WorkerEntry>();
  #lost: LostWorker[] = [];
  #timer: NodeJS.Timeout | null = null;
  #sent = 0;

  constructor(readonly send: (joined: readonly WorkerEntry[], lost: LostWorker[]) => void) {}

  /** Whether clients will be notified that this worker has joined. */
  announces(worker: string): boolean {
    return this.#joined.has(worker);
  }

  joined(worker: WorkerEntry): void {
    this.#joined.set(worker.info.id, worker);
    this.changed();
  }

  lost(worker: string, reason: string): void {
    this.#joined.delete(worker);
    this.#lost.push({ worker, reason });
    this.changed();
  }

  /** Something else has changed for which clients must plan again. */
  changed(): void {
    if (this.#timer !== null) return;
    const wait = this.#sent + interval - performance.now();
    this.#timer = setTimeout(() => this.flush(), wait);
    if (wait <= 0) this.flush();
  }

  /** Sends what has changed. */
  flush(): void {
    if (this.#timer === null) return;
    clearTimeout(this.#timer);
    this.#timer = null;
    this.#sent = performance.now();
    const [joined, lost] = [[...this.#joined.values()], this.#lost];
    this.#joined.clear();
    this.#lost = [];
    this.send(joined, lost);
  }

  stop(): void {
    if (this.#timer !== null) clearTimeout(this.#timer);
  }
}
