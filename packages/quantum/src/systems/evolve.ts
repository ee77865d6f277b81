// Evolution of the computational states of a device under its pulses.
import { WeftError } from "@weft/core/internal/graph";
import { adjoint, full, matmul, real, stack, Tensor } from "@weft/core/internal/tensor";
import { concreteValues } from "../concrete.js";
import { identityOperator } from "../operators/index.js";
import {
  type CheckLimits,
  checkArrival,
  checkSteps,
  type Evolution,
  type PropagatorOptions,
  propagator,
  roomFor,
  type Validity,
} from "../solvers/index.js";
import type { BoundDevice, QuantumDevice } from "./device.js";
import { checkStepLength } from "./sampling.js";
import { checkAssignment, computationalStates, dressedStates, levelsOfState } from "./spectrum.js";

/** What `DeviceEvolution.check` accepts. */
interface DeviceLimits extends CheckLimits {
  /** Largest population of the highest level of a part. Default: 1e-3. */
  topWeight?: number;
  /** Largest change of a squared norm. Default: 1e-6, in complex64 1e-3. */
  norm?: number;
}

/** Options of `evolve`. @inline */
interface EvolveOptions extends Omit<PropagatorOptions, "duration" | "columns"> {
  /** Default: the end of the last pulse. Additional time is idle. */
  duration?: Tensor | number;
  /** Basis of the gate: product states (default), or dressed states of the idle device. */
  basis?: "product" | "eigen";
}

/** Result of `evolve`. */
export interface DeviceEvolution extends Evolution {
  /** Gate on the computational states [n, n]; not unitary if population leaked. */
  unitary: Tensor;
  /** Mean population outside the computational states at the end. */
  leaked: Tensor;
  /** Mean population of the highest level of each part that has non-computational levels. */
  topWeight: Record<string, Tensor>;
  /** Throws if the result is not valid: NaN, a populated highest level (truncation), or a norm that differs from 1. */
  check(limits?: DeviceLimits): Validity;
}

/**
 * Evolves the computational states of a device under its pulses. Differentiable in all parameters.
 *
 * @param system - A device, or a device with bound parameters.
 *
 * @example
 * ```ts
 * import { jit, valueAndGrad } from "@weft/core";
 * import { averageGateInfidelity, cosinePulse, type DeviceParameters, evolve, gate, QuantumDevice, Qubit } from "@weft/quantum";
 *
 * const pulse = cosinePulse({ length: 20, amplitude: 0.3, omega: Math.PI });
 * const device = new QuantumDevice({
 *   parts: { q: new Qubit({ frequency: 0.5 }) },
 *   drives: [{ name: "x", on: "q", operator: "x", pulse }],
 * });
 * const loss = (p: DeviceParameters) => averageGateInfidelity(evolve(device.with(p), { steps: 400 }), gate("X"));
 * const [value, gradient] = jit((p: DeviceParameters) => valueAndGrad(loss)(p))(device.parameters());
 * console.log(value.itemSync(), gradient["q.x.amplitude"].itemSync());
 * ```
 */
export function evolve(system: BoundDevice | QuantumDevice, options: EvolveOptions): DeviceEvolution {
  const bound = "hamiltonian" in system ? system : system.with({});
  const { basis = "product", duration, ...rest } = options;
  if (basis !== "product" && basis !== "eigen")
    throw new WeftError(`evolve: basis must be "product" or "eigen", got ${String(basis)}`);
  const h = bound.hamiltonian({ duration });
  const { dims } = bound;
  const D = dims.reduce((a, b) => a * b, 1);
  const total = durationOf(bound, duration);
  const states = computationalStates(bound);
  const whole = states.length === D && basis === "product";
  const solve = (columns?: Tensor, more: PropagatorOptions = {}): Evolution =>
    propagator(h, { ...rest, duration: total, columns, ...more });
  let columns: Tensor | undefined;
  let run: Evolution;
  let unitary: Tensor;
  if (whole) {
    run = solve();
    unitary = run.final;
  } else if (basis === "product") {
    columns = computationalFrame(bound, basis, rest.dtype).T;
    run = solve(columns);
    unitary = run.final.take(states, 0);
  } else {
    const frame = computationalFrame(bound, basis);
    columns = frame.T;
    run = solve(columns);
    unitary = matmul(adjoint(frame.cast(run.final.dtype)), run.final);
  }
  const weight = (x: Tensor): Tensor => real(x).square().add(x.imag().square());
  const topWeight: Record<string, Tensor> = {};
  bound.device.names.forEach((name, k) => {
    const { levels, computational } = bound.device.parts[name].structure;
    if (levels <= computational) return;
    const rows = Array.from({ length: D }, (_, s) => s).filter((s) => levelsOfState(s, dims)[k] === levels - 1);
    topWeight[name] = weight(run.final.take(rows, 0)).sum(0).mean();
  });
  const leaked = weight(unitary).sum(0).mean().neg().add(1);
  const norms = weight(run.final).sum(0);
  const check: DeviceEvolution["check"] = (limits = {}) => {
    checkStepLength(bound, total, run);
    const validity = checkResult(run, norms, topWeight, limits, (name) => bound.device.parts[name].structure.levels);
    return { ...validity, error: checkSteps(run, () => solve(columns, { steps: 2 * run.steps }).final, limits) };
  };
  return { ...run, unitary, leaked, topWeight, check };
}

