// Integration methods and gradient methods as data. A method lists the equations it solves, its order, the stages at which it
// reads the drives, and the gradient methods it supports; other combinations are errors.
import { WeftError } from "@weft/core/internal/graph";
import { krausStages } from "./kraus.js";
import { gaussNodes } from "./krylov.js";
import { checkKeys } from "./problem.js";
import { dormandPrince8, hairerWanner4, type Tableau, tsitouras } from "./tableaus.js";

/** Equation of motion. */
type Equation = "schrodinger" | "lindblad";
/** How a reverse pass obtains the states: stored, rematerialized from checkpoints, or by running the evolution backwards. */
export type GradientKind = "stored" | "checkpointed" | "reversal";

/** Gradient method of a solver. */
export interface GradientMethod {
  /** Kind of the method. */
  kind: GradientKind;
  /** Number of checkpoints of "checkpointed". Default: about the square root of the steps. */
  checkpoints?: number;
}

/** Names of integration methods. */
export type MethodName =
  | "trotter2"
  | "trotter4"
  | "pwcExpm"
  | "krylov"
  | "tsit5"
  | "dopri8"
  | "sdirk4"
  | "rk4"
  | "euler"
  | "cptp2"
  | "rouchon1"
  | "rouchon2"
  | "rouchon3";

/** Integration method of a solver. */
export interface Method {
  /** Its name. */
  readonly name: MethodName;
  /** Order of convergence in the step size. */
  readonly order: number;
  /** Equations that it solves. */
  readonly equations: readonly Equation[];
  /** Gradient methods that it supports. */
  readonly gradients: readonly GradientKind[];
  /** Times within a step, from 0 to 1, at which the drives are read. */
  readonly stages: readonly number[];
  /** Printed once to standard error when the method is used. */
  readonly warning?: string;
  /** Trotter methods: "merged" static gates (faster, smaller error), or one gate per term as in other codes. */
  readonly splitting?: "merged" | "terms";
  /** Adaptive methods: tolerances and coefficients. */
  readonly tolerance?: Tolerance;
  /** Coefficients of a Runge-Kutta method. */
  readonly tableau?: Tableau;
  /** Dimension of the subspaces of "krylov". */
  readonly dimension?: number;
}

/** Error tolerances of an adaptive method. */
export interface Tolerance {
  /** Error of a step relative to the state. */
  relative: number;
  /** Absolute error of a step. */
  absolute: number;
  /** Maximum number of accepted and rejected steps between two saved times or segments. */
  maxSteps: number;
  /** Length of the longest step, for pulses that are too short to be found by themselves. Default: no limit. */
  maxStep: number;
}

const everyGradient: readonly GradientKind[] = ["stored", "checkpointed", "reversal"];
const withoutReversal: readonly GradientKind[] = ["stored", "checkpointed"];

interface TrotterOptions {
  splitting?: "merged" | "terms";
}

function splittingOf(options: TrotterOptions, name: string): "merged" | "terms" {
  checkKeys(options, ["splitting"], name);
  const { splitting = "merged" } = options;
  if (splitting !== "merged" && splitting !== "terms")
    throw new WeftError(`${name}: splitting must be "merged" or "terms", got ${String(splitting)}`);
  return splitting;
}

/** Second-order Trotter splitting (symmetric product of exponentials). Unitary, so it can be run backwards. */
export const trotter2 = (options: TrotterOptions = {}): Method => ({
  name: "trotter2",
  order: 2,
  equations: ["schrodinger"],
  gradients: everyGradient,
  stages: [0.5],
  splitting: splittingOf(options, "trotter2"),
});

// Suzuki's fourth-order composition: five symmetric steps of these lengths, each with the drives at its own midpoint.
const p = 1 / (4 - 4 ** (1 / 3));
/** Lengths of the five second-order steps of trotter4, relative to the step. */
export const suzukiParts: readonly number[] = [p, p, 1 - 4 * p, p, p];
const midpoints = suzukiParts.map((part, k) => suzukiParts.slice(0, k).reduce((a, b) => a + b, 0) + part / 2);

