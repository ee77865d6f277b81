// The modules of kernels that are written by hand: which file a kernel is in, and its source for one dtype alone, because NVRTC
// takes seconds for all of them.
import { nativeSource } from "../native-source.js";

/** Files by the word that follows `w_` in the names of their kernels. */
const families: Record<string, string> = {
  scan: "cuda/native/scan.cu",
  sort: "cuda/native/sort.cu",
  bitonic: "cuda/native/sort-short.cu",
  topk: "cuda/native/topk.cu",
  scatter: "cuda/native/scatter.cu",
  product: "cuda/native/scatter.cu",
  extreme: "cuda/native/extreme.cu",
  depthwise: "cuda/native/depthwise.cu",
  update: "cuda/native/update.cu",
  vector: "cuda/native/vector.cu",
  skinny: "cuda/native/skinny.cu",
  pointers: "cuda/native/pointers.cu",
  small: "cuda/native/linalg-small.cu",
};
/** All others are the kernels around the solver libraries. */
const solverFile = "cuda/native/linalg.cu";
export const libraryFiles = [...new Set(Object.values(families)), solverFile];

/** A use of a macro that defines the kernels of one dtype. */
const perType = /^W_[A-Z]+\((\w+), .*\n/gm;

/** The module of a kernel and its source. Kernels whose names end in a dtype are in one module per dtype. */
export function libraryModule(kernel: string): { key: string; source: string } {
  const file = families[kernel.split("_")[1]] ?? solverFile;
  const text = nativeSource(file);
  const types = new Set([...text.matchAll(perType)].map(([, type]) => type));
  const last = kernel.slice(kernel.lastIndexOf("_") + 1);
  const type = types.has(last) ? last : "";
  const source = text.replace(perType, (line, name: string) => (name === type ? line : ""));
  return { key: `${file} ${type}`, source };
}
