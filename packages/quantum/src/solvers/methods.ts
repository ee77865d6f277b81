// Method and Gradient objects: what can be asked of a solver, as data. A method says which equations it solves, its order
// in the step, where in a step it needs the drives, and which gradients it supports; what it does not support is refused.
import { WeftError } from "@weft/core/internal/graph";

export type Equation = "schrodinger" | "lindblad";
export type GradientKind = "stored" | "checkpointed" | "reversal";

export interface GradientMethod {
  kind: GradientKind;
  /** checkpointed: how many states of the loop are kept; about the square root of the steps by default. */
  checkpoints?: number;
}

export type MethodName = "trotter2" | "trotter4" | "pwcExpm" | "tsit5" | "rk4" | "euler" | "cptp2";

export interface Method {
  readonly name: MethodName;
  /** The error of a smooth problem falls with this power of the step. */
  readonly order: number;
  readonly equations: readonly Equation[];
  readonly gradients: readonly GradientKind[];
  /** Times inside a step (0 to 1) at which the drives are read. */
  readonly stages: readonly number[];
  /** Said on stderr, once, when the method is used. */
  readonly warning?: string;
  /** trotter2: "merged" static gates (fast, smaller error) or one gate a "terms" (as other codes split). */
  readonly splitting?: "merged" | "terms";
  readonly tolerance?: Tolerance;
}

export interface Tolerance {
  relative: number;
  absolute: number;
  /** The bound of the loop: accepted and rejected steps together. */
  maxSteps: number;
}

const all: readonly GradientKind[] = ["stored", "checkpointed", "reversal"];
const kept: readonly GradientKind[] = ["stored", "checkpointed"];

/** Symmetric product of exponentials, second order; unitary, so it can be run backwards. */
export const trotter2 = (options: { splitting?: "merged" | "terms" } = {}): Method => ({
  name: "trotter2",
  order: 2,
  equations: ["schrodinger"],
  gradients: all,
  stages: [0.5],
  splitting: options.splitting ?? "merged",
});

// Suzuki's fractal of fourth order: five symmetric steps of these lengths, each with the drives at its own midpoint.
const p = 1 / (4 - 4 ** (1 / 3));
/** Lengths of the five second-order steps of trotter4, in parts of the whole step. */
export const suzukiParts: readonly number[] = [p, p, 1 - 4 * p, p, p];
const midpoints = suzukiParts.map((part, k) => suzukiParts.slice(0, k).reduce((a, b) => a + b, 0) + part / 2);

/** Five symmetric products with their own midpoints: fourth order in time as well as in the splitting. */
export const trotter4 = (options: { splitting?: "merged" | "terms" } = {}): Method => ({
  name: "trotter4",
  order: 4,
  equations: ["schrodinger"],
  gradients: all,
  stages: midpoints,
  splitting: options.splitting ?? "merged",
});

/** The exponential of the generator at the middle of each step: exact for piecewise constant drives. */
export const pwcExpm = (): Method => ({
  name: "pwcExpm",
  order: 2,
  equations: ["schrodinger", "lindblad"],
  gradients: all,
  stages: [0.5],
});

export const rk4 = (): Method => ({
  name: "rk4",
  order: 4,
  equations: ["schrodinger", "lindblad"],
  gradients: kept,
  stages: [0, 0.5, 1],
});

export const euler = (): Method => ({
  name: "euler",
  order: 1,
  equations: ["schrodinger", "lindblad"],
  gradients: kept,
  stages: [0],
  warning:
    "euler is of first order and leaves the physical states (fidelities above 1 occur); use rk4, for comparison only",
});

/** Strang splitting into exact unitary and exact dissipative maps: every step is completely positive and keeps the trace. */
export const cptp2 = (): Method => ({
  name: "cptp2",
  order: 2,
  equations: ["lindblad"],
  gradients: kept,
  stages: [0.5],
});

/** Tsitouras 5(4) with steps chosen by its error estimate, as a loop of bounded length. */
export const tsit5 = (options: Partial<Tolerance> = {}): Method => {
  const tolerance = { relative: 1e-8, absolute: 1e-8, maxSteps: 1000, ...options };
  for (const [key, value] of Object.entries(tolerance))
    if (!(value > 0)) throw new WeftError(`tsit5: ${key} must be positive, got ${value}`);
  return { name: "tsit5", order: 5, equations: ["schrodinger", "lindblad"], gradients: kept, stages: [], tolerance };
};

const byName: Record<MethodName, () => Method> = { trotter2, trotter4, pwcExpm, tsit5, rk4, euler, cptp2 };
export const methodNames = Object.keys(byName) as MethodName[];

const warned = new Set<string>();

/** The method of a name or an object, checked against the equation and the gradient that are asked of it. */
export function resolveMethod(
  given: MethodName | Method | undefined,
  equation: Equation,
  gradient: GradientKind | GradientMethod | undefined,
): { method: Method; gradient: GradientMethod } {
  const wanted = given ?? (equation === "lindblad" ? "rk4" : "trotter2");
  if (typeof wanted === "string" && !(wanted in byName))
    throw new WeftError(`method: there is no "${wanted}"; known: ${methodNames.join(", ")}`);
  const method = typeof wanted === "string" ? byName[wanted]() : wanted;
  if (!method.equations.includes(equation))
    throw new WeftError(
      `method ${method.name} does not solve the ${equation} equation; ` +
        `use ${methodNames.filter((name) => byName[name]().equations.includes(equation)).join(", ")}`,
    );
  const reversible = method.gradients.includes("reversal") && equation === "schrodinger";
  const asked: GradientMethod =
    gradient === undefined
      ? { kind: reversible ? "reversal" : "stored" }
      : typeof gradient === "string"
        ? { kind: gradient }
        : gradient;
  if (asked.kind === "reversal" && !reversible)
    throw new WeftError(
      equation === "lindblad"
        ? "gradient reversal: dissipation cannot be run backwards without amplifying errors; use stored or checkpointed"
        : `gradient reversal: method ${method.name} is not unitary; use stored or checkpointed, or trotter2, trotter4, pwcExpm`,
    );
  if (!method.gradients.includes(asked.kind))
    throw new WeftError(`method ${method.name} has no gradient "${asked.kind}"; known: ${method.gradients.join(", ")}`);
  if (method.warning !== undefined && !warned.has(method.name)) {
    warned.add(method.name);
    console.error(`weft: ${method.warning}`);
  }
  return { method, gradient: asked };
}