/** Fourth-order Suzuki-Trotter splitting, of fourth order in the time dependence too. */
export const trotter4 = (options: TrotterOptions = {}): Method => ({
  name: "trotter4",
  order: 4,
  equations: ["schrodinger"],
  gradients: everyGradient,
  stages: midpoints,
  splitting: splittingOf(options, "trotter4"),
});

/** Exponential of the generator at the midpoint of each step; exact for piecewise constant drives. */
export const pwcExpm = (): Method => ({
  name: "pwcExpm",
  order: 2,
  equations: ["schrodinger", "lindblad"],
  gradients: everyGradient,
  stages: [0.5],
});

/** Classical Runge-Kutta method of fourth order. */
export const rk4 = (): Method => ({
  name: "rk4",
  order: 4,
  equations: ["schrodinger", "lindblad"],
  gradients: withoutReversal,
  stages: [0, 0.5, 1],
});

/** Explicit Euler method, for comparisons only. */
export const euler = (): Method => ({
  name: "euler",
  order: 1,
  equations: ["schrodinger", "lindblad"],
  gradients: withoutReversal,
  stages: [0],
  warning:
    "euler is of first order and leaves the physical states (fidelities above 1 occur); use rk4, for comparison only",
});

/** Strang splitting into unitary and dissipative maps: every step is completely positive and trace-preserving. */
export const cptp2 = (): Method => ({
  name: "cptp2",
  order: 2,
  equations: ["lindblad"],
  gradients: withoutReversal,
  stages: [0.5],
});

/**
 * Kraus maps of order 1, 2 or 3 after Rouchon, Cao and Lu: completely positive and trace-preserving for any step, with products of
 * matrices of the size of the state.
 */
const rouchon = (order: 1 | 2 | 3): Method => ({
  name: `rouchon${order}`,
  order,
  equations: ["lindblad"],
  gradients: withoutReversal,
  stages: krausStages(order),
});
/** Kraus map of first order (Rouchon): for comparisons, and where a step must be as cheap as possible. */
export const rouchon1 = (): Method => rouchon(1);
/** Kraus map of second order: completely positive and trace-preserving for any step. */
export const rouchon2 = (): Method => rouchon(2);
/** Kraus map of third order: completely positive and trace-preserving for any step. */
export const rouchon3 = (): Method => rouchon(3);

/** Smallest and largest dimension of Krylov subspaces. */
const dimensions = [2, 40] as const;

/**
 * Exponentials of the generator in Krylov subspaces, for large systems of local terms and long steps: exact for constant drives up
 * to the estimated `error` of the run, of order 4 otherwise. A step of length h needs a dimension of about twice h times the
 * largest energy difference.
 */
export const krylov = (options: { dimension?: number } = {}): Method => {
  checkKeys(options, ["dimension"], "krylov");
  const { dimension = 20 } = options;
  const [least, most] = dimensions;
  if (!Number.isInteger(dimension) || dimension < least || dimension > most)
    throw new WeftError(`krylov: dimension must be a whole number from ${least} to ${most}, got ${dimension}`);
  return {
    name: "krylov",
    order: 4,
    equations: ["schrodinger", "lindblad"],
    gradients: withoutReversal,
    stages: gaussNodes,
    dimension,
  };
};

const adaptiveMethod = (name: "tsit5" | "dopri8" | "sdirk4", tableau: Tableau, options: Partial<Tolerance>): Method => {
  checkKeys(options, ["relative", "absolute", "maxSteps", "maxStep"], name);
  const { relative = 1e-8, absolute = 1e-8, maxSteps = 1000, maxStep = Number.POSITIVE_INFINITY } = options;
  const tolerance = { relative, absolute, maxSteps, maxStep };
  for (const [key, value] of Object.entries(tolerance))
    if (!(value > 0 && (key === "maxStep" || Number.isFinite(value))))
      throw new WeftError(`${name}: ${key} must be positive, got ${value}`);
  return {
    name,
    order: tableau.order,
    equations: tableau.isImplicit ? ["lindblad"] : ["schrodinger", "lindblad"],
    gradients: withoutReversal,
    stages: [],
    tolerance,
    tableau,
  };
};

