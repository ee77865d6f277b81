// Counter-based random numbers: threefry2x32 with 20 rounds (Salmon, Moraes, Dror and Shaw, "Parallel random numbers:
// as easy as 1, 2, 3"). Element i of a draw depends on the key and i alone, so shards agree with the whole.
import { type DType, InternalError, numel, type OpAttrs } from "../../graph/index.js";
import { forEachIndex, fromReals, linearIndex, type ReferenceRules, type Value } from "./value.js";

const rotations = [13, 15, 26, 6, 17, 29, 16, 24];
const parity = 0x1bd11bda;

const rotateLeft = (x: number, by: number): number => (x << by) | (x >>> (32 - by));

/** Two words of 32 random bits (unsigned) for a key and a counter of two words each. */
export function threefry2x32(key0: number, key1: number, counter0: number, counter1: number): [number, number] {
  const keys = [key0, key1, parity ^ key0 ^ key1];
  let x0 = (counter0 + keys[0]) | 0;
  let x1 = (counter1 + keys[1]) | 0;
  for (let round = 0; round < 20; round++) {
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

/** Uniform in [0, 1). A half type gets no more bits than its fraction holds, or rounding would reach 1. */
const uniform: Partial<Record<DType, Sampler>> = {
  float32: (r0) => (r0 >>> 8) * 2 ** -24,
  float64: (r0, r1) => ((r0 >>> 5) * 2 ** 26 + (r1 >>> 6)) * 2 ** -53,
  bfloat16: (r0) => (r0 >>> 24) * 2 ** -8,
  float16: (r0) => (r0 >>> 21) * 2 ** -11,
};

const boxMuller = (u1: number, u2: number): number => Math.sqrt(-2 * Math.log(u1)) * Math.cos(2 * Math.PI * u2);

const normal32: Sampler = (r0, r1) => boxMuller(((r0 >>> 8) + 1) * 2 ** -24, (r1 >>> 8) * 2 ** -24);
const normal: Partial<Record<DType, Sampler>> = {
  float16: normal32,
  bfloat16: normal32,
  float32: normal32,
  float64: (r0, r1) => boxMuller((r0 + 1) * 2 ** -32, r1 * 2 ** -32),
};

const samplers: Record<OpAttrs["random"]["kind"], Partial<Record<DType, Sampler>>> = {
  bits: { int32: (r0) => r0 | 0 },
  uniform,
  normal,
};

function random(keys: Value, { kind, shape, dtype, within }: OpAttrs["random"]): Value {
  const sample = samplers[kind][dtype];
  if (!sample) throw new InternalError(`random ${kind} is not defined on ${dtype}`);
  const count = numel(shape);
  const counters: number[] = [];
  const start = within?.start ?? shape.map(() => 0);
  forEachIndex(shape, (index) => {
    counters.push(
      linearIndex(
        within?.shape ?? shape,
        index.map((at, axis) => at + start[axis]),
      ),
    );
  });
  const draws = numel(keys.shape) / 2;
  const numbers = new Float64Array(draws * count);
  for (let draw = 0; draw < draws; draw++) {
    const [key0, key1] = [Number(keys.data[2 * draw]), Number(keys.data[2 * draw + 1])];
    counters.forEach((counter, i) => {
      const [r0, r1] = threefry2x32(key0, key1, counter % 2 ** 32, Math.floor(counter / 2 ** 32));
      numbers[draw * count + i] = sample(r0, r1);
    });
  }
  return fromReals(dtype, [...keys.shape.slice(0, -1), ...shape], numbers);
}

export const randomRules: ReferenceRules<"random"> = {
  random: ([keys], { attrs }) => random(keys, attrs),
};
