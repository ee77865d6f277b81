// The worker side of the data plane: clients connect, present the key that the dispatcher issued to them, and fetch and
// upload their own tensors. Small results are sent inline, large ones as an offset in shared memory, or streamed between
// hosts.
import { randomBytes } from "node:crypto";
import { createServer, type Server, type Socket } from "node:net";
import { totalmem } from "node:os";
import { createServer as createTlsServer } from "node:tls";
import { type Device, type DeviceBuffer, groupLibrary } from "@weft/core/internal/device";
import { WeftError } from "@weft/core/internal/graph";
import koffi from "koffi";
import { type DataPlaneFrame, drained, framePayload, readFrames, writeFrame } from "./frames.js";
import { sameSecret } from "./identity.js";
import { addressOf, certificates, isLoopback, type Security } from "./security.js";
import { askForMemory, receiveMemory, sendMemory, shareName } from "./shared-memory.js";
import { boundSilence, SilenceError } from "./silence.js";
import { type Failure, type Held, isFailure, type Namespace } from "./store.js";
import { Strangers } from "./strangers.js";

/**
 * Milliseconds for the next piece of an upload to arrive: of a client that is connected, of one that is not or whose connection broke a
 * short while ago and the piece with it, and of one whose last upload stalled. A connected client may compute something meanwhile.
 */
const patienceMs = 600_000;
const stallMs = 5_000;
const againMs = 1_000;
const shortWhileMs = 60_000;
/** Milliseconds for a client to open another connection in place of one that broke. */
const reconnectMs = 2_000;
/** Bytes that wait for a client to read them before its next request is looked at, and before it is disconnected. */
const enoughUnread = 8 << 20;
const maxUnread = 64 << 20;
/** Maximum uploads of a client that wait for their instruction, and their bytes: those of one client, and those of all that have arrived. */
const maxPending = 10_000;
const maxPendingBytes = totalmem() / 2;
/** Maximum notifications queued for a client that is not connected yet, and their characters: those for a tape may be long. */
const maxQueued = 10_000;
const maxQueuedText = 16 << 20;

/** Connections of all clients, proved or not, and of one client. A client needs one; a new one may precede the end of the old one. */
const maxConnections = 4096;
const maxOfClient = 4;
/** Requests of a connection that are not answered, or answered with memory that the client has not released. */
const maxRequests = 100_000;
/** Bytes of the first frame. */
const maxHello = 1024;

/** Results up to this size are sent inline. */
const inlineBytes = 64 << 10;

const hostAddress = (buffer: DeviceBuffer): number | null => (buffer as { address?: number }).address ?? null;

interface Connection {
  socket: Socket;
  space: Namespace | null;
  /** What the connection claims, until the dispatcher has introduced the client. Nothing more is read before that. */
  claim: { client: number; key: string; name: string | null } | null;
  /** Under which the client passes its memory; null if it cannot, or has done so. */
  ticket: string | null;
  name: string | null;
  /** Whether the client reads results from this process's memory. */
  sharesMemory: boolean;
  /** Requests that are not over: null until they are answered, then what releases the memory that the client copies from. */
  requests: Map<number, (() => void) | null>;
  /** Answers that wait until the client has read what it asked for before. */
  late: (() => void)[];
}

/** An upload over a socket. */
interface Arrival {
  client: number;
  connection: Connection;
  bytes: Buffer;
  /** Bytes received. Pieces arrive in order, so uninitialized memory is never read. */
  have: number;
  done: boolean;
}

/** A client's instructions wait for an upload; `at` is the time of the last piece. */
interface Awaited {
  client: number;
  at: number;
  resolve(bytes: Buffer | null): void;
}

/** The pending uploads of a client. */
interface PendingUploads {
  count: number;
  bytes: number;
  /** Whether the last one stalled. */
  stalled: boolean;
  /** When a connection of the client closed last. */
  closedAt: number;
}

