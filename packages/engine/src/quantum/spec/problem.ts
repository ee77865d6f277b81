// A specification as a program: its loss as a function of named parameters, and what there is to report about it.
import { WeftError } from "../../graph/index.js";
import { session } from "../../runtime/index.js";
import { adjoint, full, matmul, type Tensor, tensor, treeLeaves } from "../../tensor/index.js";
import { BoundedCache, structureKey } from "../cache/index.js";
import {
  averageGateInfidelity,
  choi,
  choiAverageFidelity,
  choiFidelity,
  choiLeakage,
  compensate,
  compensatedTarget,
  leakage,
  processInfidelity,
  stateFidelity,
  stateInfidelity,
} from "../fidelity/index.js";
import { basisState } from "../operators/index.js";
import { type Evolution, lindblad } from "../solvers/index.js";
import {
  type BoundDevice,
  computationalFrame,
  computationalStates,
  type DeviceEvolution,
  evolve,
  type Levels,
  numberOf,
  type Parameters,
} from "../systems/index.js";
import { type GateSpec, matching } from "./gate-spec.js";

export interface GateOutcome {
  infidelity: Tensor;
  leaked: Tensor | null;
  /** [n, n], after compensation; null for open systems and state transfer. */
  unitary: Tensor | null;
  evolution: Evolution;
  /** Throws where the numbers mean nothing. */
  check(): void;
}

/** Levels of whole devices by structure and numbers: where only pulses are learned, no program solves for them again. */
const eigenbases = new BoundedCache<Record<string, Levels>>("eigenbases", {
  entries: 32,
  bytes: 2 ** 28,
  sizeOf: (parts) => treeLeaves(parts).reduce((sum, t) => sum + t.size * (t.dtype.startsWith("complex") ? 16 : 8), 0),
});

export class GateProblem {
  readonly #levels: Record<string, Levels> | null;

  constructor(readonly spec: GateSpec) {
    this.#levels = Object.keys(this.learned()).some((key) => this.#shapesParts(key)) ? null : this.#fixedLevels();
  }

