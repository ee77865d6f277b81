// A worker's instructions that are not completed, in the order of their arrival. A dispatcher waits for a worker to complete some; one
// that does not is given up before it fills the worker's memory.
import { WeftError } from "@weft/core/internal/graph";
import type { ToWorker } from "./protocol.js";

/** Instructions and their bytes: more than an honest dispatcher sends ahead for a thousand clients. */
const maxQueued = 1_000_000;
const maxBytes = 1 << 30;

/** An instruction, and its size as it arrived. */
interface QueuedWork {
  message: ToWorker;
  bytes: number;
}

const isOf = ({ message }: QueuedWork, client: number): boolean => "client" in message && message.client === client;

export class WorkQueue {
  #ready: QueuedWork[] = [];
  /** Clients whose program is being compiled, and what arrived from them meanwhile. */
  readonly #held = new Map<number, QueuedWork[]>();
  #count = 0;
  #bytes = 0;

  constructor(
    readonly most = maxQueued,
    readonly mostBytes = maxBytes,
  ) {}

  push(message: ToWorker, bytes: number): void {
    this.#count++;
    this.#bytes += bytes;
    if (this.#count > this.most || this.#bytes > this.mostBytes)
      throw new WeftError(`${this.#count} instructions of ${Math.round(this.#bytes)} bytes are not completed`);
    this.#ready.push({ message, bytes });
  }

  /** The next instruction of a client that does not wait; `done` follows when it is completed. */
  next(): QueuedWork | undefined {
    for (let work = this.#ready.shift(); work !== undefined; work = this.#ready.shift()) {
      const held = "client" in work.message ? this.#held.get(work.message.client) : undefined;
      if (held === undefined) return work;
      held.push(work);
    }
    return undefined;
  }

  done({ bytes }: QueuedWork): void {
    this.#count--;
    this.#bytes -= bytes;
  }

  isHeld(client: number): boolean {
    return this.#held.has(client);
  }

  /** Holds back what follows of a client. The result lets it go on, and returns whether the client is still there. */
  hold(client: number): () => boolean {
    const held: QueuedWork[] = [];
    this.#held.set(client, held);
    return () => {
      if (this.#held.get(client) !== held) return false;
      this.#held.delete(client);
      this.#ready.unshift(...held);
      return true;
    };
  }

  /** Drops everything of a client. */
  drop(client: number): void {
    for (const work of this.#held.get(client) ?? []) this.done(work);
    this.#held.delete(client);
    this.#ready = this.#ready.filter((work) => {
      if (isOf(work, client)) this.done(work);
      return !isOf(work, client);
    });
  }

  clear(): void {
    this.#ready = [];
    this.#held.clear();
    this.#count = 0;
    this.#bytes = 0;
  }
}
