// Results of solvers: final state, saved states, expectation values and integration statistics, as lazy tensors.
import { WeftError } from "@weft/core/internal/graph";
import { conj, linspace, matmul, real, Tensor } from "@weft/core/internal/tensor";
import { Operator, type OperatorLike } from "../operators/index.js";
import type { GradientMethod, Method } from "./methods.js";
import { type Grid, matrixOf } from "./problem.js";

/** Observables by name. */
export type Observables = Record<string, Tensor | OperatorLike>;

/** Result of a solver. */
export interface Evolution {
  /** Final state [D], density matrix [D, D], or propagator [D, D]. */
  final: Tensor;
  /** States [saves, ...] at `times`, or null without `saves`. */
  states: Tensor | null;
  times: Tensor;
  /** Real expectation values by name, [saves]. */
  expectations: Record<string, Tensor>;
  method: Method;
  gradient: GradientMethod;
  /** Number of fixed steps; for adaptive methods the maximum. */
  steps: number;
  /** Accepted steps of an adaptive method, else null. */
  accepted: Tensor | null;
  /** Whether an adaptive method reached the end within `steps`, else null. */
  reached: Tensor | null;
}

interface SummaryParts {
  final: Tensor;
  states: Tensor | null;
  grid: Grid;
  saves: number;
  method: Method;
  gradient: GradientMethod;
  observables?: Observables;
  kind: "state" | "density" | "propagator";
  accepted?: Tensor | null;
  reached?: Tensor | null;
}

/** Expectation values of an observable for states [..., D] or density matrices [..., D, D]. */
export function expectation(observable: Tensor, states: Tensor, kind: "state" | "density"): Tensor {
  if (kind === "density") return real(observable.T.mul(states).sum([-2, -1]));
  const column = states.unsqueeze(-1);
  return real(conj(column).mul(matmul(observable, column)).sum([-2, -1]));
}

export function summary(parts: SummaryParts): Evolution {
  const { final, grid, saves, method, gradient, observables = {}, kind } = parts;
  const states = parts.states ?? null;
  const each = states ?? final.unsqueeze(0);
  const expectations: Record<string, Tensor> = {};
  for (const [name, observable] of Object.entries(observables)) {
    if (kind === "propagator") throw new WeftError("observables: a propagator has none; evolve a state");
    const matrix = observable instanceof Tensor ? observable : Operator.from(observable, `observable ${name}`);
    expectations[name] = expectation(matrixOf(matrix, grid.complex), each, kind);
  }
  return {
    final,
    states,
    times: linspace(1 / saves, 1, saves, { dtype: grid.real }).mul(grid.duration),
    expectations,
    method,
    gradient,
    steps: method.tolerance?.maxSteps ?? grid.steps,
    accepted: parts.accepted ?? null,
    reached: parts.reached ?? null,
  };
}
