// Programs of the quantum suites: ensembles of control problems, a policy trained by first-order MAML, and the Pauli
// chain. Inputs come from the hash that peers/torch_quantum.py holds too.

import type { Tensor } from "@weft/core";
import * as weft from "@weft/core";
import * as quantum from "@weft/quantum";
import { uniformNumbers } from "./inputs.js";

export const segments = 60;
const policySizes = [3, 128, 128, 128, 120];
const oneStep = { method: "rk4", perSegment: 1 } as const;

/** Dephasing and relaxation rates of n tasks, [n, 2]. */
function ratesOf(n: number, saltDephasing: number, saltRelaxation: number): Float32Array {
  const [d, r] = [uniformNumbers(n, saltDephasing, 0.02, 0.15), uniformNumbers(n, saltRelaxation, 0.01, 0.08)];
  return Float32Array.from({ length: 2 * n }, (_, i) => (i % 2 === 0 ? d : r)[i >> 1]);
}

/** Pulses [b, 60, 2] and rates [b, 2]. The first task is the published test pulse, whose fidelity is known. */
export function ensembleInputs(b: number): { pulses: Tensor; rates: Tensor } {
  const pulses = new Float32Array(b * segments * 2);
  const [x, y] = [uniformNumbers(b * segments, 1), uniformNumbers(b * segments, 2)];
  for (let i = 0; i < b * segments; i++) {
    const angle = (2 * Math.PI * i) / segments;
    pulses[2 * i] = (Math.PI / 2) * (1 + 0.1 * (i < segments ? Math.sin(angle) : x[i]));
    pulses[2 * i + 1] = 0.2 * (i < segments ? Math.cos(angle) : y[i]);
  }
  const rates = ratesOf(b, 3, 4);
  rates.set([0.05, 0.025]);
  return { pulses: weft.tensor(pulses, { shape: [b, segments, 2] }), rates: weft.tensor(rates, { shape: [b, 2] }) };
}

/** Infidelity of a bit flip of one qubit for one pulse and its rates. */
export function flipInfidelity(): (pulse: Tensor, rates: Tensor) => Tensor {
  const problem = quantum.prepareProblem(quantum.qubitFlip({ segments }));
  return (pulse, rates) => quantum.controlInfidelity(problem, oneStep, pulse, rates);
}

/** Infidelity of the controlled-Z: twelve states of two qubits, two RK4 steps per segment. */
export function controlledZInfidelity(): (pulse: Tensor, rates: Tensor) => Tensor {
  const problem = quantum.prepareProblem(quantum.controlledZ());
  return (pulse, rates) => quantum.controlInfidelity(problem, { method: "rk4", perSegment: 2 }, pulse, rates);
}

export const controlledZInputs = (b: number): { pulses: Tensor; rates: Tensor } => ({
  pulses: weft.tensor(uniformNumbers(b * 30 * 6, 20, -2, 2), { shape: [b, 30, 6] }),
  rates: weft.tensor(ratesOf(b, 3, 4), { shape: [b, 2] }),
});

export interface TaskTensors {
  rates: Tensor;
  features: Tensor;
}

/** TaskTensors of iteration i: rates [n, 2] and features [n, 3]. */
export function taskBatch(n: number, i: number): TaskTensors {
  const rates = ratesOf(n, 100 + 2 * i, 101 + 2 * i);
  const features = new Float32Array(3 * n);
  for (let k = 0; k < n; k++) {
    const [d, r] = [rates[2 * k], rates[2 * k + 1]];
    features.set([d / 0.1, r / 0.05, (d + r) / 0.15], 3 * k);
  }
  return { rates: weft.tensor(rates, { shape: [n, 2] }), features: weft.tensor(features, { shape: [n, 3] }) };
}

/** Initial policy with 49,016 parameters. */
export const policyParameters = (): quantum.PolicyParameters => ({
  layers: policySizes.slice(1).map((out, i) => {
    const inputs = policySizes[i];
    const bound = 1 / Math.sqrt(inputs);
    const weight = uniformNumbers(out * inputs, 50 + i, -bound, bound);
    return { weight: weft.tensor(weight, { shape: [out, inputs] }), bias: weft.zeros([out]) };
  }),
});