/** Adaptive Tsitouras 5(4) method, as a loop that ends when it arrives. */
export const tsit5 = (options: Partial<Tolerance> = {}): Method => adaptiveMethod("tsit5", tsitouras, options);

/** Adaptive Dormand-Prince method of order 8 (DOP853), for tolerances below about 1e-8. */
export const dopri8 = (options: Partial<Tolerance> = {}): Method => adaptiveMethod("dopri8", dormandPrince8, options);

/**
 * Adaptive implicit method of order 4 for stiff systems, such as cavities that decay much faster than anything else happens. Every
 * step solves linear systems of the size of the density matrix: directly up to 32 levels, above by iteration.
 */
export const sdirk4 = (options: Partial<Tolerance> = {}): Method => adaptiveMethod("sdirk4", hairerWanner4, options);

const byName: Record<MethodName, () => Method> = {
  trotter2,
  trotter4,
  pwcExpm,
  krylov,
  tsit5,
  dopri8,
  sdirk4,
  rk4,
  euler,
  cptp2,
  rouchon1,
  rouchon2,
  rouchon3,
};
/** Names of the methods that choose their own steps. */
export const adaptiveNames: readonly MethodName[] = ["tsit5", "dopri8", "sdirk4"];
/** Names of all integration methods. */
export const methodNames = Object.keys(byName) as MethodName[];

const warned = new Set<string>();

/** Resolves a method and checks it against the equation and the gradient method. */
export function resolveMethod(
  given: MethodName | Method | undefined,
  equation: Equation,
  gradient: GradientKind | GradientMethod | undefined,
): { method: Method; gradient: GradientMethod } {
  const chosen = given ?? (equation === "lindblad" ? "rk4" : "trotter2");
  if (typeof chosen === "string" && !(chosen in byName))
    throw new WeftError(`method: there is no "${chosen}"; known: ${methodNames.join(", ")}`);
  const method = typeof chosen === "string" ? byName[chosen]() : chosen;
  if (!method.equations.includes(equation))
    throw new WeftError(
      `method ${method.name} does not solve the ${equation} equation; ` +
        `use ${methodNames.filter((name) => byName[name]().equations.includes(equation)).join(", ")}`,
    );
  const reversible = method.gradients.includes("reversal") && equation === "schrodinger";
  const requested: GradientMethod =
    gradient === undefined
      ? { kind: reversible ? "reversal" : "stored" }
      : typeof gradient === "string"
        ? { kind: gradient }
        : gradient;
  checkKeys(requested, ["kind", "checkpoints"], "gradient");
  const { checkpoints } = requested;
  if (checkpoints !== undefined && !(Number.isInteger(checkpoints) && checkpoints >= 1))
    throw new WeftError(`gradient: checkpoints must be a whole number >= 1, got ${checkpoints}`);
  if (requested.kind === "reversal" && !reversible)
    throw new WeftError(
      equation === "lindblad"
        ? "gradient reversal: dissipation cannot be run backwards without amplifying errors; use stored or checkpointed"
        : `gradient reversal: method ${method.name} is not unitary; use stored or checkpointed, or trotter2, trotter4, pwcExpm`,
    );
  if (!method.gradients.includes(requested.kind))
    throw new WeftError(
      `method ${method.name} has no gradient "${requested.kind}"; known: ${method.gradients.join(", ")}`,
    );
  if (method.warning !== undefined && !warned.has(method.name)) {
    warned.add(method.name);
    console.error(`weft: ${method.warning}`);
  }
  return { method, gradient: requested };
}
