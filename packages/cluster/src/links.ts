// Links between the workers of a group on several hosts. Every pair of members has a connection, with TLS beyond loopback
// and a key that the dispatcher issued to the group. Bytes of the group's local sockets (device/group/links.ts) are
// forwarded over it in pieces; empty pieces say every second that the other process runs. Runs in the background thread.
import { connect, createServer, type Server, Socket } from "node:net";
import { connect as connectTls, createServer as createTlsServer } from "node:tls";
import { readFrames, writeFrame } from "./frames.js";
import { sameSecret } from "./identity.js";
import { addressOf, certificates, isLoopback, needsTls, type Security } from "./security.js";
import { boundSilence } from "./silence.js";
import { closeOldest, Stranger, Strangers } from "./strangers.js";

export interface LinkServerOptions {
  /** Address at which other workers reach this one. */
  host: string;
  security: Security;
}

export interface LinkAddress {
  host: string;
  port: number;
  tls: boolean;
}

/** A group that this worker joins: the member with the higher rank connects, the other one accepts. */
export interface LinkMembers {
  name: string;
  key: string;
  rank: number;
  members: readonly LinkAddress[];
  /** The thread's ends of the local sockets, by rank. */
  sockets: readonly number[];
}

/** Milliseconds for a member to be connected, for its worker to join, which may compute for another client, and without a sign of life. */
const connectMs = 10_000;
const joinMs = 600_000;
const silentMs = 3_000;
const beatMs = 1_000;
/** An empty piece. */
const beat = Buffer.alloc(4);
/** Bytes of the first frame. */
const maxHello = 1024;
/** Connections for groups that this worker has not joined. */
const maxClaims = 256;
const retryMs = 200;
/** Milliseconds for the other side to close after this one has. */
const lingerMs = 1_000;

/** A connection that says to which group it belongs. */
interface Claim {
  socket: Socket;
  stranger: Stranger;
  group: string;
  key: string;
  from: number;
  /** What followed the claim already. */
  rest: Buffer;
}

interface Joined extends LinkMembers {
  /** Ranks that have not connected yet. */
  missing: Set<number>;
}

export class LinkServer {
  readonly #server: Server;
  readonly #strangers: Strangers;
  readonly #claims = new Set<Claim>();
  readonly #groups = new Map<string, Joined>();
  readonly #links = new Set<Link>();
  #ticked = performance.now();

