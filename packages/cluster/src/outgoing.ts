// Messages on a stream to a peer, with the number of bytes that it has not taken yet. gRPC's streams count messages instead, and one
// of them may have megabytes.
import type { ServerStream } from "./dispatcher-state.js";

export class Outgoing {
  #unread = 0;

  constructor(readonly stream: ServerStream) {}

  /** Bytes that wait for the peer to read what was sent before. */
  get unread(): number {
    return this.#unread;
  }

  write(bytes: Buffer): void {
    this.#unread += bytes.length;
    this.stream.write(bytes, () => {
      this.#unread -= bytes.length;
    });
  }
}

/** Calls back when the peer has left, in whichever way; possibly more than once. */
export function whenOver(stream: ServerStream, over: () => void): void {
  for (const event of ["end", "close", "cancelled"]) stream.on(event, over);
}