export class DataServer {
  readonly #server: Server;
  readonly #connections = new Set<Connection>();
  readonly #strangers: Strangers;
  /** Notifications for clients that are not connected yet. */
  readonly #queued = new Map<number, { messages: object[]; characters: number }>();
  /** Uploads over sockets, complete or partial, by client and id. */
  readonly #arrived = new Map<string, Arrival>();
  readonly #awaited = new Map<string, Awaited>();
  /** Bytes of these uploads that have arrived. */
  #arrivedBytes = 0;
  readonly #pending = new Map<number, PendingUploads>();
  readonly tls: boolean;
  port = 0;
  sentBytes = 0;

  constructor(
    readonly device: Device,
    readonly spaceOf: (client: number) => Namespace | undefined,
    readonly host: string,
    security: Security,
    /** Bytes of uploads of all clients that wait for their instruction. */
    readonly maxArrived = maxPendingBytes,
  ) {
    this.tls = !isLoopback(host);
    const open = (socket: Socket): void => this.#open(socket);
    if (this.tls) {
      const files = certificates(security, `clients reach this worker at ${host}, from other machines too`);
      const options = { ...files, requestCert: true, rejectUnauthorized: true };
      this.#server = createTlsServer(options, open);
    } else this.#server = createServer(open);
    this.#server.maxConnections = maxConnections;
    this.#strangers = new Strangers(this.#server);
  }

