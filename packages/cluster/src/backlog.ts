// Instructions of one client that one worker has not completed yet, counted and measured, so that neither can be made to
// hold any amount of them.

export class Backlog {
  #sizes: number[] = [];
  #head = 0;
  bytes = 0;

  get count(): number {
    return this.#sizes.length - this.#head;
  }

  push(bytes: number): void {
    this.#sizes.push(bytes);
    this.bytes += bytes;
  }

  /** The worker has completed the oldest `count` instructions. */
  done(count: number): void {
    const end = Math.min(this.#sizes.length, this.#head + count);
    for (; this.#head < end; this.#head++) this.bytes -= this.#sizes[this.#head];
    if (this.#head < 1024) return;
    this.#sizes = this.#sizes.slice(this.#head);
    this.#head = 0;
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
