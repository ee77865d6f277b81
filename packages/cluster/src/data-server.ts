// The worker's side of the data plane: clients connect here, show their key, and get bytes straight from the worker's
// memory: small ones in the answer, large ones by their place in shared memory, or over the socket between hosts.
import { readFileSync } from "node:fs";
import { createServer, type Server, type Socket } from "node:net";
import { createServer as createTlsServer } from "node:tls";
import { type Device, type DeviceBuffer, groupLibrary } from "@weft/core/internal/device";
import { WeftError } from "@weft/core/internal/graph";
import koffi from "koffi";
import { type Frame, framePayload, readFrames, writeFrame } from "./frames.js";
import { type Failure, type Held, isFailure, type Namespace } from "./store.js";
import { hostId, isLoopback, randomKey, type Security, sameSecret } from "./wire.js";

/** Up to here the bytes come with the answer. */
const inlineBytes = 64 << 10;

const addressOf = (buffer: DeviceBuffer): number | null => (buffer as { address?: number }).address ?? null;

interface Connection {
  socket: Socket;
  space: Namespace | null;
  /** The client that this says to be, and what it said before the dispatcher had introduced it. */
  client: number | null;
  early: Frame[];
  /** Reads under way by request: shared memory that the client still copies. */
  reads: Map<number, () => void>;
}

export class DataServer {
  readonly key = randomKey();
  readonly #server: Server;
  readonly #connections = new Set<Connection>();
  /** Messages for clients that have not connected yet. */
  readonly #late = new Map<number, object[]>();
  /** Uploads over sockets, complete or not, by client and id. */
  readonly #arrived = new Map<string, { bytes: Buffer; done: boolean; resolve: ((b: Buffer) => void) | null }>();
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
    readFrames(socket, (frame) => this.#frame(connection, frame));
  }

  /** The dispatcher introduced a client. */
  introduce(space: Namespace): void {
    for (const connection of this.#connections)
      if (connection.space === null && connection.client === space.client) this.#settle(connection, space);
  }

  #settle(connection: Connection, space: Namespace): void {
    connection.space = space;
    for (const message of this.#late.get(space.client) ?? []) writeFrame(connection.socket, message);
    this.#late.delete(space.client);
    for (const frame of connection.early.splice(0)) this.#frame(connection, frame);
  }

  #frame(connection: Connection, frame: Frame): void {
    const { socket } = connection;
    const { header, bytes } = frame;
    if (connection.space === null) {
      if (connection.client !== null) {
        connection.early.push(frame);
        return;
      }
      if (typeof header.client !== "number" || !sameSecret(String(header.key ?? ""), this.key)) {
        socket.destroy();
        return;
      }
      connection.client = header.client;
      const space = this.spaceOf(header.client);
      if (space !== undefined) this.#settle(connection, space);
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
    space.whenThere(id, (found) => {
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
    const shared = local ? this.#sharedPlace(buffer) : null;
    if (shared !== null) {
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
  #sharedPlace(buffer: DeviceBuffer): { offset: number; done: () => void } | null {
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

  #upload(space: Namespace, header: Frame["header"], bytes: Buffer): void {
    const key = `${space.client}/${header.upload}`;
    const total = Number(header.bytes);
    const at = Number(header.at);
    let entry = this.#arrived.get(key);
    if (entry === undefined || entry.bytes.length !== total) {
      const resolve = entry?.resolve ?? null;
      entry = { bytes: Buffer.allocUnsafe(total), done: false, resolve };
      this.#arrived.set(key, entry);
    }
    if (at + bytes.length > total) return;
    bytes.copy(entry.bytes, at);
    if (header.last !== true) return;
    entry.done = true;
    if (entry.resolve !== null) {
      this.#arrived.delete(key);
      entry.resolve(entry.bytes);
    }
  }

  /** The bytes that a client sends for a tensor; waits for them. */
  arrival(client: number, id: number): Promise<Buffer> {
    const key = `${client}/${id}`;
    const entry = this.#arrived.get(key);
    if (entry?.done) {
      this.#arrived.delete(key);
      return Promise.resolve(entry.bytes);
    }
    return new Promise((resolve) => {
      if (entry !== undefined) entry.resolve = resolve;
      else this.#arrived.set(key, { bytes: Buffer.alloc(0), done: false, resolve });
    });
  }

  /** Tells a client something on its own connection; later, where it has none yet. */
  tell(client: number, message: object): void {
    for (const { socket, space } of this.#connections) {
      if (space?.client !== client) continue;
      writeFrame(socket, message);
      return;
    }
    this.#late.set(client, [...(this.#late.get(client) ?? []), message]);
  }

  forget(client: number): void {
    this.#late.delete(client);
    for (const key of [...this.#arrived.keys()]) if (key.startsWith(`${client}/`)) this.#arrived.delete(key);
    for (const connection of this.#connections) if (connection.space?.client === client) connection.socket.destroy();
  }
}