  listen(): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#server.once("error", reject);
      this.#server.listen(0, addressOf(this.host), () => {
        this.port = (this.#server.address() as { port: number }).port;
        resolve();
      });
    });
  }

  close(): void {
    this.#server.close();
    for (const { socket } of this.#connections) socket.destroy();
  }

  #open(socket: Socket): void {
    socket.setNoDelay(true);
    let silent = false;
    socket.on("error", (error) => {
      silent = error instanceof SilenceError;
    });
    boundSilence(socket);
    const connection: Connection = {
      socket,
      space: null,
      claim: null,
      ticket: null,
      name: null,
      sharesMemory: false,
      requests: new Map(),
      late: [],
    };
    this.#connections.add(connection);
    socket.on("close", () => {
      this.#connections.delete(connection);
      for (const release of connection.requests.values()) release?.();
      connection.space?.giveUp(connection);
      const client = connection.space?.client;
      if (client !== undefined && this.spaceOf(client) !== undefined) {
        this.#pendingOf(client).closedAt = performance.now();
        // A client that is there opens another connection and sends again what instructions wait for; an unreachable one does not.
        const lost = [...this.#awaited].filter(([, awaited]) => awaited.client === client);
        const cancel = (): void => {
          if (this.#isConnected(client)) return;
          for (const [key, awaited] of lost) if (this.#awaited.get(key) === awaited) this.#cancelUpload(key);
        };
        if (silent) cancel();
        else if (lost.length > 0) setTimeout(cancel, reconnectMs);
      }
      // What has arrived of an interrupted upload is of no use.
      for (const [key, arrival] of [...this.#arrived])
        if (arrival.connection === connection && !arrival.done) this.#drop(key);
    });
    readFrames(
      socket,
      (frame) => this.#frame(connection, frame),
      () => (connection.space === null ? maxHello : null),
    );
  }

  /** Checks and attaches the connections of a client that the dispatcher introduced. */
  introduce(space: Namespace): void {
    for (const connection of this.#connections)
      if (connection.space === null && connection.claim?.client === space.client) this.#attach(connection, space);
  }

  #attach(connection: Connection, space: Namespace): void {
    const { socket, claim } = connection;
    if (!sameSecret(claim!.key, space.key)) {
      socket.destroy();
      return;
    }
    // One that was just closed is listed until its end is reported.
    const others = [...this.#connections].filter((other) => other.space === space && !other.socket.destroyed);
    if (others.length >= maxOfClient) others[0].socket.destroy();
    connection.space = space;
    this.#strangers.delete(socket);
    const own = shareName();
    const ticket = randomBytes(32).toString("hex");
    if (own !== null && claim!.name !== null && askForMemory(claim!.name, ticket)) {
      connection.ticket = ticket;
      connection.name = claim!.name;
      writeFrame(socket, { ticket, name: own });
    } else if (claim!.name !== null) writeFrame(socket, { shared: false });
    for (const message of this.#queued.get(space.client)?.messages ?? []) writeFrame(socket, message);
    this.#queued.delete(space.client);
    socket.resume();
  }

  /** Maps the memory that the client passed under the ticket of this connection, and passes this process's. */
  #exchangeMemory(connection: Connection): void {
    const { ticket, name, space, socket } = connection;
    connection.ticket = null;
    const memory = ticket === null ? null : receiveMemory(ticket);
    const sent = memory !== null && sendMemory(name!, ticket!);
    if (memory !== null) space!.memory = memory;
    writeFrame(socket, { shared: sent });
  }

  #frame(connection: Connection, frame: DataPlaneFrame): void {
    const { socket } = connection;
    const { header, bytes } = frame;
    if (connection.space === null) {
      const { client, key, name } = header;
      if (
        connection.claim !== null ||
        !Number.isSafeInteger(client) ||
        (client as number) < 1 ||
        typeof key !== "string"
      ) {
        socket.destroy();
        return;
      }
      connection.claim = { client: client as number, key, name: typeof name === "string" ? name : null };
      const space = this.spaceOf(connection.claim.client);
      if (space !== undefined) this.#attach(connection, space);
      // The dispatcher's introduction may arrive after the client connects.
      else socket.pause();
      return;
    }
    if (typeof header.fetch === "number")
      this.#fetch(connection, header.fetch, Number(header.id), header.peek === true);
    else if (typeof header.release === "number") {
      const release = connection.requests.get(header.release);
      if (release == null) return;
      connection.requests.delete(header.release);
      release();
    } else if (typeof header.upload === "number") this.#upload(connection, header, bytes);
    else if (header.shared === true) this.#exchangeMemory(connection);
    else if (header.reads === true) connection.sharesMemory = connection.space.memory !== null;
    else socket.destroy();
  }

  #fetch(connection: Connection, request: number, id: number, peek: boolean): void {
    // A reused request number would leak the memory of the first read.
    if (connection.requests.has(request)) throw new WeftError(`fetch ${request} is already pending`);
    if (connection.requests.size >= maxRequests) throw new WeftError(`${maxRequests} fetches are pending`);
    connection.requests.set(request, null);
    this.#await(connection, request, id, peek);
  }

  #await(connection: Connection, request: number, id: number, peek: boolean): void {
    connection.space!.whenAvailable(id, connection, (found) => this.#found(connection, request, id, peek, found));
  }

  #found(connection: Connection, request: number, id: number, peek: boolean, found: Held | Failure): void {
    const { socket } = connection;
    if (connection.late.length > 0 || socket.isPaused()) {
      // Thousands of requests may have waited for one result. The tensor may be freed meanwhile, a failure stays one.
      connection.late.push(() => {
        if (isFailure(found)) this.#found(connection, request, id, peek, found);
        else this.#await(connection, request, id, peek);
      });
    } else if (isFailure(found))
      this.#reply(connection, request, { fetch: request, failed: found.message, code: found.code });
    else if (peek) {
      this.device.synchronize();
      this.#reply(connection, request, { fetch: request, bytes: 0, last: true });
    } else this.#answer(connection, request, found);
  }

  /** Sends a whole answer. No further request is looked at while the client does not read. */
  #reply(connection: Connection, request: number, header: object, bytes: Uint8Array | null = null): void {
    connection.requests.delete(request);
    writeFrame(connection.socket, header, bytes);
    if (connection.socket.writableLength > enoughUnread) this.#holdUp(connection);
  }

  #answer(connection: Connection, request: number, held: Held): void {
    const { socket } = connection;
    const space = connection.space!;
    const { bytes, buffer } = held;
    this.sentBytes += bytes;
    if (bytes <= inlineBytes) {
      const copy = new Uint8Array(bytes);
      this.device.download(buffer, copy);
      this.#reply(connection, request, { fetch: request, bytes, last: true }, copy);
      return;
    }
    const shared = connection.sharesMemory ? this.#sharedOffset(buffer) : null;
    if (shared !== null) {
      space.read(held);
      connection.requests.set(request, () => {
        shared.done();
        space.readDone(held);
      });
      writeFrame(socket, { fetch: request, bytes, offset: shared.offset });
      return;
    }
    void this.#stream(connection, space, request, held);
  }

  /** Offset of a buffer in this process's shared memory; copies it there if needed. */
  #sharedOffset(buffer: DeviceBuffer): { offset: number; done: () => void } | null {
    const library = groupLibrary();
    const [base, room] = [Number(library.arenaBase()), Number(library.arenaBytes())];
    const address = this.device.traits.hostMemory ? hostAddress(buffer) : null;
    if (address !== null && address >= base && address < base + room) return { offset: address - base, done: () => {} };
    const copy = Number(library.alloc(buffer.bytes));
    if (copy === 0) return null;
    this.device.download(buffer, new Uint8Array(koffi.view(BigInt(copy), buffer.bytes)));
    return { offset: copy - base, done: () => void library.free(copy) };
  }

  /** Looks at no further request of a client before it has read what it asked for. */
  #holdUp(connection: Connection): void {
    connection.socket.pause();
    void drained(connection.socket).then(() => this.#goOn(connection));
  }

  /** Answers what waited, as long as the client reads, and then looks at further requests. */
  #goOn(connection: Connection): void {
    const { socket } = connection;
    if (socket.destroyed) return;
    socket.resume();
    const late = connection.late;
    connection.late = [];
    for (const [i, answer] of late.entries()) {
      answer();
      if (!socket.isPaused()) continue;
      connection.late = [...connection.late, ...late.slice(i + 1)];
      return;
    }
  }

  async #stream(connection: Connection, space: Namespace, request: number, held: Held): Promise<void> {
    // One at a time: each needs memory for a copy.
    connection.socket.pause();
    await this.#pieces(connection.socket, space, request, held);
    connection.requests.delete(request);
    this.#goOn(connection);
  }

  async #pieces(socket: Socket, space: Namespace, request: number, held: Held): Promise<void> {
    space.read(held);
    const all = new Uint8Array(held.bytes);
    this.device.download(held.buffer, all);
    space.readDone(held);
    for (let at = 0; at < all.length; at += framePayload) {
      const piece = all.subarray(at, at + framePayload);
      const last = at + piece.length >= all.length;
      const more = writeFrame(socket, { fetch: request, bytes: all.length, at, last }, piece);
      if (!more && !last) await drained(socket);
      if (socket.destroyed) return;
    }
  }

  /** Receives a piece of an upload; an invalid one closes its connection (readFrames). */
  #upload(connection: Connection, header: DataPlaneFrame["header"], bytes: Buffer): void {
    const { upload: id, bytes: total, at } = header as { upload: number; bytes: number; at: number };
    const { client } = connection.space!;
    const key = `${client}/${id}`;
    let entry = this.#arrived.get(key);
    if (entry === undefined || at === 0) {
      this.#drop(key);
      entry = this.#expect(connection, key, total);
    }
    if (entry.done || total !== entry.bytes.length || at !== entry.have || at + bytes.length > total)
      throw new WeftError(`upload ${id}: ${bytes.length} bytes at ${at} of ${total}, after ${entry.have}`);
    bytes.copy(entry.bytes, at);
    entry.have += bytes.length;
    this.#arrivedBytes += bytes.length;
    if (this.#arrivedBytes > this.maxArrived) this.#makeRoom();
    const pending = this.#pending.get(client);
    if (pending !== undefined) pending.stalled = false;
    const awaited = this.#awaited.get(key);
    if (awaited !== undefined) awaited.at = performance.now();
    if (header.last !== true) return;
    if (entry.have !== total) throw new WeftError(`upload ${id}: ${entry.have} bytes of ${total}`);
    entry.done = true;
    if (awaited === undefined) return;
    this.#drop(key);
    awaited.resolve(entry.bytes);
  }

  /** Reserves memory for an upload, within the client's limits. */
  #expect(connection: Connection, key: string, total: number): Arrival {
    const { client } = connection.space!;
    const pending = this.#pendingOf(client);
    if (
      !Number.isSafeInteger(total) ||
      total < 0 ||
      pending.bytes + total > maxPendingBytes ||
      pending.count >= maxPending
    )
      throw new WeftError(`an upload of ${total} bytes after ${pending.count} others of ${pending.bytes}`);
    const entry = { client, connection, bytes: Buffer.allocUnsafe(total), have: 0, done: false };
    pending.bytes += total;
    pending.count++;
    this.#arrived.set(key, entry);
    return entry;
  }

  /** Disconnects whoever has sent most of what no instruction has asked for: its uploads use up the memory of all. */
  #makeRoom(): void {
    const byConnection = new Map<Connection, number>();
    for (const { connection, have } of this.#arrived.values())
      byConnection.set(connection, (byConnection.get(connection) ?? 0) + have);
    const [most] = [...byConnection].reduce((a, b) => (b[1] > a[1] ? b : a));
    for (const [key, { connection }] of [...this.#arrived]) if (connection === most) this.#cancelUpload(key);
    most.socket.destroy();
  }

  #drop(key: string): void {
    const entry = this.#arrived.get(key);
    if (entry === undefined) return;
    this.#arrived.delete(key);
    this.#arrivedBytes -= entry.have;
    const pending = this.#pending.get(entry.client);
    if (pending === undefined) return;
    pending.bytes -= entry.bytes.length;
    pending.count--;
  }

  /**
   * Waits for the bytes of an upload; the client's other instructions wait too. Resolves to null if no data arrives for a while,
   * its connection closes, or the client left. A client whose last upload stalled is not waited for as long.
   */
  waitForUpload(client: number, id: number): Promise<Buffer | null> {
    const key = `${client}/${id}`;
    const found = this.#arrived.get(key);
    if (found?.done) {
      this.#drop(key);
      return Promise.resolve(found.bytes);
    }
    const pending = this.#pendingOf(client);
    if (this.spaceOf(client) === undefined || this.#awaited.size >= maxPending || this.#awaited.has(key))
      return Promise.resolve(null);
    return new Promise((resolve) => {
      const awaited: Awaited = {
        client,
        at: performance.now(),
        resolve: (bytes) => {
          clearInterval(watch);
          this.#awaited.delete(key);
          resolve(bytes);
        },
      };
      this.#awaited.set(key, awaited);
      let ticked = performance.now();
      const watch = setInterval(() => {
        const now = performance.now();
        // A worker that computed meanwhile has not read what has arrived.
        if (now - ticked > 1500) awaited.at = now;
        ticked = now;
        if (now - awaited.at < this.#patience(client, pending)) return;
        pending.stalled = true;
        this.#cancelUpload(key);
      }, 500);
    });
  }

  #isConnected(client: number): boolean {
    return [...this.#connections].some(({ space }) => space?.client === client);
  }

  #patience(client: number, { stalled, closedAt }: PendingUploads): number {
    if (this.#isConnected(client) && performance.now() - closedAt > shortWhileMs) return patienceMs;
    return stalled ? againMs : stallMs;
  }

  #pendingOf(client: number): PendingUploads {
    let pending = this.#pending.get(client);
    if (pending === undefined) {
      pending = { count: 0, bytes: 0, stalled: false, closedAt: Number.NEGATIVE_INFINITY };
      this.#pending.set(client, pending);
    }
    return pending;
  }

  #cancelUpload(key: string): void {
    this.#drop(key);
    this.#awaited.get(key)?.resolve(null);
  }

  /** Cancels the uploads of a client that left. */
  abandon(client: number): void {
    for (const [key, entry] of [...this.#arrived, ...this.#awaited])
      if (entry.client === client) this.#cancelUpload(key);
  }

  /** Sends a notification on a client's connection, or queues it until there is one. */
  notify(client: number, message: object): void {
    for (const { socket, space } of this.#connections) {
      if (space?.client !== client) continue;
      // Tape records of a client that does not read them.
      if (socket.writableLength > maxUnread) socket.destroy();
      else writeFrame(socket, message);
      return;
    }
    const late = this.#queued.get(client) ?? { messages: [], characters: 0 };
    if (late.messages.length >= maxQueued || late.characters >= maxQueuedText) return;
    late.messages.push(message);
    late.characters += JSON.stringify(message).length;
    this.#queued.set(client, late);
  }

  forget(client: number): void {
    this.#queued.delete(client);
    this.abandon(client);
    this.#pending.delete(client);
    for (const connection of this.#connections) if (connection.space?.client === client) connection.socket.destroy();
  }
}
