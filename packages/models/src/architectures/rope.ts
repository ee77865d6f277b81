// Rotary position embeddings, and the ways to extend them to longer contexts than a model was trained on.
import { concat, cos, sin, type Tensor, tensor } from "@weft/core";
import type { Fields } from "../config/index.js";

/** Kinds of scaling that are implemented. */
const kinds = ["default", "linear", "dynamic", "llama3", "yarn"] as const;

/** Settings of rotary embeddings. */
export interface Rope {
  readonly kind: (typeof kinds)[number];
  readonly theta: number;
  readonly size: number;
  readonly factor: number;
  /** Positions that the model was trained on before scaling. */
  readonly original: number;
  readonly lowFactor: number;
  readonly highFactor: number;
  readonly betaFast: number;
  readonly betaSlow: number;
  readonly truncate: boolean;
  /** Factor of sines and cosines. */
  readonly attention: number;
}

const mscale = (factor: number, by = 1): number => (factor <= 1 ? 1 : 0.1 * by * Math.log(factor) + 1);

/** Reads `rope_parameters`, or `rope_theta` and `rope_scaling` of older files, which come first where a file has both. */
export function readRope(fields: Fields, size: number, maxPositions: number): Rope {
  const [older, newer] = [fields.object("rope_scaling"), fields.object("rope_parameters")];
  const given = Object.keys(older.raw).length > 0 ? older : newer;
  for (const [name, value] of Object.entries(given.raw))
    if (typeof value === "object" && value !== null && !Array.isArray(value))
      throw given.error(name, "is an object; positions that differ by layer are not supported");
  const kindField = given.has("rope_type") ? "rope_type" : "type";
  const kind = given.choice(kindField, kinds, "default");
  const theta = given.number("rope_theta", {
    otherwise: fields.number("rope_theta", { otherwise: 10000, least: 1, most: 1e12 }),
    least: 1,
    most: 1e12,
  });
  for (const source of [given, fields]) {
    const partial = source.number("partial_rotary_factor", { otherwise: 1, most: 1 });
    if (partial !== 1) throw source.error("partial_rotary_factor", `is ${partial}; only whole heads are rotated`);
  }
  const inner = given.count("original_max_position_embeddings", { otherwise: maxPositions });
  const outer = fields.count("original_max_position_embeddings", { otherwise: inner });
  // Dynamic scaling starts at the positions of the model, whatever else the file says.
  const original = kind === "dynamic" ? maxPositions : outer;
  const scaled = kind !== "default";
  const inferredFactor = kind === "yarn" && original < maxPositions ? { otherwise: maxPositions / original } : {};
  const factor = scaled ? given.number("factor", { ...inferredFactor, least: 1e-3, most: 1e6 }) : 1;
  const positive = (name: string, otherwise: number): number =>
    given.raw[name] === 0 ? otherwise : given.number(name, { otherwise, least: 1e-6 });
  const all = given.number("mscale_all_dim", { otherwise: 0, most: 1e6 });
  const own = given.number("mscale", { otherwise: 0, most: 1e6 });
  const inferred = all !== 0 && own !== 0 ? mscale(factor, own) / mscale(factor, all) : mscale(factor);
  return {
    kind,
    theta,
    size,
    factor,
    original,
    lowFactor: given.number("low_freq_factor", { ...(kind !== "llama3" && { otherwise: 1 }), least: 1e-6 }),
    highFactor: given.number("high_freq_factor", { ...(kind !== "llama3" && { otherwise: 4 }), least: 1e-6 }),
    betaFast: positive("beta_fast", 32),
    betaSlow: positive("beta_slow", 1),
    truncate: given.flag("truncate", true),
    attention: kind === "yarn" ? given.number("attention_factor", { otherwise: inferred, most: 1e6 }) : 1,
  };
}

const exponents = (size: number): number[] => Array.from({ length: size / 2 }, (_, i) => Math.fround((2 * i) / size));

/** Inverse frequencies, rounded to float32 where the published implementations round. */
function inverseFrequencies(rope: Rope): Float32Array {
  const { kind, size, factor, original, theta } = rope;
  const plain = exponents(size).map((exponent) => Math.fround(1 / Math.fround(theta ** exponent)));
  if (kind === "linear") return Float32Array.from(plain, (f) => f / factor);
  if (kind === "llama3") return Float32Array.from(plain, (f) => llama3(rope, f));
  if (kind === "yarn") {
    // The dimension that turns so many times within the original context.
    const turning = (turns: number): number =>
      (size * Math.log(original / (turns * 2 * Math.PI))) / (2 * Math.log(rope.theta));
    const rounded = (x: number, round: (x: number) => number): number => (rope.truncate ? round(x) : x);
    const low = Math.max(rounded(turning(rope.betaFast), Math.floor), 0);
    const high = Math.min(rounded(turning(rope.betaSlow), Math.ceil), size - 1);
    const span = high === low ? 0.001 : high - low;
    return Float32Array.from(plain, (f, i) => {
      const interpolated = Math.min(Math.max((i - low) / span, 0), 1);
      return (f / factor) * interpolated + f * (1 - interpolated);
    });
  }
  return Float32Array.from(plain);
}

function llama3({ factor, original, lowFactor, highFactor }: Rope, frequency: number): number {
  const wavelength = (2 * Math.PI) / frequency;
  if (wavelength < original / highFactor) return frequency;
  if (wavelength > original / lowFactor) return frequency / factor;
  const smooth = (original / wavelength - lowFactor) / (highFactor - lowFactor);
  return ((1 - smooth) * frequency) / factor + smooth * frequency;
}

/** Cosines and sines that broadcast to [batch, heads, length, size / 2]. */
interface Rotation {
  cos: Tensor;
  sin: Tensor;
}

/** Inverse frequencies of `dynamic` scaling, which depend on the largest position. */
function dynamicFrequencies({ size, factor, original, theta }: Rope, positions: Tensor): Tensor {
  const reached = positions.max().add(1).cast("float32").maximum(original);
  const base = reached
    .mul(factor / original)
    .sub(factor - 1)
    .pow(size / (size - 2))
    .mul(theta);
  return base
    .log()
    .neg()
    .mul(tensor(Float32Array.from(exponents(size))))
    .exp();
}

/** The rotation of positions [length] or [batch, length]. */
export function rotationOf(rope: Rope, positions: Tensor): Rotation {
  const frequencies = rope.kind === "dynamic" ? dynamicFrequencies(rope, positions) : tensor(inverseFrequencies(rope));
  const angles = positions.cast("float32").unsqueeze(-1).mul(frequencies);
  const placed = positions.rank === 1 ? angles : angles.unsqueeze(1);
  return { cos: cos(placed).mul(rope.attention), sin: sin(placed).mul(rope.attention) };
}

/** Rotates [batch, heads, length, size]; a pair is an element of the first half of a head and its partner in the second. */
export function rotate(x: Tensor, rotation: Rotation): Tensor {
  const half = x.shape[3] / 2;
  const [c, s] = [rotation.cos.cast(x.dtype), rotation.sin.cast(x.dtype)];
  const [a, b] = [x.index("...", `0:${half}`), x.index("...", `${half}:`)];
  return concat([a.mul(c).sub(b.mul(s)), b.mul(c).add(a.mul(s))], -1);
}
