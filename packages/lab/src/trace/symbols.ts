// Interns byte strings: a repeated name is stored and decoded once. Works on raw JSON bytes (between the quotes), so that the hot
// path creates no JavaScript strings.

import { randomInt } from "node:crypto";
import { workerData } from "node:worker_threads";

const initialSlots = 1 << 12;

/**
 * Start of the hash that the scanner computes while it walks over a string. Random, so that no file can be made of names that
 * collide; worker threads get that of the main thread, because they send hashes.
 */
export const hashSeed: number =
  (workerData as { hashSeed?: number } | null)?.hashSeed ?? randomInt(-(2 ** 31), 2 ** 31 - 1) | 0;

/** Odd multiplier of the hash. */
export const hashFactor = 16777619;

/**
 * Hash of the bytes [start, end), three at a time: a multiplication per byte would take longer than reading it. Four would let the
 * highest bit of one step cancel that of the next whatever the seed is.
 */
export function hashBytes(bytes: Uint8Array, start: number, end: number): number {
  let hash = hashSeed;
  let at = start;
  for (; at + 3 <= end; at += 3)
    hash = Math.imul(hash ^ (bytes[at] | (bytes[at + 1] << 8) | (bytes[at + 2] << 16)), hashFactor);
  if (at + 2 === end) return Math.imul(hash ^ (bytes[at] | (bytes[at + 1] << 8)), hashFactor);
  return at < end ? Math.imul(hash ^ bytes[at], hashFactor) : hash;
}

/** The byte strings of a table, by id: the bytes [starts[id], starts[id + 1]) of `arena`. */
export interface SymbolColumns {
  arena: Uint8Array;
  starts: Int32Array;
  hashes: Int32Array;
}

export class Symbols {
  private slots = new Int32Array(initialSlots).fill(-1);
  private hashes = new Int32Array(initialSlots);
  private starts = new Int32Array(initialSlots + 1);
  private arena = new Uint8Array(1 << 16);
  private used = 0;
  private count = 0;
  private decoded: (string | undefined)[] = [];

  get size(): number {
    return this.count;
  }

  /** Id of the bytes [start, end), whose `hashBytes` the caller has computed. */
  intern(bytes: Uint8Array, start: number, end: number, hash: number): number {
    const mask = this.slots.length - 1;
    let slot = (hash ^ (hash >>> 15)) & mask;
    for (;;) {
      const id = this.slots[slot];
      if (id < 0) break;
      if (this.hashes[id] === hash && this.same(id, bytes, start, end)) return id;
      slot = (slot + 1) & mask;
    }
    const id = this.add(bytes, start, end, hash);
    this.slots[slot] = id;
    if (this.count * 2 > this.slots.length) this.grow();
    return id;
  }

  /** A copy of the strings, for another thread. */
  columns(): SymbolColumns {
    return {
      arena: this.arena.slice(0, this.used),
      starts: this.starts.slice(0, this.count + 1),
      hashes: this.hashes.slice(0, this.count),
    };
  }

  /** Interns the strings of another table; returns their ids here. */
  append({ arena, starts, hashes }: SymbolColumns): Int32Array {
    const ids = new Int32Array(hashes.length);
    for (let i = 0; i < ids.length; i++) ids[i] = this.intern(arena, starts[i], starts[i + 1], hashes[i]);
    return ids;
  }

  text(id: number): string {
    const known = this.decoded[id];
    if (known !== undefined) return known;
    let text = this.raw(id);
    if (text.includes("\\")) {
      try {
        text = JSON.parse(`"${text}"`) as string;
      } catch {
        // An invalid escape: the raw bytes are used as the name.
      }
    }
    this.decoded[id] = text;
    return text;
  }

  /** The bytes as they are in the file, without decoding escapes. */
  raw(id: number): string {
    return Buffer.from(this.arena.subarray(this.starts[id], this.starts[id + 1])).toString("utf8");
  }

  private same(id: number, bytes: Uint8Array, start: number, end: number): boolean {
    const from = this.starts[id];
    if (this.starts[id + 1] - from !== end - start) return false;
    const arena = this.arena;
    for (let i = start, j = from; i < end; i++, j++) if (bytes[i] !== arena[j]) return false;
    return true;
  }

  private add(bytes: Uint8Array, start: number, end: number, hash: number): number {
    const length = end - start;
    if (this.used + length > this.arena.length) {
      const wider = new Uint8Array(Math.max(this.arena.length * 2, this.used + length));
      wider.set(this.arena.subarray(0, this.used));
      this.arena = wider;
    }
    this.arena.set(bytes.subarray(start, end), this.used);
    const id = this.count++;
    this.hashes[id] = hash;
    this.starts[id] = this.used;
    this.used += length;
    this.starts[id + 1] = this.used;
    return id;
  }

  private grow(): void {
    const length = this.slots.length * 2;
    const hashes = new Int32Array(length);
    hashes.set(this.hashes);
    const starts = new Int32Array(length + 1);
    starts.set(this.starts);
    this.hashes = hashes;
    this.starts = starts;
    this.slots = new Int32Array(length).fill(-1);
    const mask = length - 1;
    for (let id = 0; id < this.count; id++) {
      const hash = hashes[id];
      let slot = (hash ^ (hash >>> 15)) & mask;
      while (this.slots[slot] >= 0) slot = (slot + 1) & mask;
      this.slots[slot] = id;
    }
  }
}

/** Whether the text of an id is one of `names`, computed once per id. */
export function nameIn(symbols: Symbols, names: ReadonlySet<string>): (id: number) => boolean {
  const known = new Uint8Array(symbols.size);
  return (id) => {
    if (known[id] === 0) known[id] = names.has(symbols.text(id)) ? 2 : 1;
    return known[id] === 2;
  };
}
