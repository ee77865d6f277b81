// Dressed states: eigenstates of the coupled device, labeled by the product state with the largest overlap.
import { WeftError } from "@weft/core/internal/graph";
import { abs, conj, eigh, type Tensor, where } from "@weft/core/internal/tensor";
import { concreteValues } from "../concrete.js";
import type { BoundDevice } from "./device.js";

/** Level of each part in the product state of an index. */
export function levelsOfState(index: number, dims: readonly number[]): number[] {
  const digits: number[] = [];
  for (let k = dims.length - 1, left = index; k >= 0; k--) {
    digits[k] = left % dims[k];
    left = Math.floor(left / dims[k]);
  }
  return digits;
}
/** Index of the product state with these levels. */
export const stateIndex = (digits: readonly number[], dims: readonly number[]): number =>
  digits.reduce((sum, digit, k) => sum * dims[k] + digit, 0);

/** Indices of the product states in which every part is in a computational level. */
export function computationalStates(bound: BoundDevice): number[] {
  const sizes = bound.device.names.map((name) => bound.device.parts[name].structure.computational);
  const count = sizes.reduce((a, b) => a * b, 1);
  return Array.from({ length: count }, (_, i) => stateIndex(levelsOfState(i, sizes), bound.dims));
}

/** Eigenstates of a device, assigned to product states. */
export interface DressedStates {
  /** Energies of all eigenstates in ascending order, rad/ns above the ground states of the parts. */
  energies: Tensor;
  /** Eigenstates as columns [D, D] in the order of product states; the component on the own product state is positive. */
  states: Tensor;
  /** Index of the eigenstate of each product state: int32 [D]. */
  assignment: Tensor;
  /** Energies in the order of product states. */
  assigned: Tensor;
}

/** Eigenstates of the static device, each assigned to the product state with the largest overlap. */
export function dressedStates(bound: BoundDevice): DressedStates {
  const { values, vectors } = eigh(bound.staticMatrix());
  const assignment = abs(vectors).argmax(1);
  const chosen = vectors.take(assignment, 1);
  const own = chosen.diagonal();
  const size = abs(own);
  const empty = size.equal(0);
  const turn = where(empty, 1, conj(own).div(where(empty, 1, size)));
  return { energies: values, states: chosen.mul(turn.unsqueeze(0)), assignment, assigned: values.take(assignment, 0) };
}

/** One dressed level of a device. */
export interface SpectrumRow {
  /** Levels of the parts in the product state, one digit per part. */
  label: string;
  /** GHz above the lowest dressed state. */
  energy: number;
  /** Squared overlap of the product state with its dressed state. */
  overlap: number;
}

/**
 * Dressed levels of the computational states. Ambiguous labels (equal mixtures, degenerate levels) are errors.
 *
 * @example
 * ```ts
 * import { QuantumDevice, Qubit, Resonator, spectrum } from "@weft/quantum";
 *
 * const device = new QuantumDevice({
 *   parts: { q: new Qubit({ frequency: 5 }), r: new Resonator({ frequency: 6.5, levels: 6 }) },
 *   couplings: [{ between: ["q", "r"], jc: 0.05 }],
 * });
 * for (const { label, energy } of spectrum(device.with({}))) console.log(label, energy.toFixed(4), "GHz");
 * ```
 */
export function spectrum(bound: BoundDevice): SpectrumRow[] {
  const dressed = dressedStates(bound);
  const { dims } = bound;
  const states = computationalStates(bound);
  const energies = dressed.assigned.dataSync() as Float64Array;
  const overlaps = abs(dressed.states.diagonal()).square().dataSync() as Float64Array;
  checkAssignment(dressed, dims, states);
  const ground = energies[0];
  return states.map((s) => ({
    label: levelsOfState(s, dims).join(""),
    energy: (energies[s] - ground) / (2 * Math.PI),
    overlap: overlaps[s],
  }));
}

/** Throws if two product states share a dressed state, or if a dressed state is degenerate. */
export function checkAssignment(dressed: DressedStates, dims: readonly number[], states: readonly number[]): void {
  const assigned = concreteValues(dressed.assignment);
  const energies = concreteValues(dressed.energies);
  const overlaps = concreteValues(abs(dressed.states.diagonal()).square());
  if (assigned === null || energies === null || overlaps === null) return;
  const label = (s: number): string => `|${levelsOfState(s, dims).join("")}>`;
  const owner = new Map<number, number>();
  for (const s of states) {
    const other = owner.get(assigned[s]);
    if (other !== undefined)
      throw new WeftError(
        `spectrum: ${label(other)} and ${label(s)} resemble the same dressed state; they are mixed half and half. ` +
          "Detune the parts, weaken the coupling, or use basis: product",
      );
    owner.set(assigned[s], s);
    if (overlaps[s] < 0.5 + 1e-6)
      throw new WeftError(
        `spectrum: no dressed state resembles ${label(s)} (largest weight ${overlaps[s].toPrecision(3)}); it is mixed half ` +
          "and half. Detune the parts, weaken the coupling, or use basis: product",
      );
  }
  const scale = Math.max(...energies.map(Math.abs), 1);
  for (const s of states) {
    const k = assigned[s];
    const gap = Math.min(
      ...[k - 1, k + 1].filter((j) => j >= 0 && j < energies.length).map((j) => Math.abs(energies[j] - energies[k])),
    );
    if (gap < 1e-9 * scale)
      throw new WeftError(
        `spectrum: the dressed state of ${label(s)} is degenerate with another (gap ${gap.toExponential(1)} rad/ns): ` +
          "its state is not defined and has no gradient. Detune the parts or use basis: product",
      );
  }
}

/** Static ZZ interaction (E11 - E10 - E01 + E00) / 2 pi of two parts in GHz, with the others in their ground states. */
export function staticZZ(bound: BoundDevice, a: string, b: string): Tensor {
  const { names } = bound.device;
  const at = (levelA: number, levelB: number): number =>
    stateIndex(
      names.map((name) => (name === a ? levelA : name === b ? levelB : 0)),
      bound.dims,
    );
  const energies = dressedStates(bound).assigned;
  const e = (x: number, y: number): Tensor => energies.index(at(x, y));
  return e(1, 1)
    .sub(e(1, 0))
    .sub(e(0, 1))
    .add(e(0, 0))
    .div(2 * Math.PI);
}

/** Dressed angular frequency of a part in rad/ns, with the others in their ground states. */
export function dressedFrequency(bound: BoundDevice, part: string): Tensor {
  const { names } = bound.device;
  const excited = stateIndex(
    names.map((name) => (name === part ? 1 : 0)),
    bound.dims,
  );
  const energies = dressedStates(bound).assigned;
  return energies.index(excited).sub(energies.index(0));
}
