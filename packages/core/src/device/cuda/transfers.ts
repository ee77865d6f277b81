// Copies between the host, a GPU and other GPUs: small uploads through a ring buffer, large results directly into pinned
// memory of the user's array, everything else through staging buffers. Works on buffers, not tensors.
import { WeftError } from "../../graph/index.js";
import type { BufferPiece, CudaBuffer, CudaContext } from "./context.js";
import { type HostBlock, permanentBlock } from "./host-memory.js";

const stagingBytes = 32 << 20;
/** Results of at least this size are copied to pinned memory that the user's array aliases. */
const fetchFrom = 1 << 18;
/** Uploads up to this size go through the ring buffer and do not wait for the GPU. */
const smallUpload = 1 << 18;
const uploadRing = 1 << 22;
const notReady = 600;
/** Results up to this size are read through one of these slots of pinned memory when they are read without blocking. */
const slotBytes = 4096;
const slotCount = 64;

export class Transfers {
  #staging: HostBlock | null = null;
  #ring: { block: HostBlock; next: number } | null = null;

  constructor(readonly context: CudaContext) {}

  upload(buffer: CudaBuffer, from: Uint8Array): void {
    const bytes = from.byteLength;
    if (bytes === 0) return;
    this.context.enter();
    const { driver } = this.context;
    if (bytes <= smallUpload) {
      this.#ring ??= { block: this.#pinned(uploadRing), next: 0 };
      const { block } = this.#ring;
      if (this.#ring.next + bytes > uploadRing) {
        this.context.synchronize();
        this.#ring.next = 0;
      }
      const at = this.#ring.next;
      this.#ring.next = at + Math.ceil(bytes / 64) * 64;
      block.view.set(from, at);
      this.context.check(
        "cuMemcpyHtoDAsync",
        driver.cuMemcpyHtoDAsync_v2(buffer.address, block.address + at, bytes, this.context.stream),
      );
      return;
    }
    // Earlier work may still read what this memory held before.
    this.context.synchronize();
    this.context.check("cuMemcpyHtoD", driver.cuMemcpyHtoD_v2(buffer.address, from, bytes));
  }

