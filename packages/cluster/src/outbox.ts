// Messages of one turn of the event loop travel as one: a list, in their order. A call costs its receiver a fraction of a
// message then when many are issued together. Knows nothing of what they say.

/** Together no more than this, so that the other side can begin. */
const maxMessages = 256;
const maxCharacters = 1 << 18;

export class Outbox {
  #pending: string[] = [];
  #characters = 0;
  #scheduled = false;

  constructor(readonly write: (bytes: Buffer) => void) {}

  /** A message as text, sent at the end of this turn at the latest. */
  post(text: string): void {
    // A large message goes by itself: together with others it might be more than the other side takes.
    if (text.length >= maxCharacters) this.flush();
    this.#pending.push(text);
    this.#characters += text.length;
    if (this.#pending.length >= maxMessages || this.#characters >= maxCharacters) this.flush();
    else if (!this.#scheduled) {
      this.#scheduled = true;
      queueMicrotask(() => {
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
