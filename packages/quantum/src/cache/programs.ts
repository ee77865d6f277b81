// Compiled programs by structure: the same problem with the same settings is traced once, whoever asks.
import { type JitOptions, type Jitted, jit } from "@weft/core/internal/tensor";
import { BoundedCache } from "./cache.js";

// biome-ignore lint/suspicious/noExplicitAny: functions of every signature are kept side by side.
type AnyFunction = (...args: any[]) => any;

const programs = new BoundedCache<Jitted<AnyFunction>>("programs", {
  entries: 64,
  bytes: 2 ** 30,
  sizeOf: (program) => program.scratchBytes,
});

/** The compiled form of a function; `key` must say everything that the function closes over. */
export const cachedProgram = <F extends AnyFunction>(key: string, make: () => F, options: JitOptions = {}): Jitted<F> =>
  programs.get(key, () => jit(make(), options) as Jitted<AnyFunction>) as Jitted<F>;
