// Distributions of noise environments (tasks). Samples come from counter-based random numbers: the same key gives the same tasks
// on every device and inside compiled programs.
import { WeftError } from "@weft/core/internal/graph";
import { argmax, type Key, rand, randn, splitKey, stack, type Tensor, zeros } from "@weft/core/internal/tensor";
import { checkModel, type PsdModel } from "./psd.js";
import { lindbladRates, type RateOptions } from "./rates.js";

/** Probability distribution of one number. */
export type RandomLaw =
  | { law: "fixed"; value: number }
  | { law: "uniform" | "logUniform"; low: number; high: number }
  | { law: "normal"; mean: number; std: number; low?: number }
  | { law: "gamma"; shape: number; scale: number };

type LawOf<K extends RandomLaw["law"]> = Extract<RandomLaw, { law: K }>;
type Draw<L> = (law: L, key: Key, count: number) => Tensor;

/** Candidates per gamma sample. Each is accepted with probability above 0.95, so all fail about once in 1e20 samples. */
const gammaTries = 16;

/** Marsaglia and Tsang's method: d (1 + c x)^3 of a normal x, accepted by a uniform number; the first accepted one is used. */
function drawGamma({ shape, scale }: LawOf<"gamma">, key: Key, count: number): Tensor {
  const keys = splitKey(key, 3);
  const d = Math.max(shape, shape + (shape < 1 ? 1 : 0)) - 1 / 3;
  const c = 1 / Math.sqrt(9 * d);
  const x = randn([count, gammaTries], { key: keys.index(0), dtype: "float64" });
  const u = rand([count, gammaTries], { key: keys.index(1), dtype: "float64" });
  const v = x.mul(c).add(1).pow(3);
  const positive = v.maximum(1e-300);
  const bound = x.square().mul(0.5).add(d).sub(positive.mul(d)).add(positive.log().mul(d));
  const accepted = v.greater(0).logicalAnd(u.maximum(1e-300).log().less(bound));
  const first = argmax(accepted.cast("int32"), 1, { keepDims: true });
  const drawn = v.gather(first, 1).squeeze(1).mul(d);
  if (shape >= 1) return drawn.mul(scale);
  // A shape below 1: a sample at shape + 1 times u^(1 / shape).
  const power = rand([count], { key: keys.index(2), dtype: "float64" }).pow(1 / shape);
  return drawn.mul(power).mul(scale);
}

const draws: { [K in RandomLaw["law"]]: Draw<LawOf<K>> } = {
  fixed: ({ value }, _key, count) => zeros([count], { dtype: "float64" }).add(value),
  uniform: ({ low, high }, key, count) => rand([count], { key, low, high, dtype: "float64" }),
  logUniform: ({ low, high }, key, count) =>
    rand([count], { key, low: Math.log(low), high: Math.log(high), dtype: "float64" }).exp(),
  normal: ({ mean, std, low = Number.NEGATIVE_INFINITY }, key, count) => {
    const drawn = randn([count], { key, mean, std, dtype: "float64" });
    return Number.isFinite(low) ? drawn.maximum(low) : drawn;
  },
  gamma: drawGamma,
};

const finite = (x: unknown): x is number => typeof x === "number" && Number.isFinite(x);

/** Error message for invalid parameters of a law, or null. */
const complaints: { [K in RandomLaw["law"]]: (law: LawOf<K>) => string | null } = {
  fixed: ({ value }) => (finite(value) ? null : "value must be a number"),
  uniform: ({ low, high }) => (finite(low) && finite(high) && low <= high ? null : "needs numbers low <= high"),
  logUniform: ({ low, high }) =>
    finite(low) && finite(high) && low > 0 && low <= high ? null : "needs 0 < low <= high",
  normal: ({ mean, std }) => (finite(mean) && finite(std) && std >= 0 ? null : "needs a mean and std >= 0"),
  gamma: ({ shape, scale }) =>
    finite(shape) && finite(scale) && shape > 0 && scale > 0 ? null : "needs shape and scale above 0",
};

/** Lower end of a law's support. */
const lowest: { [K in RandomLaw["law"]]: (law: LawOf<K>) => number } = {
  fixed: ({ value }) => value,
  uniform: ({ low }) => low,
  logUniform: ({ low }) => low,
  normal: ({ low, std, mean }) => (std === 0 ? mean : (low ?? Number.NEGATIVE_INFINITY)),
  gamma: () => 0,
};