  /** Whether a parameter moves the levels of a part: its energies do, drives and couplings do not. */
  #shapesParts(key: string): boolean {
    const { device } = this.spec;
    return (device.shared[key] ?? [key]).some((own) => {
      const [part, name, ...more] = own.split(".");
      return more.length === 0 && name in (device.parts[part]?.parameters ?? {});
    });
  }

  #fixedLevels(): Record<string, Levels> {
    const { device } = this.spec;
    const parts = Object.fromEntries(device.names.map((name) => [name, device.parts[name].toJSON()]));
    const moved = Object.entries(this.spec.parameters).filter(([key]) => this.#shapesParts(key));
    const key = structureKey(parts, device.spread, device.shared, moved, session().device.name);
    return eigenbases.get(key, () => {
      const levels = device.with(this.parameters()).levels();
      for (const leaf of treeLeaves(levels)) leaf.realize();
      return levels;
    });
  }

  /** All parameters with the file's own values. */
  parameters(): Parameters {
    const all = this.spec.device.parameters();
    for (const [key, x] of Object.entries(this.spec.parameters))
      all[key] = typeof x === "number" ? full([], x, { dtype: "float64" }) : tensor([...x], { dtype: "float64" });
    return all;
  }

  /** Those that are to be learned. */
  learned(): Parameters {
    const all = this.parameters();
    const keys = Object.keys(all);
    const wanted = new Set((this.spec.learn ?? ["*"]).flatMap((pattern) => matching(keys, pattern)));
    return Object.fromEntries(Object.entries(all).filter(([key]) => wanted.has(key)));
  }

  bind(p: Partial<Parameters> = {}): BoundDevice {
    const bound = this.spec.device.with({ ...this.parameters(), ...p });
    if (this.#levels !== null && !Object.keys(p).some((key) => this.#shapesParts(key))) bound.useLevels(this.#levels);
    return bound;
  }

  /** The infidelity for these parameters (the others as in the file): what is minimised. */
  loss = (p: Parameters): Tensor => this.outcome(this.bind(p)).infidelity;

  outcome(bound: BoundDevice): GateOutcome {
    const { jumps, target } = this.spec;
    if (target.states !== null) return this.#state(bound);
    return jumps.length > 0 ? this.#channel(bound) : this.#gate(bound);
  }

  /** What the steps cost: the infidelity's error, from a run with half as many and the method's order. */
  stepError(): { error: number; order: number; steps: number } {
    const { evolution } = this.spec;
    const half = new GateProblem({
      ...this.spec,
      evolution: { ...evolution, steps: Math.max(1, Math.floor(evolution.steps / 2)) },
    });
    const [fine, coarse] = [this, half].map((problem) => problem.outcome(problem.bind()));
    const { order } = fine.evolution.method;
    const error = Math.abs(fine.infidelity.itemSync() - coarse.infidelity.itemSync()) / (2 ** order - 1);
    return { error, order, steps: evolution.steps };
  }

  /** Throws where the file's tolerance asks for more steps than it gives, and says how many. */
  checkSteps(): void {
    const { tolerance } = this.spec.evolution;
    if (tolerance === undefined) return;
    const { error, order, steps } = this.stepError();
    if (error <= tolerance) return;
    const needed = Math.ceil(steps * (error / tolerance) ** (1 / order) * 1.1);
    throw new WeftError(
      `evolution.steps: ${steps} steps leave an error of ${error.toExponential(1)} in the infidelity, more than the ` +
        `tolerance ${tolerance}; use about ${needed}`,
    );
  }

  #gate(bound: BoundDevice): GateOutcome {
    const { evolution, target } = this.spec;
    const { precision, ...options } = evolution;
    const run: DeviceEvolution = evolve(bound, { ...options, dtype: precision });
    if (target.gate === null) throw new WeftError("target: needs a gate");
    const unitary = compensate(run, target.gate, target.compensation);
    const measure = target.measure === "average" ? averageGateInfidelity : processInfidelity;
    return {
      infidelity: measure(unitary, target.gate),
      leaked: leakage(run),
      unitary,
      evolution: run,
      check: () => run.check(),
    };
  }

  /** One density matrix through the device with its decay. */
  #decaying(bound: BoundDevice): (rho: Tensor) => Evolution {
    const { evolution, jumps } = this.spec;
    const { precision, method, steps, gradient, duration } = evolution;
    const hamiltonian = bound.hamiltonian();
    const wide = jumps.map(({ on, operator, rate }) => ({ operator: bound.onWhole(on, operator), rate }));
    const options = { duration: duration ?? bound.duration(), steps, method, gradient, dtype: precision };
    return (rho) => lindblad({ hamiltonian, jumps: wide }, rho, options);
  }

  /** What decay leaves of a gate: all operators on the computational states go through, and the map is judged. */
  #channel(bound: BoundDevice): GateOutcome {
    const { evolution, target } = this.spec;
    if (target.gate === null) throw new WeftError("target: needs a gate");
    const run = this.#decaying(bound);
    const states = computationalStates(bound);
    const frame = computationalFrame(bound, evolution.basis, evolution.precision);
    let last: Evolution | null = null;
    const map = (rho: Tensor): Tensor => {
      last = run(matmul(frame, matmul(rho, adjoint(frame))));
      return matmul(adjoint(frame), matmul(last.final, frame));
    };
    const matrix = choi(map, states.length, evolution.precision);
    const goal = compensatedTarget(matrix, target.gate, target.compensation);
    const measure = target.measure === "average" ? choiAverageFidelity : choiFidelity;
    const infidelity = measure(matrix, goal).neg().add(1);
    return {
      infidelity,
      leaked: choiLeakage(matrix),
      unitary: null,
      evolution: last!,
      check: () => checkInfidelity(infidelity, last!),
    };
  }

  /** From one product state to another, with decay or without. */
  #state(bound: BoundDevice): GateOutcome {
    const { evolution, target, jumps, device } = this.spec;
    if (target.states === null) throw new WeftError("target: needs states");
    const { precision } = evolution;
    const state = (label: string) =>
      basisState(
        bound.dims.reduce((a, b) => a * b, 1),
        numberOf([...label].map(Number), bound.dims),
      );
    const [from, to] = [state(target.states.from), state(target.states.to)];
    if (jumps.length === 0) {
      const run = evolve(bound, { ...evolution, dtype: precision });
      const at = (label: string) =>
        numberOf(
          [...label].map(Number),
          device.names.map((n) => device.parts[n].structure.computational),
        );
      const psi = run.unitary.index(":", at(target.states.from));
      return {
        infidelity: stateInfidelity(psi, basisState(psi.shape[0], at(target.states.to))),
        leaked: leakage(run),
        unitary: null,
        evolution: run,
        check: () => run.check(),
      };
    }
    const run = this.#decaying(bound)(from.mul(from.adjoint()).tensor(precision));
    const infidelity = stateFidelity(run.final, to).neg().add(1);
    return {
      infidelity,
      leaked: null,
      unitary: null,
      evolution: run,
      check: () => checkInfidelity(infidelity, run),
    };
  }
}

function checkInfidelity(infidelity: Tensor, { method, steps }: Evolution): void {
  const value = infidelity.itemSync();
  if (!(value > -1e-6 && value < 1 + 1e-6))
    throw new WeftError(
      `evolve: the infidelity ${value} is not between 0 and 1 after ${steps} steps of ${method.name}; use more steps or rk4`,
    );
}