/** States as columns [D, n]: product states, or the dressed states of the idle device that resemble them. */
export function stateFrame(
  bound: BoundDevice,
  basis: "product" | "eigen",
  states: readonly number[],
  dtype: "complex64" | "complex128" = "complex128",
): Tensor {
  const D = bound.dims.reduce((a, b) => a * b, 1);
  if (basis === "product") return identityOperator(D).tensor(dtype).take(states, 1);
  const dressed = dressedStates(bound);
  checkAssignment(dressed, bound.dims, states);
  return dressed.states.take(states, 1).cast(dtype);
}

/** The computational states as columns. */
export const computationalFrame = (
  bound: BoundDevice,
  basis: "product" | "eigen",
  dtype?: "complex64" | "complex128",
): Tensor => stateFrame(bound, basis, computationalStates(bound), dtype);

/** Duration of an evolution: as given, or the end of the last pulse. A pulse that ends later is an error. */
export function durationOf(bound: BoundDevice, given: Tensor | number | undefined): Tensor {
  if (given === undefined) {
    const end = bound.duration();
    const [length] = concreteValues(end) ?? [1];
    if (!(length > 0 && Number.isFinite(length)))
      throw new WeftError(`evolve: the pulses end at ${length} ns; their lengths must be positive numbers`);
    return end;
  }
  const total = given instanceof Tensor ? given : full([], given, { dtype: "float64" });
  if (bound.device.drives.length === 0) return total;
  const ends = bound.device.drives.map((drive) => drive.pulse.end(bound.pulseParameters(drive)));
  const numbers = concreteValues(stack([total, ...ends]));
  if (numbers === null) return total;
  const [length, ...times] = numbers;
  const late = times.findIndex((end) => end > length * (1 + 1e-12));
  if (late >= 0) {
    const drive = bound.device.drives[late];
    throw new WeftError(
      `evolve: the pulse ${drive.on}.${drive.name} ends at ${times[late]} ns, after the evolution (${length} ns); ` +
        "give a longer duration, or none to end with the last pulse",
    );
  }
  return total;
}

function checkResult(
  run: Evolution,
  norms: Tensor,
  topWeight: Record<string, Tensor>,
  limits: DeviceLimits,
  levelsOf: (name: string) => number,
): Validity {
  const { topWeight: topLimit = 1e-3, norm = roomFor(run.final) } = limits;
  checkArrival(run);
  const sizes = Array.from(norms.dataSync(), Number);
  if (sizes.some((x) => !Number.isFinite(x)))
    throw new WeftError(
      "evolve: the result is not a number; a parameter is NaN or infinite, or the steps are far too few",
    );
  const off = Math.max(...sizes.map((x) => Math.abs(x - 1)));
  if (off > norm)
    throw new WeftError(
      `evolve: the norm is off by ${off.toExponential(1)} after ${run.steps} steps of ${run.method.name}; use more steps`,
    );
  for (const [name, weight] of Object.entries(topWeight)) {
    const top = weight.itemSync();
    if (top > topLimit)
      throw new WeftError(
        `evolve: ${(100 * top).toPrecision(3)} % of the weight is in the highest level kept of ${name} ` +
          `(${levelsOf(name)} levels): the truncation is too small; raise levels`,
      );
  }
  return { norm: Math.max(...sizes), smallestEigenvalue: null, error: null };
}
