// Whether a C compiler can be trusted with generated loops: loops as the code generator writes them (native/self-test.c), with inputs and
// results that plain TypeScript computes. Small whole numbers throughout, so that every right compiler gives the same numbers.
import koffi from "koffi";
import { nativeSource } from "../native-source.js";

/** The length of the loops, as in the source: not a multiple of any vector length, so that loops have a remainder. */
const n = 1003;

const range = <T>(count: number, value: (i: number) => T): T[] => Array.from({ length: count }, (_, i) => value(i));

function inputs() {
  const parts = range(2 * n, (i) => ((i * 7 + 3) % 23) - 11);
  return {
    p: Float32Array.from(parts),
    d: Float64Array.from(parts),
    k: Int32Array.from(range(n, (i) => ((i * 389) % 1201) - 100)),
    t: Uint8Array.from(range(n, (i) => ((i * 5) % 3 === 0 ? 1 : 0))),
  };
}

/** What every loop gives, in the order of the source. */
function expected({ p, k, t }: ReturnType<typeof inputs>): number[] {
  const padded = range(n, (i) => {
    const inside = i >= 3 && i < n - 2;
    const [a, b] = inside ? [p[2 * (i - 3)], p[2 * (i - 3) + 1]] : [0, 0];
    return [a * 5 - b * 6, a * 6 + b * 5];
  }).flat();
  const flipped = range(n, (i) => {
    const [a, b, c, d] = [p[2 * i], p[2 * i + 1], p[2 * (n - 1 - i)], p[2 * (n - 1 - i) + 1]];
    return [a * c - b * d, a * d + b * c];
  }).flat();
  const sum = (value: (i: number) => number): number => range(n, value).reduce((a, b) => a + b, 0);
  const reduced = [
    sum((i) => p[i]),
    Math.max(...p.subarray(0, n)),
    0,
    sum((i) => p[2 * i]),
    sum((i) => p[2 * i + 1]),
    sum((i) => p[i] * p[i]),
    sum((i) => k[i] * 1000003),
  ];
  const integers = range(n, (i) => [Math.imul(k[i], 2147483), Math.abs(k[i]) * 4294967311, (k[i] * 3) & 255]).flat();
  return [
    ...padded,
    ...padded,
    ...flipped,
    ...range(Math.floor(n / 3), (i) => p[3 * i + 1] * 2 + p[i % 7]),
    ...reduced,
    ...integers,
    ...range(n, (i) => (t[i] === 1 ? p[i] : -p[i])),
    ...range(n, (i) => Number(p[i] < 4 && t[i] !== 0)),
    ...range(n, (i) => p[i] + k[i] * 0.5 + t[i]),
    ...range(n, (i) => p[Math.min(n - 1, Math.max(0, k[i]))] + 1),
    ...range(17, (c) => 2 * range(Math.floor(n / 17), (r) => p[r * 17 + c]).reduce((a, b) => a + b, 0) + 1),
    // 1 + 2^10 + 7 mod 4, in both precisions.
    ...[1028, 1028],
  ];
}

export const selfTestSource = (): string => nativeSource("cpu/native/self-test.c");

/** Runs the compiled loops; null where all results are right, else what differs. */
export function selfTestFailure(library: string): string | null {
  const run = koffi
    .load(library)
    .func(
      "void weft_self_test(const float* p, const double* d, const int32_t* k, const uint8_t* t, _Out_ double* q, _Out_ double* out)",
    );
  const given = inputs();
  const wanted = expected(given);
  const out = new Float64Array(wanted.length);
  run(given.p, given.d, given.k, given.t, new Float64Array(3 * n), out);
  const bad = wanted.findIndex((x, i) => x !== out[i]);
  return bad < 0 ? null : `number ${bad} of ${wanted.length} is ${out[bad]} instead of ${wanted[bad]}`;
}
