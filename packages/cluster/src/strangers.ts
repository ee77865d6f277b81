// Connections that have not proved anything yet. They have some seconds for it. When there are too many, the one that has waited longest is closed: whoever has a
// key presents it at once, and whoever opens connections to occupy them closes its own.
import type { Server, Socket } from "node:net";

const maxStrangers = 256;
/** Milliseconds for a connection to prove whose it is, with its TLS handshake. */
const maxMs = 10_000;

/** The two ends of a connection: a TLS socket and the plain one below it have the same. */
const keyOf = ({ remoteAddress, remotePort }: Socket): string => `${remoteAddress} ${remotePort}`;

export class Strangers {
  readonly #sockets = new Map<string, Socket>();

  /** Watches the connections of a server from their start: one that never begins its TLS handshake is a stranger too. */
  constructor(
    server: Server,
    readonly most = maxStrangers,
    readonly proofMs = maxMs,
  ) {
    server.on("connection", (socket: Socket) => this.#add(socket));
  }

  #add(socket: Socket): void {
    const key = keyOf(socket);
    socket.on("error", () => {});
    if (this.#sockets.size >= this.most) {
      const [[oldest, one]] = this.#sockets;
      this.#sockets.delete(oldest);
      one.destroy();
    }
    this.#sockets.set(key, socket);
    socket.once("close", () => this.#sockets.delete(key));
    // A process that computed meanwhile reads what has arrived before it gives up.
    const expire = (): void => void (this.#sockets.get(key) === socket && socket.destroy());
    setTimeout(() => setImmediate(() => setTimeout(expire, 500).unref()), this.proofMs).unref();
  }

  delete(socket: Socket): void {
    this.#sockets.delete(keyOf(socket));
  }
}
