// Choice of an integration method by measurement: for each method the settings that meet a tolerance, then the time of one value
// and gradient.
import { WeftError } from "@weft/core/internal/graph";
import { jit, type Tensor, valueAndGrad } from "@weft/core/internal/tensor";
import { adaptiveNames, dopri8, type MethodName, tsit5 } from "../solvers/index.js";
import type { DeviceParameters } from "../systems/index.js";
import type { GateSpec } from "./gate-spec.js";
import { GateProblem } from "./problem.js";

/** One candidate: settings of `evolution` that meet the tolerance, its error and its times. */
export interface TunedEvolution {
  /** Integration method. */
  method: MethodName;
  /** Number of fixed steps, or null for adaptive methods. */
  steps: number | null;
  /** Tolerance of an adaptive method, else null. */
  tolerance: number | null;
  /** Number of pieces of time, or null for the default. */
  chunks: number | null;
  /** Estimated error of the infidelity. */
  error: number;
  /** Seconds of the first call of value and gradient. */
  firstCall: number;
  /** Seconds of a later call. */
  perCall: number;
}

/** Options of `tuneEvolution`. @inline */
interface TuneOptions {
  /** Largest error of the infidelity. Default: that of the specification, else 1e-6. */
  tolerance?: number;
  /** Default: those that solve the equation and are worth trying. */
  methods?: readonly MethodName[];
  /** Numbers of pieces of time to try with the fastest method. */
  chunks?: readonly number[];
  /** Number of timed calls. */
  repeats?: number;
  /** Called before each candidate. */
  onCandidate?: (text: string) => void;
}

const closedMethods: readonly MethodName[] = ["trotter2", "trotter4", "pwcExpm", "dopri8"];
const openMethods: readonly MethodName[] = ["rk4", "rouchon3", "cptp2", "dopri8"];
/** More steps than this are no choice. */
const mostSteps = 200_000;
const firstSteps = 200;

/** Settings of one method that meet the tolerance, or null. Steps follow from the order of the method, and are checked. */
function settingsFor(
  problem: GateProblem,
  method: MethodName,
  tolerance: number,
): { spec: GateSpec; error: number; own: number } | null {
  const withEvolution = (changes: Partial<GateSpec["evolution"]>): GateSpec => ({
    ...problem.spec,
    evolution: { ...problem.spec.evolution, chunks: undefined, gradient: undefined, tolerance: undefined, ...changes },
  });
  const errorOf = (spec: GateSpec): { error: number; order: number } => new GateProblem(spec).stepError();
  if (adaptiveNames.includes(method)) {
    for (let own = tolerance; own > 1e-13; own /= 10) {
      const limits = { relative: own, absolute: own, maxSteps: 20_000 };
      const spec = withEvolution({ method: method === "tsit5" ? tsit5(limits) : dopri8(limits) });
      const { error } = errorOf(spec);
      if (error <= tolerance) return { spec, error, own };
    }
    return null;
  }
  const segments = problem.segments();
  let steps = Math.ceil(firstSteps / (2 * segments)) * 2 * segments;
  for (let round = 0; round < 6 && steps <= mostSteps; round++) {
    const spec = withEvolution({ method, steps });
    const { error, order } = errorOf(spec);
    if (error <= tolerance) return { spec, error, own: steps };
    const factor = Number.isFinite(error) ? Math.min(16, Math.max(1.3, 1.1 * (error / tolerance) ** (1 / order))) : 4;
    steps = Math.ceil((steps * factor) / (2 * segments)) * 2 * segments;
  }
  return null;
}

/** Times of the first and of a later call of value and gradient. */
function timesOf(problem: GateProblem, repeats: number): { firstCall: number; perCall: number } {
  const program = jit((p: DeviceParameters) => valueAndGrad(problem.loss)(p) as [Tensor, DeviceParameters]);
  const p = problem.learned();
  const call = (): number => {
    const start = performance.now();
    const [value, gradient] = program(p);
    value.itemSync();
    for (const g of Object.values(gradient)) g.dataSync();
    return (performance.now() - start) / 1e3;
  };
  const firstCall = call();
  const later = Array.from({ length: Math.max(1, repeats) }, call).sort((a, b) => a - b);
  return { firstCall, perCall: later[Math.floor(later.length / 2)] };
}

/**
 * Measures which integration method gives value and gradient of a gate fastest at a given error, fastest first. Methods that do not
 * reach the tolerance, or do not solve the problem, are left out.
 */
export function tuneEvolution(problem: GateProblem, options: TuneOptions = {}): TunedEvolution[] {
  const { repeats = 3, onCandidate = () => {} } = options;
  const tolerance = options.tolerance ?? problem.spec.evolution.tolerance ?? 1e-6;
  if (!(tolerance > 0 && tolerance < 1)) throw new WeftError(`tune: the tolerance must be in (0, 1), got ${tolerance}`);
  if (Object.keys(problem.learned()).length === 0)
    throw new WeftError("tune: the specification has no parameter to differentiate; check the key learn");
  const isOpen = problem.spec.jumps.length > 0;
  const found: (TunedEvolution & { spec: GateSpec })[] = [];
  for (const method of options.methods ?? (isOpen ? openMethods : closedMethods)) {
    onCandidate(method);
    const settings = settingsFor(problem, method, tolerance);
    if (settings === null) continue;
    const isAdaptive = adaptiveNames.includes(method);
    found.push({
      method,
      steps: isAdaptive ? null : settings.own,
      tolerance: isAdaptive ? settings.own : null,
      chunks: null,
      error: settings.error,
      ...timesOf(new GateProblem(settings.spec), repeats),
      spec: settings.spec,
    });
  }
  if (found.length === 0) throw new WeftError(`tune: no method reaches an error of ${tolerance}; allow a larger one`);
  found.sort((a, b) => a.perCall - b.perCall);
  const [best] = found;
  const canSplit = !isOpen && best.steps !== null && problem.spec.target.states === null;
  for (const chunks of canSplit ? (options.chunks ?? []) : []) {
    if (chunks > best.steps!) continue;
    onCandidate(`${best.method}, ${chunks} pieces of time`);
    const spec = { ...best.spec, evolution: { ...best.spec.evolution, chunks } };
    found.push({ ...best, chunks, ...timesOf(new GateProblem(spec), repeats), spec });
  }
  return found.sort((a, b) => a.perCall - b.perCall).map(({ spec: _, ...row }) => row);
}