/** Gradient of the loss after five adaptation steps per task. */
export function adaptationGradient(params: quantum.PolicyParameters, tasks: TaskTensors, order: 1 | 2) {
  const infidelity = flipInfidelity();
  const shape = { width: 128, hidden: 2, segments, controls: 2 };
  const loss = (p: quantum.PolicyParameters, task: TaskTensors): Tensor =>
    infidelity(quantum.policy.apply(p, task.features, shape), task.rates);
  return quantum.metaGradient(loss, params, tasks, { steps: 5, rate: 0.01, order });
}

const chainDuration = 50;
const f64 = { dtype: "float64" } as const;

export type ChainParameters = { amp: Tensor; jc: Tensor; jl: Tensor };

export const chainParameters = (n: number): ChainParameters => ({
  amp: weft.full([n], 0.13, f64),
  jc: weft.tensor(0.02, f64),
  jl: weft.tensor(-0.01, f64),
});

/**
 * X on every qubit of a Pauli chain: n two-level qubits with YY and XX couplings and driven X terms, complex128, loss
 * 1 - |tr(X^H U)|^2 / 4^n. The Hamiltonian is given by Pauli matrices: there is no circuit and no eigenvalue problem, so
 * this is not the fluxonium chain of `Chain.fluxonium`.
 */
export function pauliChainLoss(
  n: number,
  options: { steps: number; chunks?: number; strategy?: "gates" | "dense" },
): (p: ChainParameters) => Tensor {
  const frequencies = Array.from({ length: n }, (_, i) => 2 * Math.PI * (0.5 + 0.08 * i));
  const pairs = Array.from({ length: n - 1 }, (_, i) => [i, i + 1]);
  const omega = weft.tensor(frequencies, f64);
  const hamiltonian = (p: ChainParameters): quantum.Hamiltonian => ({
    dims: frequencies.map(() => 2),
    static: [
      ...frequencies.map((w, i) => ({ sites: [i], matrix: quantum.sigmaZ.scale(-w / 2) })),
      ...pairs.map((sites) => ({ sites, matrix: quantum.pauli("YY").tensor().mul(p.jc) })),
      ...pairs.map((sites) => ({ sites, matrix: quantum.pauli("XX").tensor().mul(p.jl) })),
    ],
    drives: frequencies.map((_, i) => ({ sites: [i], matrix: quantum.sigmaX })),
    amplitudes: (t: Tensor) => {
      const phase = t.mul((2 * Math.PI) / chainDuration).cos();
      const envelope = phase.neg().add(1).mul(0.5).unsqueeze(1);
      return envelope.mul(p.amp).mul(t.unsqueeze(1).mul(omega).cos());
    },
  });
  return (p) => {
    const { final } = quantum.propagator(hamiltonian(p), { duration: chainDuration, ...options });
    const overlap = quantum.pauli("X".repeat(n)).tensor().mul(final).sum();
    return overlap
      .abs()
      .square()
      .div(-(4 ** n))
      .add(1);
  };
}

/** A chain of fluxonium qubits with X pulses that share one length. */
export const fluxoniumChain = (n: number): quantum.Chain =>
  quantum.Chain.fluxonium({
    qubits: n,
    ...(n > 1 && { shared: { length: Array.from({ length: n }, (_, k) => `q${k}.x.length`) } }),
  });

/**
 * Process infidelity of X on every qubit of a fluxonium chain as a function of all its parameters: circuits are diagonalized on 400
 * phases, then coupled and driven; complex128.
 */
export function fluxoniumLoss(n: number, steps: number): (p: quantum.DeviceParameters) => Tensor {
  const chain = fluxoniumChain(n);
  const target = quantum.pauli("X".repeat(n)).tensor();
  return (p) => {
    const { unitary } = quantum.evolve(chain.with(p), { steps });
    return target
      .mul(unitary)
      .sum()
      .abs()
      .square()
      .div(-(4 ** n))
      .add(1);
  };
}
