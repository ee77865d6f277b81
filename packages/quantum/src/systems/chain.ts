// Chains of fluxonium qubits with pulses for common gates: single-qubit rotations on every qubit, and cross resonance.
import { WeftError } from "@weft/core/internal/graph";
import type { Tensor } from "@weft/core/internal/tensor";
import { cosinePulse, type Pulse } from "../pulses/index.js";
import { type Coupling, type Drive, QuantumDevice, type QuantumDeviceFields } from "./device.js";
import { type DevicePart, Fluxonium } from "./parts.js";
import { dressedFrequency, dressedStates, stateIndex } from "./spectrum.js";

type PerQubit = number | readonly number[];

export interface FluxoniumChainFields {
  qubits: number;
  /** GHz; lists repeat along the chain. */
  ec?: PerQubit;
  ej?: PerQubit;
  el?: PerQubit;
  /** Radians. */
  phiExt?: PerQubit;
  /** Capacitive and inductive coupling of neighbors, GHz. */
  jc?: PerQubit;
  jl?: PerQubit;
  levels?: number;
  /** Pulses at the start: X or SX on every qubit, or none. */
  gate?: "X" | "SX" | "none";
  /** Length of the pulses, ns. */
  length?: number;
  /** Factors of fabrication by key, as in Device. */
  spread?: QuantumDeviceFields["spread"];
  shared?: QuantumDeviceFields["shared"];
}

const pick = (values: PerQubit, i: number): number => (typeof values === "number" ? values : values[i % values.length]);

/** Rotation angles of the single-qubit gates, in turns. */
const turns = { X: 0.5, SX: 0.25 } as const;

export class Chain extends QuantumDevice {
  /** Fluxonium qubits q0, q1, ... in a row. Defaults: Ec 1, Ej 4, El 0.9, 1.0, 1.1 repeating, half a flux quantum. */
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
    // Shared parameters may be those of the pulses to come: the device that they are tuned on has none.
    const bare = new QuantumDevice({ parts, couplings, spread });
    return new Chain({ parts, couplings, spread, shared, drives: rotations(bare, gate, length) });
  }
}

/** Resonant cosine pulses on phi that turn every part by half a turn (X) or a quarter (SX). */
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

export interface CrossResonanceOptions {
  /** ns */
  length?: number;
  /** GHz: the effective coupling that the amplitude is chosen for; computed from the dressed states where it is left out. */
  effective?: number;
}

/**
 * A cosine pulse on the control's phi at the target's dressed frequency: a ZX rotation by a quarter turn. Its amplitude is
 * (pi / 2) |detuning| / (coupling length), a first guess for an optimizer.
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
  /** <excited part| operator of the part |ground> between dressed states. */
  const element = (operator: "n" | "phi", part: string): Tensor => {
    const wide = bound.onWhole(part, operator);
    const from = states.index(":", 0).unsqueeze(1);
    const to = states.index(":", one(part)).unsqueeze(1);
    return to.conj().mul(wide.matmul(from)).sum();
  };
  const coupling = device.couplings.find(({ between }) => between.includes(control) && between.includes(target));
  if (coupling === undefined) throw new WeftError(`crossResonance: ${control} and ${target} are not coupled`);
  // The two couplings have their own phases: elements are complex until they are added.
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
