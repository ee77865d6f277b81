// Connections that have not proved anything yet. They have some seconds for it. When there are too many, the oldest ones of whoever
// has most of them are closed: whoever opens connections to occupy them closes its own.
import { isIPv6, type Server, type Socket } from "node:net";
import { socketOwners } from "./identity.js";
import { isLoopback } from "./security.js";

type Owners = ReturnType<typeof socketOwners>;

const maxStrangers = 256;
/** Milliseconds for a connection to prove whose it is, with its TLS handshake. */
const maxMs = 10_000;

/** Identifies who is behind a connection: the user on this host, the address otherwise, or the network of an IPv6 address. */
function peerOf(socket: Socket, owners: Owners): string {
  const address = (socket.remoteAddress ?? "?").replace(/^::ffff:/, "");
  if (isLoopback(address)) return `user ${owners(socket.remotePort ?? 0, socket.localPort ?? 0) ?? "?"}`;
  if (!isIPv6(address)) return address;
  const [head, tail = ""] = address.split("::").map((part) => (part === "" ? [] : part.split(":")));
  const zeros = Array.from({ length: Math.max(0, 8 - head.length - tail.length) }, () => "0");
  return [...head, ...zeros, ...tail].slice(0, 4).join(":");
}

/** A connection, and who is behind it. */
export class Stranger {
  readonly since = performance.now();
  #peer: string | null = null;

  constructor(readonly socket: Socket) {}

  /** Looked up when it matters: the kernel's tables of sockets are long where there are many. */
  peer(owners?: Owners): string {
    this.#peer ??= peerOf(this.socket, owners ?? socketOwners());
    return this.#peer;
  }
}

/** Closes the oldest connections of the peers that have most of them, until so many are left. */
export function closeOldest(strangers: readonly Stranger[], most: number): void {
  const owners = socketOwners();
  const byPeer = new Map<string, Stranger[]>();
  for (const entry of strangers) {
    const list = byPeer.get(entry.peer(owners));
    if (list === undefined) byPeer.set(entry.peer(owners), [entry]);
    else list.push(entry);
  }
  const lists = [...byPeer.values()];
  for (let left = strangers.length; left > most; left--)
    lists
      .reduce((longest, list) => (list.length > longest.length ? list : longest))
      .shift()!
      .socket.destroy();
}

/** The two ends of a connection: a TLS socket and the plain one below it have the same. */
const keyOf = ({ remoteAddress, remotePort }: Socket): string => `${remoteAddress} ${remotePort}`;

/** The strangers of a server of plain or TLS connections. */
export class Strangers {
  readonly #strangers = new Map<string, Stranger>();

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
    this.#strangers.set(key, new Stranger(socket));
    socket.once("close", () => this.#strangers.get(key)?.socket === socket && this.#strangers.delete(key));
    if (this.#strangers.size > this.most) {
      const all = [...this.#strangers.values()];
      closeOldest(all, Math.ceil((3 * this.most) / 4));
      for (const [one, { socket: closed }] of this.#strangers) if (closed.destroyed) this.#strangers.delete(one);
    }
    // A process that computed meanwhile reads what has arrived before it gives up.
    const expire = (): void => void (this.#strangers.get(key)?.socket === socket && socket.destroy());
    setTimeout(() => setImmediate(() => setTimeout(expire, 500).unref()), this.proofMs).unref();
  }

  delete(socket: Socket): void {
    this.#strangers.delete(keyOf(socket));
  }
}
