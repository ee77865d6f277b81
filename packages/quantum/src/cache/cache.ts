// Bounded LRU caches with statistics. Keys describe structure (operators, shapes, settings), never values that change between
// calls, so that a loop over new tasks hits.
import { createHash } from "node:crypto";

/** Contents and counters of one cache. */
interface CacheStats {
  /** Number of entries. */
  entries: number;
  /** Sum of the current sizes of the entries. */
  bytes: number;
  /** Number of lookups that found an entry. */
  hits: number;
  /** Number of lookups that found none. */
  misses: number;
  /** Number of entries that were removed for others. */
  evictions: number;
  /** Limits of the cache. */
  limits: { entries: number; bytes: number };
}

/** Bounds of a cache. @inline */
interface CacheOptions<V> {
  /** Maximum number of entries. */
  entries: number;
  /** Maximum size of all entries. */
  bytes?: number;
  /** Size of an entry in bytes. Called for every eviction and statistic, because entries may grow. */
  sizeOf: (value: V) => number;
}

const caches = new Map<string, BoundedCache<unknown>>();

/** Least-recently-used cache that is bounded by entries and bytes and listed by `cacheStats`. */
export class BoundedCache<V> {
  /** Least recently used first. */
  readonly #entries = new Map<string, V>();
  #hits = 0;
  #misses = 0;
  #evictions = 0;

  constructor(
    /** Name in `cacheStats()`. */
    readonly name: string,
    /** Limits of the cache. */
    readonly options: CacheOptions<V>,
  ) {
    caches.set(name, this as BoundedCache<unknown>);
  }

  /** The entry of a key, created by `make` if it is not cached. */
  get(key: string, make: () => V): V {
    const cached = this.#entries.get(key);
    if (cached !== undefined || this.#entries.has(key)) {
      this.#hits++;
      this.#entries.delete(key);
      this.#entries.set(key, cached as V);
      return cached as V;
    }
    this.#misses++;
    const made = make();
    this.#entries.set(key, made);
    this.#evict();
    return made;
  }

  #evict(): void {
    const { entries, bytes = Number.POSITIVE_INFINITY } = this.options;
    // The newest entry is never evicted: the caller holds it anyway.
    while (this.#entries.size > 1 && (this.#entries.size > entries || this.#bytes() > bytes)) {
      this.#entries.delete(this.#entries.keys().next().value!);
      this.#evictions++;
    }
  }

  #bytes(): number {
    let sum = 0;
    for (const value of this.#entries.values()) sum += this.options.sizeOf(value);
    return sum;
  }

  /** Removes all entries and resets the counters. */
  clear(): void {
    this.#entries.clear();
    this.#hits = this.#misses = this.#evictions = 0;
  }

  /** Entries, bytes, hits, misses and evictions. */
  stats(): CacheStats {
    return {
      entries: this.#entries.size,
      bytes: this.#bytes(),
      hits: this.#hits,
      misses: this.#misses,
      evictions: this.#evictions,
      limits: { entries: this.options.entries, bytes: this.options.bytes ?? Number.POSITIVE_INFINITY },
    };
  }
}

/** Statistics of every cache of this package, by name. */
export const cacheStats = (): Record<string, CacheStats> =>
  Object.fromEntries([...caches].map(([name, cache]) => [name, cache.stats()]));

/** Empties every cache of this package and resets its counters. */
export function clearCaches(): void {
  for (const cache of caches.values()) cache.clear();
}

/** Hash of JSON values and typed arrays, for use as a cache key. */
export function structureKey(...parts: readonly unknown[]): string {
  const text = JSON.stringify(parts, (_, value: unknown) =>
    ArrayBuffer.isView(value) ? Array.from(value as Float64Array) : value,
  );
  return createHash("sha256").update(text).digest("hex").slice(0, 32);
}
