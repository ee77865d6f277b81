// Connections that have not proved anything yet. When there are too many, the one that has waited longest is closed: whoever has a
// key presents it at once, and whoever opens connections to occupy them closes its own.
import type { Socket } from "node:net";

const maxStrangers = 256;

export class Strangers {
  readonly #sockets = new Set<Socket>();

  constructor(readonly most = maxStrangers) {}

  add(socket: Socket): void {
    if (this.#sockets.size >= this.most) {
      const [oldest] = this.#sockets;
      this.#sockets.delete(oldest);
      oldest.destroy();
    }
    this.#sockets.add(socket);
    socket.once("close", () => this.#sockets.delete(socket));
  }

  has(socket: Socket): boolean {
    return this.#sockets.has(socket);
  }

  delete(socket: Socket): void {
    this.#sockets.delete(socket);
  }
}
