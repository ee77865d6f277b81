// The way of one client's instructions from the dispatcher to the workers. A worker has about 20 ms of each client's work; what
// follows waits here. So a client that queues thousands of calls makes others wait for a few of them, and clients that compute at
// once get equal shares of a worker's time. The order of instructions is decided here alone: members of a group must see the
// collectives of several clients in the same order.
import { shortened, WeftError } from "@weft/core/internal/graph";
import { Backlog, type QueuedInstruction } from "./backlog.js";
import { maxMessageBytes, type ToWorker } from "./protocol.js";

/** The text of an instruction. A larger one would end the worker's connection and lose the tensors of every client. */
export function instruction(message: ToWorker): string {
  const text = JSON.stringify(message);
  if (text.length > maxMessageBytes / 4 && Buffer.byteLength(text) > maxMessageBytes - 1024)
    throw new WeftError(`a message "${message.t}" is too large: at most ${maxMessageBytes - 1024} bytes for a worker`);
  return text;
}

/** What the dispatcher knows about a worker. */
interface Recipient {
  outbox: { post(text: string): void };
  /** It hangs, completes nothing, and is not waited for. */
  suspended: boolean;
}

export class Instructions {
  /** Of connected workers alone: one that has left would hold up what waits for the members of its groups. */
  readonly backlogs = new Map<string, Backlog>();

  constructor(readonly workers: ReadonlyMap<string, Recipient>) {}

  /** Bytes of the instructions that a worker has not completed. */
  bytes(worker: string): number {
    return this.backlogs.get(worker)?.bytes ?? 0;
  }

  /** The backlog of a connected worker. */
  #backlog(worker: string): Backlog {
    let backlog = this.backlogs.get(worker);
    if (backlog === undefined) {
      backlog = new Backlog();
      this.backlogs.set(worker, backlog);
    }
    return backlog;
  }

  /** Sends an instruction to a connected worker out of turn: it does not wait for others there. */
  sendNow(worker: string, text: string): void {
    this.#backlog(worker).push(text.length);
    this.workers.get(worker)?.outbox.post(text);
  }

  /** Sends each worker its text, after what it was sent before. */
  send(workers: readonly string[], texts: readonly string[], isDefinition = false): void {
    const one: QueuedInstruction = { workers, texts, isDefinition };
    // The way of nearly every instruction.
    const direct = workers.every((id) => this.#backlog(id).waiting.length === 0 && this.#mayGo(id));
    workers.forEach((id, i) => {
      const backlog = this.#backlog(id);
      backlog.push(texts[i].length);
      if (direct) this.#post(id, one, i);
      else backlog.waiting.push(one);
    });
    if (!direct) this.#advance(workers);
  }

  #post(worker: string, { texts, isDefinition }: QueuedInstruction, i: number): void {
    this.backlogs.get(worker)?.sent(isDefinition);
    this.workers.get(worker)?.outbox.post(texts[i]);
  }

  /** A worker has completed instructions of this client, in this time. */
  done(worker: string, count: number, seconds: number): void {
    const backlog = this.backlogs.get(worker);
    if (backlog === undefined) return;
    backlog.done(count, seconds);
    this.#advance([worker]);
  }

  /**
   * A worker hangs: what waits for it must not keep the other members of its groups (their names and members) waiting. They are
   * notified first, so that these calls fail at once, and the client repeats them without that worker.
   */
  suspended(worker: string, groups: ReadonlyMap<string, readonly string[]>, reason: string): void {
    for (const [group, members] of groups)
      for (const member of members)
        if (member !== worker)
          this.workers.get(member)?.outbox.post(instruction({ t: "abandon", group, reason: shortened(reason) }));
    this.#advance([worker]);
  }

  /** A worker has left. */
  ended(worker: string): void {
    const backlog = this.backlogs.get(worker);
    this.backlogs.delete(worker);
    for (let one = backlog?.waiting.shift(); one !== undefined; one = backlog?.waiting.shift())
      this.#advance(one.workers);
  }

  #mayGo(worker: string): boolean {
    const recipient = this.workers.get(worker);
    return recipient === undefined || recipient.suspended || this.#backlog(worker).hasRoom;
  }

  #isNext(one: QueuedInstruction): boolean {
    return one.workers.every((id) => {
      const backlog = this.backlogs.get(id);
      return backlog === undefined || (backlog.waiting.first === one && this.#mayGo(id));
    });
  }

  /** Sends what waits for these workers, as far as it may go. */
  #advance(workers: readonly string[]): void {
    const left = new Set(workers);
    for (const id of left) {
      left.delete(id);
      const waiting = this.backlogs.get(id)?.waiting;
      for (let one = waiting?.first; one !== undefined && this.#isNext(one); one = waiting?.first) {
        for (const [i, member] of one.workers.entries()) {
          this.backlogs.get(member)?.waiting.shift();
          this.#post(member, one, i);
          // What waits behind it there may go now.
          if (member !== id) left.add(member);
        }
      }
    }
  }
}