  #pinned(bytes: number): HostBlock {
    const block = permanentBlock(bytes, this.context.registrar());
    if (block === null) throw new WeftError("cuda: the system has no memory left");
    return block;
  }

  /** Straight into arrays that were fetched before; otherwise through pinned memory in pieces, one being filled while
   * the other is emptied. */
  download(buffer: CudaBuffer, into: Uint8Array): void {
    const pinned = this.context.hostPool.addressOf(into.buffer);
    // Each piece is copied as soon as it is issued, before the next one is.
    if (pinned !== null) this.context.claim(buffer);
    this.context.enter();
    if (pinned !== null) {
      const event = this.#copyOut(buffer, pinned + into.byteOffset);
      this.context.check("cuEventSynchronize", this.context.driver.cuEventSynchronize(event));
      this.#fetchEvents.push(event);
      return;
    }
    this.#staging ??= this.#pinned(stagingBytes);
    const { address, view } = this.#staging;
    const half = stagingBytes / 2;
    const events = [this.context.event(0), this.context.event(1)];
    const start = (at: number): void => {
      const slot = (at / half) % 2;
      const n = Math.min(half, into.byteLength - at);
      this.context.check(
        "cuMemcpyDtoH",
        this.context.driver.cuMemcpyDtoHAsync_v2(address + slot * half, buffer.address + at, n, this.context.stream),
      );
      this.context.check("cuEventRecord", this.context.driver.cuEventRecord(events[slot], this.context.stream));
    };
    if (into.byteLength > 0) start(0);
    for (let at = 0; at < into.byteLength; at += half) {
      if (at + half < into.byteLength) start(at + half);
      const slot = (at / half) % 2;
      this.context.check("cuEventSynchronize", this.context.driver.cuEventSynchronize(events[slot]));
      into.set(view.subarray(slot * half, slot * half + Math.min(half, into.byteLength - at)), at);
    }
  }

  /** The bytes of a large buffer in pinned memory that belongs to the caller's array; null: use `download`. */
  fetch(buffer: CudaBuffer): ArrayBuffer | null {
    const started = this.#startFetch(buffer);
    if (started === null) return null;
    this.context.check("cuEventSynchronize", this.context.driver.cuEventSynchronize(started.event));
    this.#fetchEvents.push(started.event);
    return started.buffer;
  }

  /** The same without blocking the event loop; small results too, while there are slots for them. */
  fetchAsync(buffer: CudaBuffer): Promise<ArrayBuffer> | null {
    if (buffer.bytes <= slotBytes) return this.#fetchSmall(buffer);
    const started = this.#startFetch(buffer);
    if (started === null) return null;
    // Whatever writes to this memory next must wait for the copy.
    this.context.check(
      "cuStreamWaitEvent",
      this.context.driver.cuStreamWaitEvent(this.context.stream, started.event, 0),
    );
    return this.#whenDone(started.event, () => started.buffer);
  }

  /** Resolves with `result` once an event has occurred, and keeps the event for later use. */
  #whenDone(event: number, result: () => ArrayBuffer): Promise<ArrayBuffer> {
    return new Promise((resolve, reject) => {
      const look = (): void => {
        const code = this.context.lost === null ? this.context.driver.cuEventQuery(event) : 1;
        if (code === notReady) {
          setImmediate(look);
          return;
        }
        this.#fetchEvents.push(event);
        const made = result();
        try {
          this.context.check("cuEventQuery", code);
          resolve(made);
        } catch (error) {
          reject(error as Error);
        }
      };
      look();
    });
  }

  #slots: { block: HostBlock; free: number[] } | null = null;

  /** Copies in the order of the stream, so that work that is enqueued meanwhile need not wait. */
  #fetchSmall(buffer: CudaBuffer): Promise<ArrayBuffer> | null {
    this.context.enter();
    this.#slots ??= {
      block: this.#pinned(slotBytes * slotCount),
      free: Array.from({ length: slotCount }, (_, i) => i * slotBytes),
    };
    const { block, free } = this.#slots;
    const at = buffer.bytes === 0 ? undefined : free.pop();
    if (at === undefined) return null;
    const { driver, stream } = this.context;
    const done = this.#fetchEvents.pop() ?? this.context.newEvent();
    const { bytes } = buffer;
    this.context.check("cuMemcpyDtoH", driver.cuMemcpyDtoHAsync_v2(block.address + at, buffer.address, bytes, stream));
    this.context.check("cuEventRecord", driver.cuEventRecord(done, stream));
    return this.#whenDone(done, () => {
      free.push(at);
      return block.view.slice(at, at + bytes).buffer as ArrayBuffer;
    });
  }

  readonly #fetchEvents: number[] = [];

  #startFetch(buffer: CudaBuffer): { buffer: ArrayBuffer; event: number } | null {
    if (buffer.bytes < fetchFrom) return null;
    this.context.enter();
    const block = this.context.hostPool.take(buffer.bytes);
    if (block === null) return null;
    const event = this.#copyOut(buffer, block.address);
    this.context.hostPool.prepare(buffer.bytes);
    return { buffer: block.buffer, event };
  }

  /** Starts a copy to pinned memory, piece by piece as the buffer gets ready; the event marks its end. */
  #copyOut(buffer: CudaBuffer, to: number): number {
    const { driver, copyStream } = this.context;
    const done = this.#fetchEvents.pop() ?? this.context.newEvent();
    const ready = this.context.event(0);
    const copy = (at: number, { bytes, event }: BufferPiece): number => {
      this.context.check("cuStreamWaitEvent", driver.cuStreamWaitEvent(copyStream, event, 0));
      this.context.check("cuMemcpyDtoH", driver.cuMemcpyDtoHAsync_v2(to + at, buffer.address + at, bytes, copyStream));
      return at + bytes;
    };
    const pieces = this.context.claim(buffer);
    if (pieces === null) {
      this.context.check("cuEventRecord", driver.cuEventRecord(ready, this.context.stream));
      copy(0, { bytes: buffer.bytes, event: ready });
    } else {
      const { list, more } = pieces;
      for (let i = 0, at = 0; i < list.length || more(); i++) at = copy(at, list[i]);
    }
    this.context.check("cuEventRecord", driver.cuEventRecord(done, copyStream));
    return done;
  }

  /** Copies the beginning of a buffer into another one, as far as both reach, and zeros behind it. */
  copyPart(from: CudaBuffer, to: CudaBuffer): void {
    this.context.enter();
    const { driver, stream } = this.context;
    const bytes = Math.min(from.bytes, to.bytes);
    if (bytes > 0)
      this.context.check("cuMemcpyDtoD", driver.cuMemcpyDtoDAsync_v2(to.address, from.address, bytes, stream));
    const rest = to.bytes - bytes;
    if (rest > 0) this.context.check("cuMemsetD8", driver.cuMemsetD8Async(to.address + bytes, 0, rest, stream));
  }

  /** Copies a buffer to another GPU, over NVLink or PCIe without the host where the machine can. */
  copyToPeer(buffer: CudaBuffer, peer: CudaContext): CudaBuffer {
    const copy = peer.allocate(buffer.bytes);
    this.#enablePeer(peer);
    this.context.enter();
    const { driver } = this.context;
    // The memory may have been in use there until now.
    peer.enter();
    const [mine, theirs] = [this.context.event(0), peer.event(0)];
    this.context.check("cuEventRecord", driver.cuEventRecord(theirs, peer.stream));
    this.context.enter();
    this.context.check("cuStreamWaitEvent", driver.cuStreamWaitEvent(this.context.stream, theirs, 0));
    this.context.check(
      "cuMemcpyPeerAsync",
      driver.cuMemcpyPeerAsync(
        copy.address,
        peer.handle,
        buffer.address,
        this.context.handle,
        buffer.bytes,
        this.context.stream,
      ),
    );
    this.context.check("cuEventRecord", driver.cuEventRecord(mine, this.context.stream));
    this.context.check("cuStreamWaitEvent", driver.cuStreamWaitEvent(peer.stream, mine, 0));
    return copy;
  }

  readonly #peers = new Set<CudaContext>();

  #enablePeer(peer: CudaContext): void {
    if (this.#peers.has(peer)) return;
    this.#peers.add(peer);
    this.context.enter();
    const can = new Int32Array(1);
    this.context.check(
      "cuDeviceCanAccessPeer",
      this.context.driver.cuDeviceCanAccessPeer(can, this.context.device, peer.device),
    );
    // 704: already enabled. Without peer access the driver copies through the host.
    const code = can[0] === 1 ? this.context.driver.cuCtxEnablePeerAccess(peer.handle, 0) : 0;
    if (code !== 704) this.context.check("cuCtxEnablePeerAccess", code);
  }
}