function checkLaw(name: string, law: RandomLaw): void {
  if (!Object.hasOwn(draws, law?.law))
    throw new WeftError(`tasks: ${name} has the law "${law?.law}"; known: ${Object.keys(draws).join(", ")}`);
  const complaint = (complaints[law.law] as (law: RandomLaw) => string | null)(law);
  if (complaint !== null) throw new WeftError(`tasks: ${name} (${law.law}): ${complaint}, got ${JSON.stringify(law)}`);
  const low = (lowest[law.law] as (law: RandomLaw) => number)(law);
  if (low < 0)
    throw new WeftError(
      `tasks: ${name} can become negative (${JSON.stringify(law)}); rates, amplitudes and cutoffs must not: ` +
        (law.law === "normal" ? "give it low: 0" : "raise its low end"),
    );
}

/** Distribution of noise environments, given by Lindblad rates or by the parameters of a spectrum. */
export type TaskDistribution =
  | { kind: "rates"; dephasing: RandomLaw; relaxation: RandomLaw }
  | { kind: "psd"; model: PsdModel; alpha: RandomLaw; amplitude: RandomLaw; cutoff: RandomLaw; rates: RateOptions };

const lawsOf = (d: TaskDistribution): Record<string, RandomLaw> =>
  d.kind === "rates"
    ? { dephasing: d.dephasing, relaxation: d.relaxation }
    : { alpha: d.alpha, amplitude: d.amplitude, cutoff: d.cutoff };

/** A batch of noise environments. */
export interface Tasks {
  /** `[count, 2]`: dephasing and relaxation rates. */
  rates: Tensor;
  /** `[count, 3]`: inputs of the policy. */
  features: Tensor;
}

/** The published range of dephasing and relaxation rates ("gamma" tasks), for pulses of length 1. */
export const gammaTasks: TaskDistribution = {
  kind: "rates",
  dephasing: { law: "uniform", low: 0.02, high: 0.15 },
  relaxation: { law: "uniform", low: 0.01, high: 0.08 },
};

/** Throws if a distribution is invalid or can give negative rates. */
export function checkDistribution(distribution: TaskDistribution): void {
  if (distribution?.kind !== "rates" && distribution?.kind !== "psd")
    throw new WeftError(
      `tasks: kind must be "rates" or "psd", got ${JSON.stringify((distribution as TaskDistribution | undefined)?.kind)}`,
    );
  if (distribution.kind === "psd") checkModel(distribution.model);
  for (const [name, law] of Object.entries(lawsOf(distribution))) checkLaw(name, law);
}

const drawLaw = (law: RandomLaw, key: Key, count: number): Tensor =>
  (draws[law.law] as Draw<RandomLaw>)(law, key, count);

/** Position of values in the range of their law, in [0, 1]. */
function scaled(values: Tensor, law: RandomLaw): Tensor {
  if (law.law !== "uniform" && law.law !== "logUniform") return values;
  if (law.high === law.low) return values.mul(0);
  if (law.law === "uniform") return values.sub(law.low).div(law.high - law.low);
  return values
    .log()
    .sub(Math.log(law.low))
    .div(Math.log(law.high / law.low));
}

/** Inputs of a policy [..., 3] from rates [..., 2]. */
export function rateFeatures(rates: Tensor): Tensor {
  const [dephasing, relaxation] = [rates.index("...", 0), rates.index("...", 1)];
  return stack([dephasing.div(0.1), relaxation.div(0.05), dephasing.add(relaxation).div(0.15)], -1);
}

/**
 * Samples noise environments, in float64.
 *
 * @param key - Random key; equal keys give equal tasks.
 *
 * @example
 * ```ts
 * import { key } from "@weft/core";
 * import { drawTasks, gammaTasks } from "@weft/quantum";
 *
 * const { rates } = drawTasks(gammaTasks, key(1), 4);
 * console.log(rates.shape, rates.arraySync()); // [4, 2] dephasing and relaxation rates
 * ```
 */
export function drawTasks(distribution: TaskDistribution, key: Key, count: number): Tasks {
  checkDistribution(distribution);
  if (!Number.isInteger(count) || count < 1) throw new WeftError(`tasks: count must be at least 1, got ${count}`);
  const laws = Object.values(lawsOf(distribution));
  const keys = splitKey(key, laws.length);
  const drawn = laws.map((law, i) => drawLaw(law, keys.index(i), count));
  if (distribution.kind === "rates") {
    const rates = stack(drawn, -1);
    return { rates, features: rateFeatures(rates) };
  }
  const [alpha, amplitude, cutoff] = drawn;
  return {
    rates: lindbladRates(distribution.model, { alpha, amplitude, cutoff }, distribution.rates),
    features: stack(
      laws.map((law, i) => scaled(drawn[i], law)),
      -1,
    ),
  };
}
