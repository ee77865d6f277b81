// The workers that a dispatcher has announced to a client. A dispatcher is trusted with programs and data, not with this process:
// its lists are checked and bounded, and it cannot send the client to addresses of the client's own machine.
import { shortened, WeftError } from "@weft/core/internal/graph";
import { canReach } from "./dispatcher-checks.js";
import type { WorkerInfo } from "./protocol.js";

/** Workers at a time, bytes of the messages that announced them, and reasons why earlier ones are gone. */
const maxWorkers = 16_384;
const maxBytes = 512 << 20;
const maxReasons = 16_384;

interface Changes {
  generation: number;
  joined: readonly WorkerInfo[];
  lost: readonly { worker: string; reason: string }[];
}

export class AnnouncedWorkers {
  #generation = -1;
  readonly #bytes = new Map<string, number>();
  #total = 0;
  /** Why workers that were here are gone, the oldest first. */
  readonly #reasons = new Map<string, string>();
  list: WorkerInfo[] = [];

  get generation(): number {
    return Math.max(0, this.#generation);
  }

  /** Whether a worker is not, or no longer, among those of the dispatcher. */
  isDead(worker: string): boolean {
    return !this.#bytes.has(worker);
  }

  /** Why a worker is dead; null if it is not. */
  reasonOf(worker: string): string | null {
    return this.isDead(worker) ? (this.#reasons.get(worker) ?? `worker ${worker} is not connected`) : null;
  }

  /** Follows a message of `bytes` bytes. `near`: the dispatcher is on this machine. Returns the workers that were here and are lost. */
  change({ generation, joined, lost }: Changes, bytes: number, near: boolean): { worker: string; reason: string }[] {
    if (generation < this.#generation)
      throw new WeftError(`generation ${generation} follows generation ${this.#generation}`);
    const gone = lost.filter(({ worker }) => this.#bytes.has(worker));
    for (const { worker, reason } of gone) this.#forget(worker, reason);
    for (const worker of joined) {
      const { id, data } = worker;
      if (this.#bytes.has(id)) throw new WeftError(`worker ${id} is announced twice`);
      if (!canReach(near, worker))
        throw new WeftError(
          `worker ${id} is at ${shortened(data.host, 60)}, which is this machine, and the dispatcher is on another one`,
        );
      const share = bytes / joined.length;
      this.#bytes.set(id, share);
      this.#total += share;
    }
    if (this.#bytes.size > maxWorkers) throw new WeftError(`${this.#bytes.size} workers, more than ${maxWorkers}`);
    if (this.#total > maxBytes) throw new WeftError(`descriptions of workers have more than ${maxBytes} bytes`);
    this.#generation = generation;
    this.list = [...this.list.filter(({ id }) => this.#bytes.has(id)), ...joined];
    return gone;
  }

  #forget(worker: string, reason: string): void {
    this.#total -= this.#bytes.get(worker) ?? 0;
    this.#bytes.delete(worker);
    this.#reasons.set(worker, reason);
    if (this.#reasons.size > maxReasons) this.#reasons.delete(this.#reasons.keys().next().value!);
  }
}
