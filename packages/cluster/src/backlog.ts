// Instructions of one client that one worker has not completed yet: those that were sent, and those that wait for their turn.
// They are counted and measured, so that neither the dispatcher nor a worker can be made to hold any amount of them.

/** Seconds of one client's work that a worker has at a time, and the number of instructions. */
const secondsAhead = 0.02;
const [leastAhead, firstAhead, mostAhead] = [3, 8, 512];

/** An instruction for some workers. Those of a group get it together, in the same order as the instructions of other clients. */
export interface QueuedInstruction {
  readonly workers: readonly string[];
  readonly texts: readonly string[];
  /** Whether what follows waits until it is completed: workers compile programs beside the work of other clients. */
  readonly isDefinition: boolean;
}

class Fifo<T> {
  #items: T[] = [];
  #head = 0;

  get length(): number {
    return this.#items.length - this.#head;
  }

  get first(): T | undefined {
    return this.#items[this.#head];
  }

  push(item: T): void {
    this.#items.push(item);
  }

  shift(): T | undefined {
    const item = this.first;
    if (this.#head < this.#items.length) this.#head++;
    if (this.#head >= 1024 && this.#head * 2 > this.#items.length) {
      this.#items = this.#items.slice(this.#head);
      this.#head = 0;
    }
    return item;
  }
}

/** What one client has at one worker. */
export class Backlog {
  readonly #sizes = new Fifo<number>();
  readonly waiting = new Fifo<QueuedInstruction>();
  bytes = 0;
  #ahead = firstAhead;
  /** Whether the last instruction that was sent defines a program, and is not completed. */
  #defines = false;
  /** Seconds that an instruction took lately; null before the first report. */
  #cost: number | null = null;

  get count(): number {
    return this.#sizes.length;
  }

  /** Whether the worker may get another instruction of this client before it has completed one. */
  get hasRoom(): boolean {
    return !this.#defines && this.#sizes.length - this.waiting.length < this.#ahead;
  }

  /** An instruction is sent. */
  sent(isDefinition: boolean): void {
    this.#defines = isDefinition;
  }

  push(bytes: number): void {
    this.#sizes.push(bytes);
    this.bytes += bytes;
  }

  /** The worker has completed the oldest `count` instructions, in this time. */
  done(count: number, seconds: number): void {
    const ended = Math.min(count, this.#sizes.length - this.waiting.length);
    for (let i = 0; i < ended; i++) this.bytes -= this.#sizes.shift()!;
    if (this.#sizes.length === this.waiting.length) this.#defines = false;
    if (count === 0) return;
    const cost = seconds / count;
    this.#cost = this.#cost === null ? cost : (this.#cost + cost) / 2;
    this.#ahead = Math.min(mostAhead, Math.max(leastAhead, Math.ceil(secondsAhead / this.#cost)));
  }
}

/** Why a client may not send more instructions to these workers now; null if it may. */
export function overQuota(
  backlogs: ReadonlyMap<string, Backlog>,
  workers: readonly string[],
  asked: number | undefined,
  quotas: { maxQueue: number; maxQueueBytes: number },
): { message: string; worker: string } | null {
  const { maxQueueBytes } = quotas;
  const maxQueue = Math.min(asked ?? quotas.maxQueue, quotas.maxQueue);
  for (const worker of workers) {
    const backlog = backlogs.get(worker);
    if (backlog === undefined || (backlog.count < maxQueue && backlog.bytes < maxQueueBytes)) continue;
    const what = backlog.count < maxQueue ? `${maxQueueBytes} bytes of` : `${maxQueue}`;
    return {
      message: `${what} instructions of this client are queued for worker ${worker}; await results more often, or raise maxQueue in connect and in the dispatcher`,
      worker,
    };
  }
  return null;
}
