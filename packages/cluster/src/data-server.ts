// The worker side of the data plane: clients connect, present the key, and read bytes from the worker's memory. Small
// results are sent inline, large ones as an offset in shared memory, or streamed between hosts.
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

/** Milliseconds for a connection to identify itself, and for the next piece of an upload to arrive. */
const helloMs = 10_000;
const stallMs = 20_000;
/** Maximum frames buffered until the dispatcher has introduced their client. */
const maxBuffered = 1000;
/** Maximum uploads of a client that wait for their instruction. */
const maxPending = 10_000;
const maxPendingBytes = totalmem() / 2;
/** Maximum notifications queued for a client that is not connected yet. */
const maxQueued = 10_000;

/** Results up to this size are sent inline. */
const inlineBytes = 64 << 10;

const addressOf = (buffer: DeviceBuffer): number | null => (buffer as { address?: number }).address ?? null;

interface Connection {
  socket: Socket;
  space: Namespace | null;
  /** The client's id, and its frames received before the dispatcher introduced it. */
  client: number | null;
  buffered: DataPlaneFrame[];
  /** Pending reads by request: shared memory that the client still copies from. */
  reads: Map<number, () => void>;
}

/** An upload over a socket. */
interface Arrival {
  client: number;
  bytes: Buffer;
  /** Bytes received. Pieces arrive in order, so uninitialized memory is never read. */
  have: number;
  done: boolean;
  /** Time of the last piece. */
  at: number;
  resolve: ((bytes: Buffer | null) => void) | null;
}

export class DataServer {
  readonly key = randomKey();
  readonly #server: Server;
  readonly #connections = new Set<Connection>();
  /** Notifications for clients that are not connected yet. */
  readonly #queued = new Map<number, object[]>();
  /** Uploads over sockets, complete or partial, by client and id. */
  readonly #arrived = new Map<string, Arrival>();
  /** Pending uploads by client, and whether the client stalled the queue before. */
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
    const connection: Connection = { socket, space: null, client: null, buffered: [], reads: new Map() };
    this.#connections.add(connection);
    socket.on("error", () => {});
    socket.on("close", () => {
      this.#connections.delete(connection);
      for (const done of connection.reads.values()) done();
    });
    setTimeout(() => connection.client === null && socket.destroy(), helloMs).unref();
    readFrames(socket, (frame) => this.#frame(connection, frame));
  }

  /** Attaches the connections of a client that the dispatcher introduced. */
  introduce(space: Namespace): void {
    for (const connection of this.#connections)
      if (connection.space === null && connection.client === space.client) this.#relocate(connection, space);
  }

  #relocate(connection: Connection, space: Namespace): void {
    connection.space = space;
    for (const message of this.#queued.get(space.client) ?? []) writeFrame(connection.socket, message);
    this.#queued.delete(space.client);
    try {
      for (const frame of connection.buffered.splice(0)) this.#frame(connection, frame);
    } catch {
      connection.socket.destroy();
    }
  }

  #frame(connection: Connection, frame: DataPlaneFrame): void {
    const { socket } = connection;
    const { header, bytes } = frame;
    if (connection.space === null) {
      if (connection.client !== null) {
        connection.buffered.push(frame);
        if (connection.buffered.length > maxBuffered) socket.destroy();
        return;
      }
      if (!Number.isSafeInteger(header.client) || !sameSecret(String(header.key ?? ""), this.key)) {
        socket.destroy();
        return;
      }
      connection.client = header.client as number;
      const space = this.spaceOf(connection.client);
      if (space !== undefined) this.#relocate(connection, space);
      // The dispatcher's introduction may arrive after the client connects.
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
    // A reused request number would leak the memory of the first read.
    if (connection.reads.has(request)) throw new WeftError(`fetch ${request} is already pending`);
    space.whenAvailable(id, (found) => {
      if (isFailure(found)) this.#answerFailure(connection, request, found);
      else if (peek) {
        this.device.synchronize();
        writeFrame(connection.socket, { fetch: request, bytes: 0, last: true });
      } else this.#answer(connection, space, request, found);
    });
  }

  #answerFailure({ socket }: Connection, request: number, { message, code }: Failure): void {
    writeFrame(socket, { fetch: request, failed: message, code });
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

  /** Offset of a buffer in this process's shared memory; copies it there if needed. */
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

  /** Receives a piece of an upload; an invalid one closes its connection (readFrames). */
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

  /** Reserves memory for an upload, within the client's limits. */
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
   * Waits for the bytes of an upload; the instruction queue waits too. Resolves to null if no data arrives for a while
   * or the client left. A client that stalled once is not waited for again.
   */
  waitForUpload(client: number, id: number): Promise<Buffer | null> {
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

  /** Cancels the uploads of a client that left. */
  abandon(client: number): void {
    for (const [key, entry] of [...this.#arrived]) if (entry.client === client) this.#cancelUpload(key);
  }

  /** Sends a notification on a client's connection, or queues it until there is one. */
  notify(client: number, message: object): void {
    for (const { socket, space } of this.#connections) {
      if (space?.client !== client) continue;
      writeFrame(socket, message);
      return;
    }
    const late = this.#queued.get(client) ?? [];
    if (late.length < maxQueued) late.push(message);
    this.#queued.set(client, late);
  }

  forget(client: number): void {
    this.#queued.delete(client);
    this.abandon(client);
    this.#pending.delete(client);
    for (const connection of this.#connections) if (connection.space?.client === client) connection.socket.destroy();
  }
}
