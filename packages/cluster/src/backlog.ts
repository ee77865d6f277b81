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
