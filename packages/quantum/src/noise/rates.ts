// Lindblad rates from noise spectra: pure dephasing through a filter function, relaxation through the qubit's line shape. The
// quadrature nodes do not depend on the spectrum, so that a batch of tasks is one product with the weights.
import { WeftError } from "@weft/core/internal/graph";
import { stack, type Tensor, tensor } from "@weft/core/internal/tensor";
import { BoundedCache } from "../cache/index.js";
import { type PsdModel, type PsdParameters, spectralDensity } from "./psd.js";
import { gaussLegendre, join, panels, type QuadratureRule, towardZero } from "./quadrature.js";

/** Control sequence that filters noise: free evolution, or evenly spaced pi pulses. */
export type PulseSequence = "ramsey" | "echo" | { cpmg: number };

const pulsesOf = (sequence: PulseSequence): number =>
  sequence === "ramsey" ? 0 : sequence === "echo" ? 1 : checkPulses(sequence.cpmg);

function checkPulses(count: number): number {
  if (!Number.isInteger(count) || count < 0)
    throw new WeftError(`filterFunction: cpmg must be a number of pulses >= 0, got ${count}`);
  return count;
}

/**
 * Filter function of a sequence: |Fourier transform of the switching function|^2 times w^2 at x = w T. It is 4 sin^2(x/2) for
 * free evolution and 16 sin^4(x/4) for an echo; all sequences use the same convention.
 */
export function filterFunction(sequence: PulseSequence, x: number): number {
  const pulses = pulsesOf(sequence);
  if (pulses === 0) return 4 * Math.sin(x / 2) ** 2;
  if (pulses === 1) return 16 * Math.sin(x / 4) ** 4;
  const last = pulses % 2 === 0 ? -1 : 1;
  let [re, im] = [1 + last * Math.cos(x), last * Math.sin(x)];
  for (let j = 1; j <= pulses; j++) {
    const sign = j % 2 === 0 ? 2 : -2;
    const phase = (x * (j - 0.5)) / pulses;
    re += sign * Math.cos(phase);
    im += sign * Math.sin(phase);
  }
  return re * re + im * im;
}

/** F(wT) / w^2. Its limit at w = 0 is T^2 for free evolution and 0 for sequences with pulses. */
function filterOverSquare(sequence: PulseSequence, w: number, duration: number): number {
  const x = w * duration;
  if (x < 1e-4) return pulsesOf(sequence) === 0 ? duration * duration * (1 - (x * x) / 12) : 0;
  return filterFunction(sequence, x) / (w * w);
}

/** Quadrature of the dephasing rate: rate = sum of weight * S(node). */
function dephasingRule(duration: number, sequence: PulseSequence): QuadratureRule {
  if (!(duration > 0 && Number.isFinite(duration)))
    throw new WeftError(`dephasingRate: duration must be above 0, got ${duration}`);
  const pulses = pulsesOf(sequence);
  const period = (2 * Math.PI * Math.max(1, pulses)) / duration;
  const periods = Math.max(40, Math.ceil(256 / Math.max(1, pulses)));
  // The first period is graded toward zero, where spectra vary fast.
  const near = panels([...towardZero(period, 44), period], 12);
  const far = panels(
    Array.from({ length: 2 * periods - 1 }, (_, k) => period * (1 + k / 2)),
    12 + 4 * Math.min(pulses, 16),
  );
  const exact = join(near, far);
  const weights = exact.weights.map(
    (weight, i) => (weight * filterOverSquare(sequence, exact.nodes[i], duration)) / (Math.PI * duration),
  );
  // In the tail the filter is replaced by its mean, 2 + 4 pulses; w = last / s maps the tail to (0, 1].
  const last = period * periods;
  const unit = gaussLegendre(16);
  const tail: QuadratureRule = { nodes: new Float64Array(16), weights: new Float64Array(16) };
  for (let i = 0; i < 16; i++) {
    const s = (1 + unit.nodes[i]) / 2;
    tail.nodes[i] = last / s;
    tail.weights[i] = ((unit.weights[i] / 2) * (2 + 4 * pulses)) / last / (Math.PI * duration);
  }
  return join({ nodes: exact.nodes, weights }, tail);
}

