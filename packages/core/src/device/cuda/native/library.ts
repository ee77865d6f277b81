// CUDA kernels for ops that are not loops over independent elements: running sums, sorting, scattered additions, and the
// pointer tables of batched products. Deterministic.
import { radixKernels } from "./radix.js";
import { scanKernels } from "./scan.js";
import { scatterKernels } from "./scatter.js";

const common = String.raw`
template <class T> struct w_number { typedef T sum; W_INLINE T load(T x) { return x; } W_INLINE T store(T x) { return x; } };
struct w_half_number { typedef float sum; W_INLINE float load(w_half x) { return w_from_half(x); } W_INLINE w_half store(float x) { return w_to_half(x); } };
struct w_bfloat_number { typedef float sum; W_INLINE float load(w_bfloat x) { return w_from_bfloat(x); } W_INLINE w_bfloat store(float x) { return w_to_bfloat(x); } };
struct w_float_number { typedef double sum; W_INLINE double load(float x) { return x; } W_INLINE float store(double x) { return (float)x; } };

`;

const pointerKernels = String.raw`
/* Pointers of a batched product whose batch has several axes. shape: rank, then (size, a, b, c byte strides) an axis. */
struct w_batch { long long rank, size[8], a[8], b[8], c[8]; };
extern "C" __global__ void w_pointers(char* a, char* b, char* c, void** out, long long count, w_batch batch) {
  long long i = (long long)blockIdx.x * 256 + threadIdx.x;
  if (i >= count) return;
  long long at = i;
  for (int d = (int)batch.rank - 1; d >= 0; d--) {
    long long k = at % batch.size[d];
    at /= batch.size[d];
    a += k * batch.a[d]; b += k * batch.b[d]; c += k * batch.c[d];
  }
  out[i] = a; out[count + i] = b; out[2 * count + i] = c;
}
`;

const families: Record<string, string> = {
  scan: scanKernels,
  scatter: scatterKernels,
  sort: radixKernels,
  pointers: pointerKernels,
};

/** All kernels, for tests. */
export const libraryKernels = common + Object.values(families).join("");

/** A use of a macro that defines the kernels of one dtype. */
const perType = /^W_[A-Z]+\((\w+), .*\n/gm;

/**
 * The module of a kernel and its source: its family, for its dtype alone where its name ends in one. NVRTC takes seconds for
 * all of them.
 */
export function libraryModule(kernel: string): { key: string; source: string } {
  const [, family] = kernel.split("_");
  const text = families[family];
  const types = new Set([...text.matchAll(perType)].map(([, type]) => type));
  const last = kernel.slice(kernel.lastIndexOf("_") + 1);
  const type = types.has(last) ? last : "";
  const source = text.replace(perType, (line, name: string) => (name === type ? line : ""));
  return { key: `${family} ${type}`, source: common + source };
}
