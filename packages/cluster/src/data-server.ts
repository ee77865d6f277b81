// The worker's side of the data plane: clients connect here, show their key, and get bytes straight from the worker's
// memory: small ones in the answer, large ones by their place in shared memory, or over the socket between hosts.
import { readFileSync } from "node:fs";
import { createServer, type Server, type Socket } from "node:net";
import { totalmem } from "node:os";
import { createServer as createTlsServer } from "node:tls";
import { type Device, type DeviceBuffer, groupLibrary } from "@weft/core/internal/device";
import { WeftError } from "@weft/core/internal/graph";
import koffi from "koffi";
import { type DataPlaneFrame, framePayload, readFrames, writeFrame } from "./frames.js";
import { type Failure, type Held, isFailure, type Namespace } from "./store.js";
import { hostId, isLoopback, randomKey, type Security, sameSecret } from "./wire.js";

/** Milliseconds in which a connection must say whose it is, and in which more of an announced upload must come. */
const helloMs = 10_000;
const stallMs = 20_000;
/** Frames that may come before the dispatcher has introduced their client. */
const maxEarly = 1000;
/** Uploads of one client that wait for the instruction that takes them. */
const maxPending = 10_000;
const maxPendingBytes = totalmem() / 2;
/** Words for a client that has no connection yet. */
const maxLate = 10_000;

/** Up to here the bytes come with the answer. */
const inlineBytes = 64 << 10;

const addressOf = (buffer: DeviceBuffer): number | null => (buffer as { address?: number }).address ?? null;

interface Connection {
  socket: Socket;
  space: Namespace | null;
  /** The client that this says to be, and what it said before the dispatcher had introduced it. */
  client: number | null;
  early: DataPlaneFrame[];
  /** Reads under way by request: shared memory that the client still copies. */
  reads: Map<number, () => void>;
}

/** An upload over a socket. */
interface Arrival {
  client: number;
  bytes: Buffer;
  /** How much of it is there: pieces come in order, so that nobody reads memory that was never written. */
  have: number;
  done: boolean;
  /** When its last piece came. */
  at: number;
  resolve: ((bytes: Buffer | null) => void) | null;
}

export class DataServer {
  readonly key = randomKey();
  readonly #server: Server;
  readonly #connections = new Set<Connection>();
  /** Messages for clients that have not connected yet. */
  readonly #late = new Map<number, object[]>();
  /** Uploads over sockets, complete or not, by client and id. */
  readonly #arrived = new Map<string, Arrival>();
  /** Bytes of uploads by client, and clients that kept others waiting. */
  readonly #pending = new Map<number, { count: number; bytes: number; stalled: boolean }>();
  readonly tls: boolean;
  port = 0;
  sentBytes = 0;

