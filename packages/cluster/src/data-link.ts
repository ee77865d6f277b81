// The client side of the data plane: one connection per worker. Fetched shards are written directly into the client's
// array, from the worker's shared memory where possible.
import { connect, Socket } from "node:net";
import { connect as connectTls } from "node:tls";
import { groupLibrary } from "@weft/core/internal/device";
import { instructionSchema } from "@weft/formats/internal";
import { z } from "zod";
import { type ArrayPart, denseStrides, putPart } from "./boxes.js";
import { type Measurement, measurement } from "./clocks.js";
import { ClusterError } from "./errors.js";
import { type DataPlaneFrame, drained, framePayload, readFrames, writeFrame } from "./frames.js";
import { printable } from "./printable.js";
import { type FailureCode, failureCode, type WorkerInfo } from "./protocol.js";
import { addressOf, certificates, needsTls, type Security } from "./security.js";
import { answerWithMemory, receiveMemory, type SharedMapping, shareName, unmapMemory } from "./shared-memory.js";
import { boundSilence, SilenceError } from "./silence.js";

/** Where a shard is written in the array of the whole tensor. */
export interface Destination extends ArrayPart {
  into: Uint8Array;
}

interface Waiting {
  id: number;
  to: Destination;
  /** The shard as far as it has arrived: in one array, however many pieces it comes in. */
  dense: Uint8Array | null;
  have: number;
  resolve(): void;
  reject(error: Error): void;
}

/** What a worker adds to this program's tape: its own instructions, and nothing else. */
const tapeRecords = z.array(instructionSchema);

const bytesOfShard = ({ sizes, element }: Pick<Destination, "sizes" | "element">): number =>
  sizes.reduce((n, size) => n * size, element);

/**
 * Milliseconds for a connection to be accepted; a worker that computes need not do anything for it. Less for one that replaces a
 * connection that has just broken: whoever waits has waited before.
 */
const acceptMs = 5000;
export const reopenedMs = 2000;

export class DataLink {
  readonly #socket: Socket;
  readonly #waiting = new Map<number, Waiting>();
  #next = 1;
  /** Requests that are sent at the end of this turn, together and after the calls that they wait for. */
  #outgoing: object[] = [];
  /** The worker's memory, and the ticket under which it arrives. */
  #memory: SharedMapping | null = null;
  #ticket = "";
  #broken: string | null = null;
  /** Whether it broke because the worker's host does not answer. */
  silent = false;
  /** When the connection was begun, on the clock of this process. */
  readonly begun = performance.now();
  /** Bytes received over this connection, excluding shared memory. */
  receivedBytes = 0;
  /** Bytes of fetched shards, however they were transferred. */
  fetchedBytes = 0;
  /** Resolves when it is known whether the worker shares memory with this process. */
  readonly settled: Promise<void>;
  #settle: () => void = () => {};
  #reader: number | null = null;

