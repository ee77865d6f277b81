// Batches the messages of one event-loop turn into one list, in order. This lowers the receiver's cost per message. It
// does not interpret messages.

/** Maximum size of a batch, so that the receiver can start early. */
const maxMessages = 256;
const maxCharacters = 1 << 18;

export class Outbox {
  #pending: string[] = [];
  #characters = 0;
  #scheduled = false;

  /** `later` says when a batch ends: with the current task, or with the current turn of the event loop. */
  constructor(
    readonly write: (bytes: Buffer) => void,
    readonly later: (flush: () => void) => void = queueMicrotask,
  ) {}

  /** Queues a message; it is sent at the end of this turn at the latest. */
  post(text: string): void {
    // A large message is sent alone: a batch might exceed the receiver's limit.
    if (text.length >= maxCharacters) this.flush();
    this.#pending.push(text);
    this.#characters += text.length;
    if (this.#pending.length >= maxMessages || this.#characters >= maxCharacters) this.flush();
    else if (!this.#scheduled) {
      this.#scheduled = true;
      this.later(() => {
        this.#scheduled = false;
        this.flush();
      });
    }
  }

  flush(): void {
    if (this.#pending.length === 0) return;
    const all = this.#pending;
    this.#pending = [];
    this.#characters = 0;
    this.write(Buffer.from(all.length === 1 ? all[0] : `[${all.join(",")}]`));
  }
}