/** Quadrature of the overlap with a Lorentzian line of full width `width` at `frequency`, over all frequencies. */
function relaxationRule(frequency: number, width: number): QuadratureRule {
  if (!(width > 0 && Number.isFinite(width) && Number.isFinite(frequency)))
    throw new WeftError(`relaxationRate: lineWidth must be above 0 and frequency finite, got ${width}, ${frequency}`);
  const half = width / 2;
  const line = (w: number): number => half / ((w - frequency) ** 2 + half * half) / Math.PI;
  // Spectra are even, so both signs of w share a node. Panels are graded toward 0 and toward the line.
  const top = 4096 * (Math.abs(frequency) + width);
  const edges = new Set<number>([...towardZero(top, 60), top]);
  for (const side of [-1, 1])
    for (let distance = 0; distance < top; distance = distance === 0 ? width / 4 : distance * 1.5) {
      const edge = Math.abs(frequency) + side * distance;
      if (edge > 0 && edge < top) edges.add(edge);
    }
  const body = panels(
    [...edges].sort((a, b) => a - b),
    12,
  );
  const unit = gaussLegendre(16);
  const tail: QuadratureRule = { nodes: new Float64Array(16), weights: new Float64Array(16) };
  for (let i = 0; i < 16; i++) {
    const s = (1 + unit.nodes[i]) / 2;
    tail.nodes[i] = top / s;
    tail.weights[i] = ((unit.weights[i] / 2) * top) / (s * s);
  }
  const rule = join(body, tail);
  return { nodes: rule.nodes, weights: rule.weights.map((w, i) => w * (line(rule.nodes[i]) + line(-rule.nodes[i]))) };
}

/** Rules depend on the configuration, not on the task. */
const rules = new BoundedCache<QuadratureRule>("quadrature", {
  entries: 64,
  sizeOf: ({ nodes, weights }) => nodes.byteLength + weights.byteLength,
});

function integrate(rule: QuadratureRule, model: PsdModel, parameters: PsdParameters): Tensor {
  const { dtype } = parameters.amplitude;
  const nodes = tensor(rule.nodes).cast(dtype);
  const weights = tensor(rule.weights).cast(dtype);
  const spread = (t: Tensor): Tensor => t.unsqueeze(-1);
  const density = spectralDensity(model, nodes, {
    alpha: spread(parameters.alpha),
    amplitude: spread(parameters.amplitude),
    cutoff: spread(parameters.cutoff),
  });
  return density.mul(weights).sum(-1);
}

/** Options of `lindbladRates`. @inline */
export interface RateOptions {
  /** Duration of the exposure to noise. */
  duration: number;
  /** Pulse sequence during which the qubit dephases. */
  sequence?: PulseSequence;
  /** Angular frequency of the qubit, for relaxation. */
  frequency: number;
  /** Full line width of the qubit, for relaxation. */
  lineWidth: number;
}

/** Pure dephasing rate (1 / pi T) integral of S(w) F(wT) / w^2 over w >= 0. */
export const dephasingRate = (
  model: PsdModel,
  parameters: PsdParameters,
  options: Pick<RateOptions, "duration" | "sequence">,
): Tensor => {
  const { duration, sequence = "ramsey" } = options;
  const key = `d ${duration} ${JSON.stringify(sequence)}`;
  return integrate(
    rules.get(key, () => dephasingRule(duration, sequence)),
    model,
    parameters,
  );
};

/** Relaxation rate: the spectrum averaged over the qubit's Lorentzian line. */
export const relaxationRate = (
  model: PsdModel,
  parameters: PsdParameters,
  options: Pick<RateOptions, "frequency" | "lineWidth">,
): Tensor =>
  integrate(
    rules.get(`r ${options.frequency} ${options.lineWidth}`, () =>
      relaxationRule(options.frequency, options.lineWidth),
    ),
    model,
    parameters,
  );

/** Dephasing and relaxation rates [..., 2] of a qubit under a noise spectrum. */
export const lindbladRates = (model: PsdModel, parameters: PsdParameters, options: RateOptions): Tensor =>
  stack([dephasingRate(model, parameters, options), relaxationRate(model, parameters, options)], -1);

/** Throws if a rate is negative or not finite, with the index of the element. */
export function checkRates(rates: Tensor, what = "rates"): void {
  const values = rates.dataSync() as ArrayLike<number>;
  for (let i = 0; i < values.length; i++)
    if (!(values[i] >= 0 && values[i] < Number.POSITIVE_INFINITY))
      throw new WeftError(
        `${what}: element ${i} is ${values[i]}; a Lindblad rate is a finite number >= 0 ` +
          "(a negative rate is not a physical channel: check the spectrum's amplitude and cutoff)",
      );
}
