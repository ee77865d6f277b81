// The CUDA C that a generated program starts with: the parts of the prelude that it uses.
import { transcendentalFns } from "../../cost/index.js";
import { nativeSource } from "../native-source.js";

/** Parts of the prelude, and the programs that need them. */
const parts: readonly (readonly [file: string, needs: RegExp | null])[] = [
  ["cuda/native/prelude.cuh", null],
  ["native/complex.h", /\bw_c[a-z0-9]+_[fd]\b/],
  ["cuda/native/random.cuh", /W_THREEFRY|\bw_(bits|uniform|normal|dropout)/],
  ["cuda/native/join.cuh", /\bw_(join|tile)/],
  ["cuda/native/tile.cuh", /\bw_tile/],
  ["cuda/native/grid.cuh", /\bw_grid/],
  ["cuda/native/attention.cuh", /\bw_attention_(?!single)/],
  ["cuda/native/attention-single.cuh", /\bw_attention_single/],
];
export const preludeFiles = parts.map(([file]) => file);

/**
 * Functions of the math library: written out at each of hundreds of places, as in the gradient of a long chain,
 * they keep the compiler busy for minutes. A program that has a kernel with many of them calls them instead.
 */
const libraryCall = new RegExp(`\\bw_c?(?:${[...transcendentalFns, "sqrt"].join("|")})_[fd]\\(`, "g");
const manyCalls = 48;

/** The prelude without what the text does not use: most of NVRTC's time for a small program is reading it. */
export function preludeFor(text: string): string {
  const calls = text.split("__global__").map((kernel) => kernel.match(libraryCall)?.length ?? 0);
  const define = Math.max(...calls) > manyCalls ? "#define W_MANY_CALLS\n" : "";
  return (
    define + nativeSource(...parts.filter(([, needs]) => needs === null || needs.test(text)).map(([file]) => file))
  );
}
