// Choice of integration steps from dt or from an error tolerance. The error is estimated on given pulses by step halving.
// Fidelities outside [0, 1] are errors.
import { type DType, WeftError } from "@weft/core/internal/graph";
import { type Tensor, tensor, vmap } from "@weft/core/internal/tensor";
import { cachedProgram } from "../cache/index.js";
import { controlInfidelity, type PreparedProblem, type SegmentSteps, type StepMethod, stepMethods } from "./open.js";

/** Integration settings: dt, or a tolerance of the fidelity. */
export type Integration = { method?: StepMethod; precision?: "float32" | "float64" } & (
  | { dt: number }
  | { tolerance: number }
);

/** Pulses [n, segments, operators] and rates [n, channels] for error estimates. */
export interface Probes {
  /** Pulses to estimate the error with. */
  controls: Tensor;
  /** Rates to estimate the error with. */
  rates: Tensor;
}

/** Integration steps with their estimated error. */
export interface ChosenSteps extends SegmentSteps {
  /** Precision of the evolution. */
  precision: "float32" | "float64";
  /** The requested setting, as text. */
  asked: string;
  /** Length of a step. */
  dt: number;
  /** Number of steps of one evolution. */
  steps: number;
  /** Largest estimated error of the fidelity over the probes, without rounding. */
  error: number;
  /** What is doubtful about the choice. */
  warnings: string[];
}

/** Largest number of steps per segment before a tolerance counts as unreachable. */
const maxStepsPerSegment = 4096;
/** Estimated errors above this cause a warning. */
const warningThreshold = 1e-4;

const checkMethod = (method: string): StepMethod => {
  if (!Object.hasOwn(stepMethods, method))
    throw new WeftError(`integration: there is no method "${method}"; known: ${Object.keys(stepMethods).join(", ")}`);
  return method as StepMethod;
};

/** Infidelities [n] of a batch, as one compiled program. */
export function controlInfidelities(
  prepared: PreparedProblem,
  steps: SegmentSteps,
  dtype: DType,
  { controls, rates }: Probes,
): Tensor {
  const program = cachedProgram(
    `infidelities ${prepared.key} ${steps.method} ${steps.perSegment} ${dtype}`,
    () =>
      (controls: Tensor, rates: Tensor): Tensor =>
        vmap((u: Tensor, g: Tensor) => controlInfidelity(prepared, steps, u.cast(dtype), g.cast(dtype)))(
          controls,
          rates,
        ),
  );
  return program(controls, rates);
}

const numbers = (t: Tensor): number[] => Array.from(t.dataSync() as ArrayLike<number>, Number);

/** Estimated error of the fidelity: the largest change when every step is halved, scaled by the order. */
export function halvingError(prepared: PreparedProblem, steps: SegmentSteps, probes: Probes): number {
  const coarse = numbers(controlInfidelities(prepared, steps, "float64", probes));
  const fine = numbers(
    controlInfidelities(prepared, { ...steps, perSegment: 2 * steps.perSegment }, "float64", probes),
  );
  const order = stepMethods[steps.method];
  const scale = 2 ** order / (2 ** order - 1);
  return coarse.reduce((worst, value, i) => {
    const error = Math.abs(value - fine[i]) * scale;
    return error > worst || Number.isNaN(error) ? error : worst;
  }, 0);
}

