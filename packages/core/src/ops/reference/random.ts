// Counter-based random numbers: threefry2x32 (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3").
// Element i of a draw depends on the key and i alone, so shards agree with the whole. Bits and float64 take a block of 20
// rounds per element; the other floats share a block of 13 rounds by two, elements of dropout by four: see docs/decisions.md.
import { type DType, InternalError, numel, type OpAttrs, type Shape } from "../../graph/index.js";
import { normal32, normal64 } from "./normal.js";
import { forEachIndex, fromReals, linearIndex, type ReferenceRules, type Value } from "./value.js";

const rotations = [13, 15, 26, 6, 17, 29, 16, 24];
const parity = 0x1bd11bda;

const rotateLeft = (x: number, by: number): number => (x << by) | (x >>> (32 - by));

/** Two words of 32 random bits (unsigned) for a key and a counter of two words each. */
export function threefry2x32(
  key0: number,
  key1: number,
  counter0: number,
  counter1: number,
  rounds = 20,
): [number, number] {
  const keys = [key0, key1, parity ^ key0 ^ key1];
  let x0 = (counter0 + keys[0]) | 0;
  let x1 = (counter1 + keys[1]) | 0;
  for (let round = 0; round < rounds; round++) {
    x0 = (x0 + x1) | 0;
    x1 = rotateLeft(x1, rotations[round % 8]) ^ x0;
    if (round % 4 === 3) {
      const injection = (round + 1) / 4;
      x0 = (x0 + keys[injection % 3]) | 0;
      x1 = (x1 + keys[(injection + 1) % 3] + injection) | 0;
    }
  }
  return [x0 >>> 0, x1 >>> 0];
}

type Sampler = (r0: number, r1: number) => number;

/** Number of dropped values out of 65536 at a rate; below 65536, so that something remains. */
export const droppedOf = (rate: number): number => Math.min(65535, Math.round(rate * 65536));

/** Scale of the elements that dropout keeps: the inverse of their rounded probability. */
export const keptScale = (rate: number): number => 65536 / (65536 - droppedOf(rate));

/** Rounds of dropout and of single precision: the minimum that passes all tests of the authors. */
const fewRounds = 13;
/** Three quarters of a turn, which make a sine of a cosine. */
const quarter = 0xc0000000;

/** Four neighbors in a row share a block of 64 bits, 16 bits each, the lowest first; every row starts a new block. */
function keptAt(key0: number, key1: number, at: number, threshold: number): number {
  const block = Math.floor(at / 4);
  const words = threefry2x32(key0, key1, block % 2 ** 32, Math.floor(block / 2 ** 32), fewRounds);
  const word = words[(at % 4) >> 1];
  return Number((at % 2 === 0 ? word & 65535 : word >>> 16) >= threshold);
}

/** Uniform in [0, 1). Half types use only as many bits as their mantissa holds, because rounding would reach 1. */
const uniform: Partial<Record<DType, Sampler>> = {
  float32: (r0) => (r0 >>> 8) * 2 ** -24,
  float64: (r0, r1) => ((r0 >>> 5) * 2 ** 26 + (r1 >>> 6)) * 2 ** -53,
  bfloat16: (r0) => (r0 >>> 24) * 2 ** -8,
  float16: (r0) => (r0 >>> 21) * 2 ** -11,
};

const normal: Partial<Record<DType, Sampler>> = {
  float16: normal32,
  bfloat16: normal32,
  float32: normal32,
  float64: normal64,
};

const samplers: Record<Exclude<OpAttrs["random"]["kind"], "dropoutMask">, Partial<Record<DType, Sampler>>> = {
  bits: { int32: (r0) => r0 | 0 },
  uniform,
  normal,
};

/** The words of an element: its own block, or a block that it shares with a neighbor (r0 is then all that uniform numbers take). */
function wordsAt(key0: number, key1: number, at: number, kind: string, dtype: DType): [number, number] {
  const isShared = kind !== "bits" && dtype !== "float64";
  const block = isShared ? Math.floor(at / 2) : at;
  const [low, high] = [block % 2 ** 32, Math.floor(block / 2 ** 32)];
  const [r0, r1] = threefry2x32(key0, key1, low, high, isShared ? fewRounds : 20);
  if (!isShared || at % 2 === 0) return [r0, r1];
  return kind === "uniform" ? [r1, r0] : [r0, (r1 + quarter) >>> 0];
}

/** Numbering of the elements of a draw: as in a tensor of this shape, starting at this index. */
export function numbering({ kind, shape, within }: OpAttrs["random"]): { shape: Shape; start: readonly number[] } {
  const { shape: whole, start } = within ?? { shape, start: shape.map(() => 0) };
  const last = whole.length - 1;
  // Rows are rounded up to whole blocks.
  return { shape: whole.map((n, i) => (kind === "dropoutMask" && i === last ? Math.ceil(n / 4) * 4 : n)), start };
}

function random(keys: Value, attrs: OpAttrs["random"]): Value {
  const { kind, shape, dtype, threshold = 0 } = attrs;
  const sample = kind === "dropoutMask" ? null : samplers[kind][dtype];
  if (sample === undefined) throw new InternalError(`random ${kind} is not defined on ${dtype}`);
  const { shape: counted, start } = numbering(attrs);
  const count = numel(shape);
  const counters: number[] = [];
  forEachIndex(shape, (index) => {
    counters.push(
      linearIndex(
        counted,
        index.map((at, axis) => at + start[axis]),
      ),
    );
  });
  const draws = numel(keys.shape) / 2;
  const numbers = new Float64Array(draws * count);
  for (let draw = 0; draw < draws; draw++) {
    const [key0, key1] = [Number(keys.data[2 * draw]), Number(keys.data[2 * draw + 1])];
    counters.forEach((counter, i) => {
      if (sample === null) {
        numbers[draw * count + i] = keptAt(key0, key1, counter, threshold);
        return;
      }
      numbers[draw * count + i] = sample(...wordsAt(key0, key1, counter, kind, dtype));
    });
  }
  return fromReals(dtype, [...keys.shape.slice(0, -1), ...shape], numbers);
}

export const randomRules: ReferenceRules<"random"> = { random: ([keys], { attrs }) => random(keys, attrs) };