  constructor(
    readonly worker: WorkerInfo,
    client: number,
    security: Security,
    readonly listener: {
      uploaded(id: number): void;
      /** The connection broke; what was sent on it may not have arrived. */
      broken(): void;
      tape(records: unknown[]): void;
      measured(value: Measurement): void;
    },
    /** Milliseconds for the connection to be accepted. */
    patienceMs = acceptMs,
  ) {
    const { host, port } = worker.data;
    const tls = needsTls(worker.data);
    this.settled = new Promise((resolve) => {
      this.#settle = resolve;
    });
    this.#socket = this.#connect(tls, addressOf(host), port, security);
    boundSilence(this.#socket);
    this.#socket.setNoDelay(true);
    // An idle connection does not keep the program alive.
    this.#socket.unref();
    this.#socket.on("error", (error) => {
      this.silent ||= error instanceof SilenceError;
      this.fail(`the connection to worker ${worker.id} failed: ${error.message}`);
    });
    this.#socket.on("close", () => this.fail(`worker ${worker.id} closed the connection`));
    // The system itself would try for two minutes to reach a host that answers nothing.
    const giveUp = (): void => {
      if (!this.#socket.connecting) return;
      this.silent = true;
      this.fail(`no connection to worker ${worker.id} at ${host}:${port} within ${patienceMs / 1e3} s`);
    };
    // A process that computed meanwhile looks at what has happened before it gives up.
    const late = setTimeout(() => setImmediate(() => setTimeout(giveUp, 300).unref()), patienceMs).unref();
    this.#socket.once("connect", () => clearTimeout(late));
    readFrames(this.#socket, (frame) => this.#frame(frame));
    const name = shareName();
    if (name === null) this.#settle();
    writeFrame(this.#socket, { client, key: worker.key, name });
  }

  /** A socket that may not be one yet: what is wrong with a worker's address is an error of its tensors, not of the program. */
  #connect(tls: boolean, host: string, port: number, security: Security): Socket {
    try {
      if (!tls) return connect(port, host);
      return connectTls({ host, port, ...certificates(security, `worker ${this.worker.id} is on another machine`) });
    } catch (error) {
      return new Socket().destroy(error as Error);
    }
  }

  /** Whether the worker reads uploads from this process's memory. */
  get shares(): boolean {
    return this.#memory !== null;
  }

  /** The process that may read this process's memory; null if there is none. */
  get reader(): number | null {
    return this.#reader;
  }

  get broken(): string | null {
    return this.#broken;
  }

  /** Fails the connection and all pending requests. */
  fail(reason: string): void {
    const first = this.#broken === null;
    this.#broken ??= reason;
    this.#settle();
    this.#socket.destroy();
    for (const { reject } of this.#waiting.values()) reject(new ClusterError(this.#broken, "lost"));
    this.#waiting.clear();
    if (this.#memory !== null) unmapMemory(this.#memory);
    this.#memory = null;
    if (first) this.listener.broken();
  }

  /** Fails the pending requests for these tensors. */
  failTensors(ids: ReadonlySet<number>, message: string, code: FailureCode): void {
    for (const [request, { id, reject }] of this.#waiting) {
      if (!ids.has(id)) continue;
      this.#waiting.delete(request);
      reject(new ClusterError(message, code));
    }
  }

  /** Waits until the worker has computed its shard of a tensor, without copying it. */
  peek(id: number): Promise<void> {
    const nothing = { into: new Uint8Array(0), offset: 0, sizes: [0], strides: [1], element: 1 };
    return this.#request(nothing, { id, peek: true });
  }

  fetch(id: number, to: Destination): Promise<void> {
    return this.#request(to, { id });
  }

  #request(to: Destination, what: { id: number; peek?: boolean }): Promise<void> {
    if (this.#broken !== null) return Promise.reject(new ClusterError(this.#broken, "lost"));
    const request = this.#next++;
    this.#socket.ref();
    return new Promise<void>((resolve, reject) => {
      this.#waiting.set(request, { id: what.id, to, dense: null, have: 0, resolve, reject });
      if (this.#outgoing.push({ fetch: request, ...what }) === 1) setImmediate(() => this.#sendRequests());
    }).finally(() => {
      if (this.#waiting.size === 0) this.#socket.unref();
    });
  }

  #sendRequests(): void {
    const requests = this.#outgoing;
    this.#outgoing = [];
    if (this.#socket.destroyed) return;
    this.#socket.cork();
    for (const header of requests) writeFrame(this.#socket, header);
    this.#socket.uncork();
  }

  /** Uploads bytes to a worker whose memory cannot be shared. */
  async upload(id: number, bytes: Uint8Array): Promise<void> {
    for (let at = 0; at === 0 || at < bytes.length; at += framePayload) {
      const piece = bytes.subarray(at, at + framePayload);
      const last = at + piece.length >= bytes.length;
      const more = writeFrame(this.#socket, { upload: id, bytes: bytes.length, at, last }, piece);
      if (!more && !last) await drained(this.#socket);
      if (this.#socket.destroyed) return;
    }
  }

  #frame({ header, bytes }: DataPlaneFrame): void {
    if (header.tape !== undefined)
      this.listener.tape(tapeRecords.parse(header.tape).map((record) => ({ ...record, workerId: this.worker.id })));
    else if (typeof header.uploaded === "number") this.listener.uploaded(header.uploaded);
    else if (header.measured !== undefined) this.listener.measured(measurement.parse(header.measured));
    else if (typeof header.fetch === "number") this.#arrived(header.fetch, header, bytes);
    else if (typeof header.ticket === "string") this.#offerMemory(String(header.name), header.ticket);
    else if (typeof header.shared === "boolean") this.#takeMemory(header.shared);
  }

  /** Passes this process's memory to the worker, if it has asked for it on this host, and as this user. */
  #offerMemory(name: string, ticket: string): void {
    // Once: the worker asks when the connection begins.
    if (this.#ticket !== "") return;
    this.#ticket = ticket;
    const sent = shareName() !== null && answerWithMemory(name, ticket);
    if (sent) writeFrame(this.#socket, { shared: true });
    else this.#settle();
  }

  #takeMemory(shared: boolean): void {
    if (shared && this.#memory === null && this.#broken === null) this.#memory = receiveMemory(this.#ticket);
    if (this.#memory !== null) {
      this.#reader = this.#memory.pid;
      writeFrame(this.#socket, { reads: true });
    }
    this.#settle();
  }

  #arrived(request: number, header: DataPlaneFrame["header"], bytes: Buffer): void {
    const waiting = this.#waiting.get(request);
    if (waiting === undefined) {
      // Nobody waits for it any more: the worker must not keep its memory for this answer.
      if (typeof header.offset === "number") writeFrame(this.#socket, { release: request });
      return;
    }
    this.receivedBytes += bytes.length;
    try {
      if (typeof header.failed === "string") throw new ClusterError(printable(header.failed), failureCode(header.code));
      if (typeof header.offset === "number") {
        this.#copyShared(header.offset, waiting.to);
        writeFrame(this.#socket, { release: request });
      } else {
        if (!this.#takePiece(waiting, header, bytes)) return;
      }
      this.fetchedBytes += bytesOfShard(waiting.to);
      this.#waiting.delete(request);
      waiting.resolve();
    } catch (error) {
      this.#waiting.delete(request);
      waiting.reject(error as Error);
    }
  }

  /** Takes a piece of a shard, in order; returns whether it was the last. */
  #takePiece(waiting: Waiting, header: DataPlaneFrame["header"], bytes: Buffer): boolean {
    const { to, have } = waiting;
    const expected = bytesOfShard(to);
    const isLast = header.last === true;
    const end = have + bytes.length;
    if ((header.at !== undefined && header.at !== have) || end > expected || (isLast && end < expected))
      throw new ClusterError(`worker ${this.worker.id} sent ${end} bytes for a shard of ${expected}`, "error");
    waiting.have = end;
    if (isLast && have === 0) {
      putPart(bytes, to.into, to);
      return true;
    }
    waiting.dense ??= new Uint8Array(expected);
    waiting.dense.set(bytes, have);
    if (isLast) putPart(waiting.dense, to.into, to);
    return isLast;
  }

  #copyShared(offset: number, { into, offset: at, sizes, strides, element }: Destination): void {
    const dense = denseStrides(sizes, element);
    const bytes = bytesOfShard({ sizes, element });
    if (this.#memory === null || !(Number.isSafeInteger(offset) && offset >= 0 && offset + bytes <= this.#memory.bytes))
      throw new ClusterError(`worker ${this.worker.id} sent an invalid offset ${offset}`, "error");
    const big = (values: readonly number[]): BigInt64Array => BigInt64Array.from(values, BigInt);
    const from = this.#memory.base + offset;
    groupLibrary().copyBoxOut(into, at, big(strides), from, big(dense), big(sizes), sizes.length, element);
  }
}