  constructor(readonly options: LinkServerOptions) {
    const { host, security } = options;
    const open = (socket: Socket): void => this.#open(socket);
    if (isLoopback(host)) this.#server = createServer(open);
    else {
      const files = certificates(security, `other workers reach this one at ${host}`);
      const tls = { ...files, requestCert: true, rejectUnauthorized: true };
      this.#server = createTlsServer(tls, open);
    }
    this.#server.maxConnections = 4096;
    this.#strangers = new Strangers(this.#server);
    setInterval(() => this.#tick(), beatMs).unref();
  }

  listen(): Promise<number> {
    const { host } = this.options;
    return new Promise((resolve, reject) => {
      this.#server.once("error", reject);
      this.#server.listen(0, addressOf(host), () => resolve((this.#server.address() as { port: number }).port));
    });
  }

  /** Beats, and gives up links that have been silent. A process that was stopped itself has missed what was sent. */
  #tick(): void {
    const now = performance.now();
    const stopped = now - this.#ticked > 2 * beatMs;
    this.#ticked = now;
    for (const link of this.#links) link.tick(now, stopped);
    // Whoever waits for this worker to join a group knows that it lives.
    for (const { socket } of this.#claims) socket.write(beat);
  }

  #open(socket: Socket): void {
    socket.on("error", () => {});
    const stop = readFrames(
      socket,
      ({ header }) => {
        const { group, key, from } = header;
        if (typeof group !== "string" || typeof key !== "string" || !Number.isInteger(from)) {
          socket.destroy();
          return;
        }
        socket.pause();
        const claim = { socket, stranger: new Stranger(socket), group, key, from: from as number, rest: stop() };
        this.#strangers.delete(socket);
        this.#claims.add(claim);
        socket.on("close", () => this.#claims.delete(claim));
        this.#match(claim);
        if (this.#claims.size > maxClaims) {
          const strangers = [...this.#claims].map(({ stranger }) => stranger);
          closeOldest(strangers, (3 * maxClaims) / 4);
        }
        setTimeout(() => this.#claims.has(claim) && socket.destroy(), joinMs).unref();
      },
      () => maxHello,
    );
  }

  #match(claim: Claim): void {
    const group = this.#groups.get(claim.group);
    if (group === undefined) return;
    this.#claims.delete(claim);
    if (!sameSecret(claim.key, group.key) || claim.from <= group.rank || !group.missing.delete(claim.from)) {
      claim.socket.destroy();
      return;
    }
    this.#attach(group, claim.from, claim.socket, claim.rest);
  }

  join(members: LinkMembers): void {
    const { name, rank, sockets } = members;
    const group: Joined = { ...members, missing: new Set() };
    const deadline = performance.now() + connectMs;
    members.members.forEach((address, other) => {
      if (other === rank) return;
      group.missing.add(other);
      if (other < rank) this.#connect(group, other, address, deadline);
    });
    this.#groups.set(name, group);
    for (const claim of [...this.#claims]) this.#match(claim);
    setTimeout(() => {
      this.#groups.delete(name);
      for (const other of group.missing) new Socket({ fd: sockets[other] }).destroy();
      group.missing.clear();
    }, joinMs).unref();
  }

  /** Connects with a member; a connection that fails otherwise is tried again until the group's time is over. */
  #connect(group: Joined, other: number, address: LinkAddress, deadline: number): void {
    const { host, port } = address;
    const tls = needsTls(address);
    const at = addressOf(host);
    const socket = tls
      ? connectTls({
          host: at,
          port,
          ...certificates(this.options.security, "a member of a group is on another machine"),
        })
      : connect(port, at);
    let attached = false;
    // Members listen before they are announced: one that refuses a connection has ended, one that is silent cannot be reached.
    let refused = false;
    socket.on("error", (error: NodeJS.ErrnoException) => {
      refused = error.code === "ECONNREFUSED";
    });
    socket.setTimeout(silentMs, () => {
      if (attached) return;
      refused = true;
      socket.destroy();
    });
    socket.once(tls ? "secureConnect" : "connect", () => {
      if (!group.missing.delete(other)) {
        socket.destroy();
        return;
      }
      attached = true;
      socket.setTimeout(0);
      writeFrame(socket, { group: group.name, key: group.key, from: group.rank });
      this.#attach(group, other, socket, Buffer.alloc(0));
    });
    socket.once("close", () => {
      if (attached || !group.missing.has(other)) return;
      if (!refused && performance.now() < deadline)
        setTimeout(() => this.#connect(group, other, address, deadline), retryMs).unref();
      else if (group.missing.delete(other)) new Socket({ fd: group.sockets[other] }).destroy();
    });
  }

  #attach(group: LinkMembers, other: number, socket: Socket, rest: Buffer): void {
    const link = new Link(socket, group.sockets[other], rest, () => this.#links.delete(link));
    this.#links.add(link);
  }
}

/** One connection with another member, and the local socket whose bytes it carries. */
class Link {
  readonly #local: Socket;
  readonly #remote: Socket;
  readonly #onEnd: () => void;
  #heard = performance.now();
  /** Bytes left of the piece that is arriving, and the part of its length that has arrived. */
  #left = 0;
  #head = Buffer.alloc(0);

  constructor(remote: Socket, fd: number, rest: Buffer, onEnd: () => void) {
    this.#remote = remote;
    this.#onEnd = onEnd;
    const local = new Socket({ fd, readable: true, writable: true, allowHalfOpen: true });
    this.#local = local;
    boundSilence(remote);
    remote.setNoDelay(true);
    for (const socket of [local, remote]) {
      socket.on("error", () => {});
      socket.on("close", () => this.end());
    }
    local.on("data", (bytes: Buffer) => {
      if (!this.#send(bytes)) {
        local.pause();
        remote.once("drain", () => local.resume());
      }
    });
    // The other side reads what is left, and closes; then this process may end.
    local.on("end", () => {
      remote.end();
      setTimeout(() => this.end(), lingerMs).unref();
    });
    remote.on("end", () => local.end());
    remote.on("data", (bytes: Buffer) => this.#receive(bytes));
    if (rest.length > 0) this.#receive(rest);
    remote.resume();
  }

  end(): void {
    this.#local.destroy();
    this.#remote.destroy();
    this.#onEnd();
  }

  tick(now: number, stopped: boolean): void {
    if (!this.#remote.destroyed) this.#remote.write(beat);
    // Nothing is heard while this process does not read.
    if (stopped || this.#remote.isPaused()) this.#heard = now;
    else if (now - this.#heard > silentMs) this.end();
  }

  #send(bytes: Buffer): boolean {
    const head = Buffer.allocUnsafe(4);
    head.writeUInt32LE(bytes.length);
    if (this.#remote.destroyed) return true;
    this.#remote.cork();
    this.#remote.write(head);
    const more = this.#remote.write(bytes);
    this.#remote.uncork();
    return more;
  }

  #receive(bytes: Buffer): void {
    this.#heard = performance.now();
    let at = 0;
    let room = true;
    while (at < bytes.length) {
      if (this.#left === 0) {
        const more = bytes.subarray(at, at + 4 - this.#head.length);
        this.#head = Buffer.concat([this.#head, more]);
        at += more.length;
        if (this.#head.length < 4) return;
        this.#left = this.#head.readUInt32LE();
        this.#head = Buffer.alloc(0);
      } else {
        const piece = bytes.subarray(at, at + this.#left);
        at += piece.length;
        this.#left -= piece.length;
        room = this.#local.write(piece);
      }
    }
    if (room || this.#remote.isPaused()) return;
    this.#remote.pause();
    this.#local.once("drain", () => this.#remote.resume());
  }
}