/** Chooses the number of steps from dt or a tolerance, and estimates the error on probes. */
export function chooseSteps(prepared: PreparedProblem, integration: Integration, probes: Probes): ChosenSteps {
  const method = checkMethod(integration.method ?? "rk4");
  const segment = prepared.problem.duration / prepared.problem.segments;
  const finish = (perSegment: number, error: number, asked: string, more: string[] = []): ChosenSteps => {
    const warnings = [...more];
    const dt = segment / perSegment;
    const tolerance = "tolerance" in integration ? integration.tolerance : warningThreshold;
    if (!(error <= Math.max(warningThreshold, tolerance)))
      warnings.push(
        `${method} with dt = ${dt.toPrecision(3)} is off by about ${error.toExponential(1)} in fidelity` +
          (method === "euler" ? "; rk4 at the same cost of memory is accurate, euler is for comparisons only" : ""),
      );
    const precision = integration.precision ?? (tolerance < 1e-5 ? "float64" : "float32");
    if (precision === "float32" && tolerance < 1e-6)
      warnings.push(`float32 rounds fidelities at about 1e-6; the tolerance of ${tolerance} needs float64`);
    return { method, perSegment, precision, asked, dt, steps: perSegment * prepared.problem.segments, error, warnings };
  };
  if ("dt" in integration) {
    const { dt } = integration;
    if (!(dt > 0 && Number.isFinite(dt))) throw new WeftError(`integration: dt must be above 0, got ${dt}`);
    // Steps are not longer than dt and divide a segment.
    const perSegment = Math.max(1, Math.ceil(segment / dt - 1e-9));
    const note =
      dt > segment * (1 + 1e-9)
        ? [`dt = ${dt} is longer than a segment (${segment.toPrecision(3)}): one step per segment is used`]
        : [];
    return finish(perSegment, halvingError(prepared, { method, perSegment }, probes), `dt = ${dt}`, note);
  }
  const { tolerance } = integration;
  if (!(tolerance > 0 && Number.isFinite(tolerance)))
    throw new WeftError(`integration: give dt, or a tolerance above 0; got ${JSON.stringify(integration)}`);
  // The order predicts the next number of steps, limited to a factor of eight because coarse estimates are unreliable. Powers of
  // two reuse the program of the halved steps.
  for (let perSegment = 1; perSegment <= maxStepsPerSegment; ) {
    const error = halvingError(prepared, { method, perSegment }, probes);
    if (error <= tolerance) return finish(perSegment, error, `tolerance = ${tolerance}`);
    const wanted = Math.ceil(perSegment * (error / tolerance) ** (1 / stepMethods[method]) * 1.1);
    if (perSegment >= 8 && wanted > maxStepsPerSegment) break;
    perSegment =
      2 ** Math.ceil(Math.log2(Math.max(2 * perSegment, Math.min(8 * perSegment, wanted) || 8 * perSegment)));
  }
  throw new WeftError(
    `integration: ${method} does not reach tolerance ${tolerance} with ${maxStepsPerSegment} steps per segment; ` +
      `raise the tolerance${stepMethods[method] < 8 ? ', or use method "taylor8"' : ""}`,
  );
}

/** Description of chosen steps with their error and warnings. */
export const explainSteps = (chosen: ChosenSteps, name = "integration"): string =>
  [
    `${name}: ${chosen.asked} -> ${chosen.method}, dt = ${chosen.dt.toPrecision(4)}, ${chosen.perSegment} step${chosen.perSegment === 1 ? "" : "s"} per segment, ` +
      `${chosen.steps} in all, ${chosen.precision}; estimated error of the fidelity ${chosen.error.toExponential(1)}`,
    ...chosen.warnings.map((w) => `  warning: ${w}`),
  ].join("\n");

/** Throws if a fidelity is outside [0, 1], which means that the integration is too coarse. */
export function checkFidelities(
  values: readonly number[],
  chosen: Pick<ChosenSteps, "method" | "dt" | "precision">,
): void {
  const room = chosen.precision === "float64" ? 1e-9 : 1e-5;
  const bad = values.findIndex((f) => !(f >= -room && f <= 1 + room));
  if (bad < 0) return;
  throw new WeftError(
    `fidelity ${values[bad]} of task ${bad} is not in [0, 1]: ${chosen.method} with dt = ${chosen.dt.toPrecision(3)} is too coarse; ` +
      "use rk4, a smaller dt, or a tolerance",
  );
}

/** Fidelities of a batch of pulses and rates; values outside [0, 1] are errors. */
export function controlFidelities(prepared: PreparedProblem, chosen: ChosenSteps, probes: Probes): number[] {
  const values = numbers(controlInfidelities(prepared, chosen, chosen.precision, probes)).map((x) => 1 - x);
  checkFidelities(values, chosen);
  return values;
}

/** Typical pulses for error estimates: constant amplitudes along every control, up to a rotation by pi. */
export function defaultProbes(prepared: PreparedProblem, rates: Tensor): Probes {
  const { segments, controls, duration } = prepared.problem;
  const half = Math.PI / 2 / duration;
  const pulses = controls.flatMap((_, k) =>
    [0.5, 1].map((share) =>
      Array.from({ length: segments }, () => controls.map((_, j) => (j === k ? share * half : 0.1 * half))),
    ),
  );
  const used = rates.shape.length === 1 ? rates.unsqueeze(0) : rates;
  const one = used.index("0:1").cast("float64");
  return { controls: tensor(pulses, { dtype: "float64" }), rates: one.expand([pulses.length, one.shape[1]]) };
}

/** The same choice with another number of steps per segment. */
export const withSteps = (chosen: ChosenSteps, perSegment: number): ChosenSteps =>
  perSegment === chosen.perSegment
    ? chosen
    : {
        ...chosen,
        perSegment,
        dt: (chosen.dt * chosen.perSegment) / perSegment,
        steps: (chosen.steps / chosen.perSegment) * perSegment,
      };
