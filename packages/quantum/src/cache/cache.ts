// Caches that are bounded and say what they do. A key is the structure of what is kept (operators, shapes, settings),
// never numbers that are drawn anew: so a loop over fresh tasks hits. Knows nothing of what it keeps.
import { createHash } from "node:crypto";

export interface CacheStats {
  entries: number;
  /** What the entries hold now, as they measure it themselves. */
  bytes: number;
  hits: number;
  misses: number;
  evictions: number;
  limits: { entries: number; bytes: number };
}

export interface CacheOptions<V> {
  entries: number;
  bytes?: number;
  /** Asked whenever statistics are: an entry may grow. */
  sizeOf: (value: V) => number;
}

const caches = new Map<string, BoundedCache<unknown>>();

export class BoundedCache<V> {
  /** Least recently used first. */
  readonly #entries = new Map<string, V>();
  #hits = 0;
  #misses = 0;
  #evictions = 0;

  constructor(
    readonly name: string,
    readonly options: CacheOptions<V>,
  ) {
    caches.set(name, this as BoundedCache<unknown>);
  }

  get(key: string, make: () => V): V {
    const known = this.#entries.get(key);
    if (known !== undefined || this.#entries.has(key)) {
      this.#hits++;
      this.#entries.delete(key);
      this.#entries.set(key, known as V);
      return known as V;
    }
    this.#misses++;
    const made = make();
    this.#entries.set(key, made);
    this.#evict();
    return made;
  }

  #evict(): void {
    const { entries, bytes = Number.POSITIVE_INFINITY } = this.options;
    // The newest stays, however large it is: the caller holds it anyway.
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

  clear(): void {
    this.#entries.clear();
    this.#hits = this.#misses = this.#evictions = 0;
  }

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

/** What every cache of weft/quantum holds and how often it hit, by name. */
export const cacheStats = (): Record<string, CacheStats> =>
  Object.fromEntries([...caches].map(([name, cache]) => [name, cache.stats()]));

/** Empties every cache and sets its counts to zero. */
export function clearCaches(): void {
  for (const cache of caches.values()) cache.clear();
}

/** A short key of anything that JSON can hold, typed arrays included. */
export function structureKey(...parts: readonly unknown[]): string {
  const text = JSON.stringify(parts, (_, value: unknown) =>
    ArrayBuffer.isView(value) ? Array.from(value as Float64Array) : value,
  );
  return createHash("sha256").update(text).digest("hex").slice(0, 32);
}
