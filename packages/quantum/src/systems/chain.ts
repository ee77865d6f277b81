// Chains of fluxonium qubits, and pulses for single-qubit rotations and cross-resonance gates.
import { WeftError } from "@weft/core/internal/graph";
import type { Tensor } from "@weft/core/internal/tensor";
import { cosinePulse, type Pulse } from "../pulses/index.js";
import { type Coupling, type Drive, QuantumDevice, type QuantumDeviceFields } from "./device.js";
import { type DevicePart, Fluxonium } from "./parts.js";
import { dressedFrequency, dressedStates, stateIndex } from "./spectrum.js";

type PerQubit = number | readonly number[];

/** Parameters of a fluxonium chain. Lists repeat along the chain. @inline */
interface FluxoniumChainFields {
  /** Number of qubits. */
  qubits: number;
  /** Charging energy, GHz. */
  ec?: PerQubit;
  /** Josephson energy, GHz. */
  ej?: PerQubit;
  /** Inductive energy, GHz. */
  el?: PerQubit;
  /** External flux, radians. */
  phiExt?: PerQubit;
  /** Capacitive coupling of neighbors, GHz. */
  jc?: PerQubit;
  /** Inductive coupling of neighbors, GHz. */
  jl?: PerQubit;
  /** Levels of each qubit. */
  levels?: number;
  /** Pulses on every qubit: X, SX or none. Default: X. */
  gate?: "X" | "SX" | "none";
  /** Length of the pulses, ns. */
  length?: number;
  /** Fabrication factors by key, as in `QuantumDevice`. */
  spread?: QuantumDeviceFields["spread"];
  /** One parameter that replaces several: { name: [keys] }. */
  shared?: QuantumDeviceFields["shared"];
}

const pick = (values: PerQubit, i: number): number => (typeof values === "number" ? values : values[i % values.length]);

/** Rotation angles of the single-qubit gates, in units of 2 pi. */
const turns = { X: 0.5, SX: 0.25 } as const;

/** A device of qubits q0, q1, ... with couplings between neighbors. */
export class Chain extends QuantumDevice {
  /**
   * A chain of fluxonium qubits. Defaults: Ec 1, Ej 4, El 0.9, 1.0, 1.1 (repeating), half a flux quantum.
   *
   * @example
   * ```ts
   * import { averageGateInfidelity, Chain, compensate, evolve, gate } from "@weft/quantum";
   *
   * const chain = Chain.fluxonium({ qubits: 1 });
   * const run = evolve(chain, { steps: 500 });
   * const corrected = compensate(run, gate("X"), "virtual-z");
   * console.log(averageGateInfidelity(corrected, gate("X")).itemSync() < 1e-3); // true
   * ```
   */
  static fluxonium(fields: FluxoniumChainFields): Chain {
    const { qubits, ec = 1, ej = 4, el = [0.9, 1, 1.1], phiExt = Math.PI, jc = 0.02, jl = -0.002, levels = 2 } = fields;
    if (!Number.isInteger(qubits) || qubits < 1)
      throw new WeftError(`Chain.fluxonium: qubits must be a whole number >= 1, got ${qubits}`);
    const names = Array.from({ length: qubits }, (_, i) => `q${i}`);
    const parts: Record<string, DevicePart> = Object.fromEntries(
      names.map((name, i) => [
        name,
        new Fluxonium({ ec: pick(ec, i), ej: pick(ej, i), el: pick(el, i), phiExt: pick(phiExt, i), levels }),
      ]),
    );
    const couplings: Coupling[] = names
      .slice(1)
      .map((name, i) => ({ between: [names[i], name] as const, jc: pick(jc, i), jl: pick(jl, i) }));
    const { gate = "X", length = 50, spread, shared } = fields;
    if (gate === "none") return new Chain({ parts, couplings, spread, shared });
    // Pulses are tuned on a device without shared parameters, because these may be parameters of the pulses.
    const bare = new QuantumDevice({ parts, couplings, spread });
    return new Chain({ parts, couplings, spread, shared, drives: rotations(bare, gate, length) });
  }
}

/** Resonant cosine pulses on phi that rotate every part by pi (X) or pi/2 (SX). */
export function rotations(device: QuantumDevice, gate: keyof typeof turns, length: number): Drive[] {
  const levels = device.with({}).levels();
  return device.names.map((on) => {
    const { energies, phi } = levels[on];
    const omega = energies.index(1).sub(energies.index(0)).itemSync();
    const element = phi.index(0, 1).abs().itemSync();
    const amplitude = (turns[gate] * 4 * Math.PI) / (length * element);
    return { name: gate.toLowerCase(), on, pulse: cosinePulse({ amplitude, length, omega }) };
  });
}

/** Options of `crossResonance`. @inline */
interface CrossResonanceOptions {
  /** Length of the pulse, ns. */
  length?: number;
  /** Effective coupling in GHz that determines the amplitude. Default: computed from the dressed states. */
  effective?: number;
}

/**
 * Cosine pulse on the phi of the control at the dressed frequency of the target: a ZX rotation by pi/2. The amplitude
 * (pi / 2) |detuning| / (coupling length) is an initial guess for optimization.
 */
export function crossResonance(
  device: QuantumDevice,
  control: string,
  target: string,
  { length = 100, effective }: CrossResonanceOptions = {},
): Drive {
  const bound = device.with({});
  const [fc, ft] = [control, target].map((name) => dressedFrequency(bound, name).itemSync());
  const { states } = dressedStates(bound);
  const { dims } = bound;
  const { names } = device;
  const one = (name: string): number =>
    stateIndex(
      names.map((other) => (other === name ? 1 : 0)),
      dims,
    );
  /** Matrix element of an operator between the dressed ground state and the dressed excited state of a part. */
  const element = (operator: "n" | "phi", part: string): Tensor => {
    const wide = bound.onWhole(part, operator);
    const from = states.index(":", 0).unsqueeze(1);
    const to = states.index(":", one(part)).unsqueeze(1);
    return to.conj().mul(wide.matmul(from)).sum();
  };
  const coupling = device.couplings.find(({ between }) => between.includes(control) && between.includes(target));
  if (coupling === undefined) throw new WeftError(`crossResonance: ${control} and ${target} are not coupled`);
  // Charge and phase couplings have different phases, so their complex elements are added before the absolute value.
  const through = (operator: "n" | "phi", strength = 0): Tensor =>
    element(operator, control)
      .mul(element(operator, target))
      .mul(2 * Math.PI * strength);
  const strength =
    effective === undefined
      ? through("n", coupling.jc).add(through("phi", coupling.jl)).abs().itemSync()
      : 2 * Math.PI * effective;
  if (!(strength > 0))
    throw new WeftError(`crossResonance: the effective coupling of ${control} and ${target} is ${strength}`);
  const amplitude = ((Math.PI / 2) * Math.abs(fc - ft)) / strength / length;
  const pulse: Pulse = cosinePulse({ amplitude, length, omega: ft });
  return { name: "cr", on: control, pulse };
}
