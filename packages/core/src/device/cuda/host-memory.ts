// Host memory that the GPU copies into directly. Blocks are mapped by this process and registered with the driver, so
// they outlive the GPU's context: an array that a user holds stays readable when the device is lost.
// A block given to a user belongs to its ArrayBuffer: it is reused when that is collected, never before.
import koffi from "koffi";
import { collectNow, forgetSeen } from "../collect.js";

/** Registers and unregisters pages with the driver; returns whether that worked. */
export interface Registrar {
  register(address: number, bytes: number): boolean;
  unregister(address: number): void;
}

export interface HostBlock {
  readonly address: number;
  readonly bytes: number;
  /** Aliases the block. */
  readonly view: Uint8Array;
}

interface Libc {
  mmap: (at: number, bytes: number, protection: number, flags: number, file: number, offset: number) => number | bigint;
  munmap: (at: number, bytes: number) => number;
  madvise: (at: number, bytes: number, advice: number) => number;
}

let libc: Libc | null = null;

function c(): Libc {
  if (libc === null) {
    const library = koffi.load("libc.so.6");
    libc = {
      mmap: library.func(
        "uint64_t mmap(uint64_t at, uint64_t bytes, int protection, int flags, int file, int64_t offset)",
      ),
      munmap: library.func("int munmap(uint64_t at, uint64_t bytes)"),
      madvise: library.func("int madvise(uint64_t at, uint64_t bytes, int advice)"),
    };
  }
  return libc;
}

const readWrite = 3;
const privateAnonymous = 0x22;
const hugePages = 14;

/** New pages; null if the system has none. */
function mapPages(bytes: number): number | null {
  const address = Number(c().mmap(0, bytes, readWrite, privateAnonymous, -1, 0));
  if (address >= 2 ** 63) return null;
  // Far fewer pages to register; where the kernel refuses, small pages do.
  if (bytes >= 1 << 21) c().madvise(address, bytes, hugePages);
  return address;
}

const viewAt = (address: number, bytes: number): ArrayBuffer => koffi.view(BigInt(address), bytes) as ArrayBuffer;

/** A block that lives as long as the process. */
export function permanentBlock(bytes: number, registrar: Registrar | null): HostBlock | null {
  const address = mapPages(bytes);
  if (address === null) return null;
  registrar?.register(address, bytes);
  return { address, bytes, view: new Uint8Array(viewAt(address, bytes)) };
}

interface Block {
  address: number;
  bytes: number;
}

/** One use of a block by one ArrayBuffer. */
interface Lease {
  block: Block;
  holder: WeakRef<ArrayBuffer>;
}

/** Rounds a block size up, so that returned blocks can be reused. */
function bucket(bytes: number): number {
  const step = Math.max(1 << 16, 2 ** (Math.ceil(Math.log2(bytes)) - 3));
  return Math.ceil(bytes / step) * step;
}

/** Blocks of a size that are out before unused ones are looked for: this much, two at least and four at most. */
const rotationBytes = 1 << 28;

export class HostPool {
  readonly #free = new Map<number, Block[]>();
  readonly #leases = new Set<Lease>();
  readonly #registry = new FinalizationRegistry<Lease>((lease) => this.#return(lease));
  #mapped = 0;
  #leased = 0;
  #closed = false;
  readonly #places = new WeakMap<ArrayBufferLike, number>();
  /** Seconds that a byte took to map, and the last sweep as a whole: the cheaper way to a block is taken. */
  #secondsPerByte = 2.5e-10;
  #sweepSeconds = 2e-3;
  #sweptSinceMap = 0;
  #futile = 0;
  #skip = 0;
  /** Blocks mapped so far: a loop in a steady state maps no more. */
  maps = 0;
  /** Collections asked for so far. */
  sweeps = 0;

  constructor(
    readonly registrar: Registrar,
    readonly limit: number,
    /** Tests replace it, because it depends on time whether a collection is worthwhile. */
    readonly clock: { now: () => number; collect: () => void } = { now: () => performance.now(), collect: collectNow },
  ) {}

