// Compiled programs by structure: the same problem with the same settings is traced once per process.
import { type JitOptions, type Jitted, jit } from "@weft/core/internal/tensor";
import { BoundedCache } from "./cache.js";

// biome-ignore lint/suspicious/noExplicitAny: one cache holds functions of every signature.
type AnyFunction = (...args: any[]) => any;

const programs = new BoundedCache<Jitted<AnyFunction>>("programs", {
  entries: 64,
  bytes: 2 ** 30,
  sizeOf: (program) => program.scratchBytes,
});

/** The jitted form of a function. `key` must identify everything that the function closes over. */
export const cachedProgram = <F extends AnyFunction>(key: string, make: () => F, options: JitOptions = {}): Jitted<F> =>
  programs.get(key, () => jit(make(), options) as Jitted<AnyFunction>) as Jitted<F>;
