// Dressed states: the eigenstates of the coupled device, each given the label of the product state that it resembles most.
import { WeftError } from "@weft/core/internal/graph";
import { abs, conj, eigh, type Tensor, where } from "@weft/core/internal/tensor";
import { concreteValues } from "../concrete.js";
import type { BoundDevice } from "./device.js";

/** Digits of a state's number, one a part. */
export function levelsOfState(index: number, dims: readonly number[]): number[] {
  const digits: number[] = [];
  for (let k = dims.length - 1, left = index; k >= 0; k--) {
    digits[k] = left % dims[k];
    left = Math.floor(left / dims[k]);
  }
  return digits;
}
export const stateIndex = (digits: readonly number[], dims: readonly number[]): number =>
  digits.reduce((sum, digit, k) => sum * dims[k] + digit, 0);

/** Numbers of the product states in which every part is in a computational level. */
export function computationalStates(bound: BoundDevice): number[] {
  const sizes = bound.device.names.map((name) => bound.device.parts[name].structure.computational);
  const count = sizes.reduce((a, b) => a * b, 1);
  return Array.from({ length: count }, (_, i) => stateIndex(levelsOfState(i, sizes), bound.dims));
}

export interface DressedStates {
  /** Energies of all eigenstates, ascending, rad/ns above the ground states of the parts. */
  energies: Tensor;
  /** Eigenstates in columns, in the order of product states, each with a positive component on its own. [D, D] */
  states: Tensor;
  /** The eigenstate (number) of each product state: int32 [D]. */
  assignment: Tensor;
  /** Energies in the order of product states. */
  assigned: Tensor;
}

/** Eigenstates of the static device, each product state's own being that with the largest weight on it. */
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

export interface SpectrumRow {
  label: string;
  /** GHz above the lowest dressed state. */
  energy: number;
  /** Weight of the product state in its dressed state. */
  overlap: number;
}

/** The dressed levels of the computational states as numbers; two labels on one state are an error. */
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

/** Refuses what cannot be told apart: two product states with one dressed state, or two dressed states of one energy. */
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

/** (E11 - E10 - E01 + E00) / 2 pi of two parts with the others in their ground states: static ZZ, GHz. */
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

/** The dressed frequency of one part, the others in their ground states, rad/ns. */
export function dressedFrequency(bound: BoundDevice, part: string): Tensor {
  const { names } = bound.device;
  const excited = stateIndex(
    names.map((name) => (name === part ? 1 : 0)),
    bound.dims,
  );
  const energies = dressedStates(bound).assigned;
  return energies.index(excited).sub(energies.index(0));
}
