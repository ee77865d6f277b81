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

/** Reads `rope_parameters`, or `rope_theta` and `rope_scaling` of older files. */
export function readRope(fields: Fields, size: number, maxPositions: number): Rope {
  const given = fields.object(fields.has("rope_parameters") ? "rope_parameters" : "rope_scaling");
  const kindField = given.has("rope_type") ? "rope_type" : "type";
  const kind = given.choice(kindField, kinds, "default");
  const source = given.has("rope_theta") ? given : fields;
  const theta = source.number("rope_theta", { otherwise: 10000, least: 1, most: 1e12 });
  const partial = given.number("partial_rotary_factor", { otherwise: 1, most: 1 });
  if (partial !== 1) throw given.error("partial_rotary_factor", `is ${partial}; only whole heads are rotated`);
  const scaled = kind !== "default";
  const factor = scaled ? given.number("factor", { least: 1e-3, most: 1e6 }) : 1;
  const all = given.number("mscale_all_dim", { otherwise: 0, most: 1e6 });
  const own = given.number("mscale", { otherwise: 0, most: 1e6 });
  const inferred = all !== 0 && own !== 0 ? mscale(factor, own) / mscale(factor, all) : mscale(factor);
  return {
    kind,
    theta,
    size,
    factor,
    original: given.count("original_max_position_embeddings", { otherwise: maxPositions }),
    lowFactor: given.number("low_freq_factor", { otherwise: 1, least: 1e-6 }),
    highFactor: given.number("high_freq_factor", { otherwise: 4, least: 1e-6 }),
    betaFast: given.number("beta_fast", { otherwise: 32, least: 1e-6 }),
    betaSlow: given.number("beta_slow", { otherwise: 1, least: 1e-6 }),
    truncate: given.flag("truncate", true),
    attention: kind === "yarn" ? given.number("attention_factor", { otherwise: inferred, most: 1e6 }) : 1,
  };
}

/** Inverse frequencies, rounded to float32 where the published implementations round. */
export function inverseFrequencies(rope: Rope, length: number): Float32Array {
  const { kind, size, factor, original } = rope;
  const grows = kind === "dynamic" && length > original;
  const theta = grows ? rope.theta * ((factor * length) / original - (factor - 1)) ** (size / (size - 2)) : rope.theta;
  const plain = Array.from({ length: size / 2 }, (_, i) =>
    Math.fround(1 / Math.fround(theta ** Math.fround((2 * i) / size))),
  );
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
export interface Rotation {
  cos: Tensor;
  sin: Tensor;
}

/**
 * The rotation of positions [length] or [batch, length].
 *
 * @param length - The longest context, on which `dynamic` scaling depends.
 */
export function rotationOf(rope: Rope, positions: Tensor, length: number): Rotation {
  const frequencies = tensor(inverseFrequencies(rope, length));
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