  constructor(
    readonly device: Device,
    readonly spaceOf: (client: number) => Namespace | undefined,
    readonly host: string,
    security: Security,
  ) {
    this.tls = !isLoopback(host);
    if (this.tls && (security.cert === undefined || security.key === undefined))
      throw new WeftError(
        `clients reach this worker at ${host}, from other machines too: give a TLS certificate and its key (--tls-cert, --tls-key)`,
      );
    this.#server = this.tls
      ? createTlsServer({ cert: readFileSync(security.cert!), key: readFileSync(security.key!) }, (s) => this.#open(s))
      : createServer((socket) => this.#open(socket));
  }

  listen(): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#server.once("error", reject);
      this.#server.listen(0, this.host === "localhost" ? "127.0.0.1" : this.host, () => {
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
    const connection: Connection = { socket, space: null, client: null, early: [], reads: new Map() };
    this.#connections.add(connection);
    socket.on("error", () => {});
    socket.on("close", () => {
      this.#connections.delete(connection);
      for (const done of connection.reads.values()) done();
    });
    setTimeout(() => connection.client === null && socket.destroy(), helloMs).unref();
    readFrames(socket, (frame) => this.#frame(connection, frame));
  }

  /** The dispatcher introduced a client. */
  introduce(space: Namespace): void {
    for (const connection of this.#connections)
      if (connection.space === null && connection.client === space.client) this.#relocate(connection, space);
  }

  #relocate(connection: Connection, space: Namespace): void {
    connection.space = space;
    for (const message of this.#late.get(space.client) ?? []) writeFrame(connection.socket, message);
    this.#late.delete(space.client);
    try {
      for (const frame of connection.early.splice(0)) this.#frame(connection, frame);
    } catch {
      connection.socket.destroy();
    }
  }

  #frame(connection: Connection, frame: DataPlaneFrame): void {
    const { socket } = connection;
    const { header, bytes } = frame;
    if (connection.space === null) {
      if (connection.client !== null) {
        connection.early.push(frame);
        if (connection.early.length > maxEarly) socket.destroy();
        return;
      }
      if (!Number.isSafeInteger(header.client) || !sameSecret(String(header.key ?? ""), this.key)) {
        socket.destroy();
        return;
      }
      connection.client = header.client as number;
      const space = this.spaceOf(connection.client);
      if (space !== undefined) this.#relocate(connection, space);
      // The dispatcher's word about a client may come later than the client itself.
      else setTimeout(() => connection.space === null && socket.destroy(), 10_000).unref();
      return;
    }
    if (typeof header.fetch === "number")
      this.#fetch(connection, header.fetch, Number(header.id), header.peek === true);
    else if (typeof header.release === "number") {
      connection.reads.get(header.release)?.();
      connection.reads.delete(header.release);
    } else if (typeof header.upload === "number") this.#upload(connection.space, header, bytes);
    else socket.destroy();
  }

  #fetch(connection: Connection, request: number, id: number, peek: boolean): void {
    const space = connection.space!;
    // A number that is in use would leave the first read's memory taken.
    if (connection.reads.has(request)) throw new WeftError(`fetch ${request} is under way`);
    space.whenAvailable(id, (found) => {
      if (isFailure(found)) this.#answerFailure(connection, request, found);
      else if (peek) {
        this.device.synchronize();
        writeFrame(connection.socket, { fetch: request, bytes: 0, last: true });
      } else this.#answer(connection, space, request, found);
    });
  }

  #answerFailure({ socket }: Connection, request: number, { message, cause }: Failure): void {
    writeFrame(socket, { fetch: request, failed: message, cause });
  }

