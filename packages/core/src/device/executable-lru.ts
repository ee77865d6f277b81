// Ownership of executables: a cache of the most recently used ones, and counted handles for those that hold one longer.
// An executable is released when it has left the cache and its last holder has released it.
import { WeftError } from "../graph/index.js";
import type { Executable } from "./contract.js";

/** State of an executable's own resources: usable, then released once. */
export class Lifetime {
  #released = false;
  readonly #free: () => void;

  constructor(free: () => void = () => {}) {
    this.#free = free;
  }

  get isReleased(): boolean {
    return this.#released;
  }

  /** Throws when the executable was released. */
  check(): void {
    if (this.#released)
      throw new WeftError("this executable was released and its code is unloaded; compile the function again");
  }

  /** Frees the resources; a second call does nothing. */
  release(): void {
    if (this.#released) return;
    this.#released = true;
    this.#free();
  }
}

/** An executable with what its owner stores beside it. */
export interface CachedExecutable {
  /** The program. */
  readonly executable: Executable;
}

/** A counted reference to a cached value. The executable stays loaded at least until `release` is called. */
export interface ExecutableHandle<T> {
  /** The program, which stays loaded until `release`. */
  readonly value: T;
  /** Allows the program to be evicted. */
  release(): void;
}

interface Entry<T> {
  readonly value: T;
  holders: number;
  cached: boolean;
}

export class ExecutableLru<T extends CachedExecutable> {
  readonly #entries = new Map<string, Entry<T>>();

  /** @param limit Number of executables that stay loaded without a holder. */
  constructor(readonly limit: number) {}

  get size(): number {
    return this.#entries.size;
  }

  has(key: string): boolean {
    return this.#entries.has(key);
  }

  /** The value of a key, without a change to the order of use; undefined if it is missing. */
  peek(key: string): T | undefined {
    return this.#entries.get(key)?.value;
  }

  /** The value of a key, created by `make` when it is missing. It becomes the most recently used entry. */
  acquire(key: string, make: () => T): ExecutableHandle<T> {
    let entry = this.#entries.get(key);
    if (entry === undefined) entry = { value: make(), holders: 0, cached: true };
    else this.#entries.delete(key);
    entry.holders++;
    this.#entries.set(key, entry);
    if (this.#entries.size > this.limit) this.#evict(this.#entries.keys().next().value!);
    return this.#handle(entry);
  }

  /** Drops every entry; those without a holder are released now, the others by their last holder. */
  clear(): void {
    for (const key of [...this.#entries.keys()]) this.#evict(key);
  }

  #evict(key: string): void {
    const entry = this.#entries.get(key)!;
    this.#entries.delete(key);
    entry.cached = false;
    if (entry.holders === 0) entry.value.executable.release();
  }

  #handle(entry: Entry<T>): ExecutableHandle<T> {
    let held = true;
    return {
      value: entry.value,
      release: () => {
        if (!held) return;
        held = false;
        if (--entry.holders === 0 && !entry.cached) entry.value.executable.release();
      },
    };
  }
}
