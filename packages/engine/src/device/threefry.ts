// The rounds of the random numbers (threefry2x32, by key and element index) as C macros for every dialect, as
// ops/reference/random.ts has them in TypeScript. A dialect says how it rotates: `w_rotl(word, bits)`.
const fourRounds = (first: boolean): string =>
  (first ? [13, 15, 26, 6] : [17, 29, 16, 24]).map((bits) => `W_ROUND(${bits})`).join(" ");
const injections = ["k1, k2", "k2, k0", "k0, k1", "k1, k2", "k2, k0"];
const start = "uint32_t k2 = k0 ^ k1 ^ 0x1BD11BDAu, x0 = (uint32_t)i + k0, x1 = (uint32_t)(i >> 32) + k1;";

/** A macro that declares x0 and x1, the two words of block `i`, after so many groups of four rounds and what follows them. */
const rounds = (name: string, groups: number, last: string): string =>
  [
    `#define ${name}`,
    start,
    ...injections.slice(0, groups).map((keys, n) => `${fourRounds(n % 2 === 0)} W_INJECT(${keys}, ${n + 1}u)`),
    ...(last === "" ? [] : [last]),
  ].join(" \\\n  ");

/** W_THREEFRY: 20 rounds. W_THREEFRY13: 13, enough for dropout, with `w_kept`: is element n of its draw kept or not? */
export const threefryRounds = `#define W_ROUND(r) x0 += x1; x1 = w_rotl(x1, r) ^ x0;
#define W_INJECT(a, b, n) x0 += a; x1 += b + n;
${rounds("W_THREEFRY", 5, "")}
/* Dropout: 13 rounds, 16 bits an element, four elements a block. */
${rounds("W_THREEFRY13", 3, "W_ROUND(17)")}
W_INLINE int w_kept(uint32_t k0, uint32_t k1, uint64_t n, uint32_t threshold) {
  uint64_t i = n >> 2;
  W_THREEFRY13
  uint32_t word = n & 2 ? x1 : x0;
  return (n & 1 ? word >> 16 : word & 65535u) >= threshold;
}
`;