  #answer(connection: Connection, space: Namespace, request: number, held: Held): void {
    const { socket } = connection;
    const { bytes, buffer } = held;
    this.sentBytes += bytes;
    if (bytes <= inlineBytes) {
      const copy = new Uint8Array(bytes);
      this.device.download(buffer, copy);
      writeFrame(socket, { fetch: request, bytes, last: true }, copy);
      return;
    }
    const local = space.host === hostId() && space.memory !== null;
    const shared = local ? this.#sharedOffset(buffer) : null;
    if (shared !== null) {
      if (connection.reads.has(request)) {
        shared.done();
        socket.destroy();
        return;
      }
      space.read(held);
      connection.reads.set(request, () => {
        shared.done();
        space.readDone(held);
      });
      writeFrame(socket, { fetch: request, bytes, offset: shared.offset });
      return;
    }
    void this.#stream(connection, space, request, held);
  }

  /** Where a buffer lies in this process's shared memory, copied there if it lies elsewhere. */
  #sharedOffset(buffer: DeviceBuffer): { offset: number; done: () => void } | null {
    const library = groupLibrary();
    const [base, room] = [Number(library.arenaBase()), Number(library.arenaBytes())];
    const address = this.device.traits.hostMemory ? addressOf(buffer) : null;
    if (address !== null && address >= base && address < base + room) return { offset: address - base, done: () => {} };
    const copy = Number(library.alloc(buffer.bytes));
    if (copy === 0) return null;
    this.device.download(buffer, new Uint8Array(koffi.view(BigInt(copy), buffer.bytes)));
    return { offset: copy - base, done: () => void library.free(copy) };
  }

  async #stream({ socket }: Connection, space: Namespace, request: number, held: Held): Promise<void> {
    space.read(held);
    const all = new Uint8Array(held.bytes);
    this.device.download(held.buffer, all);
    space.readDone(held);
    for (let at = 0; at < all.length; at += framePayload) {
      const piece = all.subarray(at, at + framePayload);
      const last = at + piece.length >= all.length;
      const more = writeFrame(socket, { fetch: request, bytes: all.length, at, last }, piece);
      if (!more && !last) await new Promise((resolve) => socket.once("drain", resolve));
      if (socket.destroyed) return;
    }
  }

  /** Takes a piece of an upload; what cannot be one ends the connection that it came on (readFrames). */
  #upload(space: Namespace, header: DataPlaneFrame["header"], bytes: Buffer): void {
    const { upload: id, bytes: total, at } = header as { upload: number; bytes: number; at: number };
    const key = `${space.client}/${id}`;
    let entry = this.#arrived.get(key);
    if (entry === undefined || at === 0) {
      const resolve = entry?.resolve ?? null;
      this.#drop(key);
      entry = this.#expect(space.client, key, total, resolve);
    }
    if (entry.done || total !== entry.bytes.length || at !== entry.have || at + bytes.length > total)
      throw new WeftError(`upload ${id}: ${bytes.length} bytes at ${at} of ${total}, after ${entry.have}`);
    bytes.copy(entry.bytes, at);
    entry.have += bytes.length;
    entry.at = Date.now();
    if (header.last !== true) return;
    if (entry.have !== total) throw new WeftError(`upload ${id}: ${entry.have} bytes of ${total}`);
    entry.done = true;
    if (entry.resolve !== null) {
      this.#drop(key);
      entry.resolve(entry.bytes);
    }
  }

  /** Room for an upload, within what one client may have waiting. */
  #expect(client: number, key: string, total: number, resolve: Arrival["resolve"]): Arrival {
    const pending = this.#pending.get(client) ?? { count: 0, bytes: 0, stalled: false };
    if (
      !Number.isSafeInteger(total) ||
      total < 0 ||
      pending.bytes + total > maxPendingBytes ||
      pending.count >= maxPending
    )
      throw new WeftError(`an upload of ${total} bytes after ${pending.count} others of ${pending.bytes}`);
    const entry = { client, bytes: Buffer.allocUnsafe(total), have: 0, done: false, at: Date.now(), resolve };
    pending.bytes += total;
    pending.count++;
    this.#pending.set(client, pending);
    this.#arrived.set(key, entry);
    return entry;
  }

  #drop(key: string): void {
    const entry = this.#arrived.get(key);
    if (entry === undefined) return;
    this.#arrived.delete(key);
    const pending = this.#pending.get(entry.client);
    if (pending === undefined) return;
    pending.bytes -= entry.bytes.length;
    pending.count--;
  }

  /**
   * The bytes that a client sends for a tensor; waits for them, and everybody's instructions with it: null where nothing
   * more comes for a while, or the client is gone. Who kept others waiting once is not waited for again.
   */
  arrival(client: number, id: number): Promise<Buffer | null> {
    const key = `${client}/${id}`;
    const found = this.#arrived.get(key);
    if (found?.done) {
      this.#drop(key);
      return Promise.resolve(found.bytes);
    }
    if (this.#pending.get(client)?.stalled || this.spaceOf(client) === undefined) return Promise.resolve(null);
    const entry = found ?? this.#expect(client, key, 0, null);
    entry.at = Date.now();
    return new Promise((resolve) => {
      const watch = setInterval(() => {
        if (Date.now() - (this.#arrived.get(key)?.at ?? 0) < stallMs) return;
        this.#pending.get(client)!.stalled = true;
        this.#cancelUpload(key);
      }, 1000);
      entry.resolve = (bytes) => {
        clearInterval(watch);
        resolve(bytes);
      };
    });
  }

  #cancelUpload(key: string): void {
    const resolve = this.#arrived.get(key)?.resolve;
    this.#drop(key);
    resolve?.(null);
  }

  /** A client left: nobody waits for its uploads. */
  abandon(client: number): void {
    for (const [key, entry] of [...this.#arrived]) if (entry.client === client) this.#cancelUpload(key);
  }

  /** Tells a client something on its own connection; later, where it has none yet. */
  tell(client: number, message: object): void {
    for (const { socket, space } of this.#connections) {
      if (space?.client !== client) continue;
      writeFrame(socket, message);
      return;
    }
    const late = this.#late.get(client) ?? [];
    if (late.length < maxLate) late.push(message);
    this.#late.set(client, late);
  }

  forget(client: number): void {
    this.#late.delete(client);
    this.abandon(client);
    this.#pending.delete(client);
    for (const connection of this.#connections) if (connection.space?.client === client) connection.socket.destroy();
  }
}