  get usage(): { leasedBytes: number; pooledBytes: number; limitBytes: number } {
    return { leasedBytes: this.#leased, pooledBytes: this.#mapped - this.#leased, limitBytes: this.limit };
  }

  /** A block for an array of the user; null if the limit is reached. */
  take(bytes: number): { address: number; buffer: ArrayBuffer } | null {
    const size = bucket(bytes);
    if (this.#closed || size > this.limit) return null;
    const block =
      this.#reuse(size) ?? this.#collected(size) ?? this.#recycle(size) ?? this.#map(size) ?? this.#make(size);
    if (block === null) return null;
    const buffer = viewAt(block.address, bytes);
    keepInPlace(buffer);
    const lease = { block, holder: new WeakRef(buffer) };
    this.#leases.add(lease);
    this.#leased += size;
    this.#registry.register(buffer, lease);
    this.#places.set(buffer, block.address);
    return { address: block.address, buffer };
  }

  /** Where the memory of an array lies that came from here; null for others. */
  addressOf(buffer: ArrayBufferLike): number | null {
    return this.#closed ? null : (this.#places.get(buffer) ?? null);
  }

  /** While a copy runs there is time to look for the block of the next one. */
  prepare(bytes: number): void {
    const size = bucket(bytes);
    if (this.#closed || (this.#free.get(size)?.length ?? 0) > 0 || !this.#mayRecycle(size)) return;
    if (this.#sweepSeconds > 2 * size * this.#secondsPerByte) return;
    const block = this.#swept(size);
    if (block !== null) this.#shelve(block);
  }

  /** A block whose array a collection of V8's own has taken: the registry tells only when the task is over. */
  #collected(size: number): Block | null {
    if (this.#leases.size === 0) return null;
    this.#takeBack();
    // Looking at an array keeps it for the rest of the task: it must not.
    forgetSeen();
    return this.#reuse(size);
  }

  #takeBack(): void {
    for (const lease of [...this.#leases]) if (lease.holder.deref() === undefined) this.#return(lease);
  }

  /** Whether blocks of this size are out that nobody may hold any more. */
  #mayRecycle(size: number): boolean {
    let out = 0;
    for (const { block } of this.#leases) out += Number(block.bytes === size);
    // The last ones are mostly still in use, and a few more make collections rare.
    if (out < Math.min(4, Math.max(2, rotationBytes / size))) return false;
    if (this.#skip === 0) return true;
    this.#skip--;
    return false;
  }

  #swept(size: number): Block | null {
    this.sweep();
    const block = this.#reuse(size);
    // Somebody holds them all: look less and less often.
    this.#futile = block === null ? Math.min(10, this.#futile + 1) : 0;
    this.#skip = block === null ? 2 ** this.#futile : 0;
    return block;
  }

  /**
   * Pinning fresh pages takes milliseconds, and so does a collection: blocks of arrays that nobody holds any more are
   * looked for as long as that is cheaper, and when as much time went into looking as a further block costs, one is mapped.
   */
  #recycle(size: number): Block | null {
    if (!this.#mayRecycle(size)) return null;
    if (this.#sweptSinceMap + this.#sweepSeconds > size * this.#secondsPerByte) {
      this.#sweptSinceMap = 0;
      return null;
    }
    const block = this.#swept(size);
    this.#sweptSinceMap += this.#sweepSeconds;
    return block;
  }

  #reuse(size: number): Block | null {
    return this.#free.get(size)?.pop() ?? null;
  }

  #map(size: number): Block | null {
    if (this.#mapped + size > this.limit) return null;
    const start = this.clock.now();
    const address = mapPages(size);
    if (address === null) return null;
    if (!this.registrar.register(address, size)) {
      c().munmap(address, size);
      return null;
    }
    this.#secondsPerByte = (this.clock.now() - start) / 1e3 / size;
    this.#mapped += size;
    this.maps++;
    return { address, bytes: size };
  }

  /** Room within the limit: other sizes that lie idle go, then what users dropped and nobody collected yet. */
  #make(size: number): Block | null {
    this.trim();
    const block = this.#map(size);
    if (block !== null) return block;
    this.sweep();
    const swept = this.#reuse(size);
    if (swept !== null) return swept;
    this.trim();
    return this.#map(size);
  }

  /** Reclaims blocks of unreachable arrays now. */
  sweep(): void {
    const start = this.clock.now();
    this.sweeps++;
    this.clock.collect();
    this.#sweepSeconds = (this.clock.now() - start) / 1e3;
    this.#takeBack();
    forgetSeen();
  }

  #return(lease: Lease): void {
    // Swept by hand before: the registry tells a second time.
    if (!this.#leases.delete(lease)) return;
    const { block } = lease;
    this.#leased -= block.bytes;
    if (this.#closed) {
      c().munmap(block.address, block.bytes);
      return;
    }
    this.#shelve(block);
  }

  #shelve(block: Block): void {
    const list = this.#free.get(block.bytes);
    if (list === undefined) this.#free.set(block.bytes, [block]);
    else list.push(block);
  }

  /** Returns idle blocks to the system. */
  trim(): void {
    for (const list of this.#free.values())
      for (const { address, bytes } of list) {
        if (!this.#closed) this.registrar.unregister(address);
        c().munmap(address, bytes);
        this.#mapped -= bytes;
      }
    this.#free.clear();
  }

  /** The device was closed. Blocks of live arrays stay mapped until the arrays are collected. */
  close(): void {
    this.#closed = true;
    this.trim();
  }
}

/** Moving the memory to another ArrayBuffer would hide who holds it: these copy instead. */
function keepInPlace(buffer: ArrayBuffer): void {
  const copy = (length = buffer.byteLength): ArrayBuffer => {
    const other = new ArrayBuffer(length);
    new Uint8Array(other).set(new Uint8Array(buffer, 0, Math.min(length, buffer.byteLength)));
    return other;
  };
  Object.defineProperties(buffer, { transfer: { value: copy }, transferToFixedLength: { value: copy } });
}
