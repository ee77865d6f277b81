// Trotter steps of a Hamiltonian: merging of terms, layers of commuting gates, and steps of second and fourth order. Drives are
// split from the static part, because with smooth pulses this splitting converges faster.
import { adjoint, arange, eigh, kron, matmul, stack, type Tensor, tensor } from "@weft/core/internal/tensor";
import { identityOperator } from "../operators/index.js";
import { hermitianExponential } from "./exponential.js";
import type { GateProgram, Slot } from "./gates.js";
import { type Method, suzukiParts } from "./methods.js";
import {
  drivesAt,
  driveTable,
  type Grid,
  type Hamiltonian,
  type HamiltonianTerm,
  levelsOf,
  matrixOf,
} from "./problem.js";
import { extractStepAngles } from "./step-angles.js";

interface LocalTerm {
  sites: readonly number[];
  matrix: Tensor;
}
/** Terms on disjoint sites: their gates commute. */
type Layer = LocalTerm[];

const overlaps = (a: readonly number[], b: readonly number[]): boolean => a.some((s) => b.includes(s));
const sameSites = (a: readonly number[], b: readonly number[]): boolean => a.join() === b.join();

/** A one-site term on more sites. */
function widen(dims: readonly number[], term: LocalTerm, sites: readonly number[], grid: Grid): Tensor {
  if (sameSites(term.sites, sites)) return term.matrix;
  const at = term.sites[0];
  const parts = sites.map((s) => (s === at ? term.matrix : identityOperator(dims[s]).tensor(grid.complex)));
  return parts.reduce((a, b) => kron(a, b));
}

/** One gate per term, in the given order. */
const termLayers = (terms: readonly LocalTerm[]): Layer[] => terms.map((term) => [term]);

/** Adds terms on the same sites, merges one-site terms into the first pair with their site, and groups disjoint pairs. */
function mergedLayers(dims: readonly number[], terms: readonly LocalTerm[], grid: Grid): Layer[] {
  const wide: LocalTerm[] = [];
  const add = (sites: readonly number[], matrix: Tensor): void => {
    const known = wide.find((w) => sameSites(w.sites, sites));
    if (known === undefined) wide.push({ sites, matrix });
    else known.matrix = known.matrix.add(matrix);
  };
  for (const term of terms) if (term.sites.length > 1) add(term.sites, term.matrix);
  const layers: Layer[] = [];
  for (const term of [...wide].sort((a, b) => a.sites[0] - b.sites[0])) {
    const free = layers.find((layer) => layer.every((other) => !overlaps(other.sites, term.sites)));
    if (free === undefined) layers.push([term]);
    else free.push(term);
  }
  for (const term of terms) {
    if (term.sites.length > 1) continue;
    // The first layer covers most sites, so it receives the energies; other layers hold couplings only.
    const host = layers.flat().find((other) => other.sites.includes(term.sites[0]));
    if (host !== undefined) host.matrix = host.matrix.add(widen(dims, term, host.sites, grid));
    else {
      const first = layers[0] ?? [];
      if (layers.length === 0) layers.push(first);
      first.push({ ...term });
    }
  }
  return layers;
}

interface DriveGroup {
  sites: readonly number[];
  members: number[];
}

/** Groups drives on the same sites. */
function groupDrives(drives: readonly HamiltonianTerm[]): DriveGroup[] {
  const groups: DriveGroup[] = [];
  drives.forEach(({ sites }, k) => {
    const known = groups.find((g) => sameSites(g.sites, sites));
    if (known === undefined) groups.push({ sites, members: [k] });
    else known.members.push(k);
  });
  return groups;
}

type Frames = ReadonlyMap<number, { values: Tensor; vectors: Tensor }>;

/** Groups of indices with equal keys, in order of appearance. */
function alike<T>(items: readonly T[], key: (item: T) => unknown): number[][] {
  const groups = new Map<unknown, number[]>();
  items.forEach((item, i) => {
    groups.set(key(item), [...(groups.get(key(item)) ?? []), i]);
  });
  return [...groups.values()];
}

/** Eigendecompositions of drives by site; drives of one size are solved as one batch. */
function eigenframes(drives: readonly { site: number; matrix: Tensor }[]): Frames {
  const frames = new Map<number, { values: Tensor; vectors: Tensor }>();
  for (const group of alike(drives, ({ matrix }) => matrix.shape[0])) {
    const { values, vectors } = eigh(stack(group.map((i) => drives[i].matrix)));
    group.forEach((i, k) => {
      frames.set(drives[i].site, { values: values.index(k), vectors: vectors.index(k) });
    });
  }
  return frames;
}

/** exp(-i length h term) of all requests in the eigenbases of the drives; gates of one size are computed as one batch. */
function exponentials(
  dims: readonly number[],
  requests: readonly (LocalTerm & { length: number })[],
  grid: Grid,
  frames: Frames,
): Tensor[] {
  const gates: Tensor[] = [];
  for (const group of alike(requests, ({ sites }) => sites.map((s) => dims[s]).join())) {
    const lengths = tensor(
      group.map((i) => requests[i].length),
      { dtype: grid.real },
    );
    let batch = hermitianExponential(stack(group.map((i) => requests[i].matrix)), grid.h.mul(lengths));
    if (group.some((i) => requests[i].sites.some((s) => frames.has(s)))) {
      const frame = requests[group[0]].sites
        .map((_, k) =>
          stack(
            group.map((i) => {
              const site = requests[i].sites[k];
              return frames.get(site)?.vectors ?? identityOperator(dims[site]).tensor(grid.complex);
            }),
          ),
        )
        .reduce((a, b) => {
          const [count, m, n] = [group.length, a.shape[1], b.shape[1]];
          return a
            .reshape([count, m, 1, m, 1])
            .mul(b.reshape([count, 1, n, 1, n]))
            .reshape([count, m * n, m * n]);
        });
      batch = matmul(adjoint(frame), matmul(batch, frame));
    }
    group.forEach((i, k) => {
      gates[i] = batch.index(k);
    });
  }
  return gates;
}

interface TrotterProgram {
  program: GateProgram;
  /** Change of basis and half of the first layer, before the first step and after the last. */
  enter(state: Tensor): Tensor;
  leave(state: Tensor): Tensor;
}

/** The gates of all steps. `apply` applies a matrix to some sites of a state. */
export function trotterProgram(
  h: Hamiltonian,
  grid: Grid,
  method: Method,
  apply: (sites: readonly number[], gate: Tensor, state: Tensor) => Tensor,
): TrotterProgram {
  const { dims } = h;
  const parts = method.name === "trotter4" ? suzukiParts : [1];
  const u = driveTable(h, grid, method.stages);
  const amplitude = (k: number, part: number): Tensor => u.index(":", u.shape[1] === 1 ? 0 : part, k);
  const groups = groupDrives(h.drives);
  const disjoint = groups.every((g, i) => groups.every((o, j) => i === j || !overlaps(g.sites, o.sites)));

  // The only drive of a site is diagonal in its eigenbasis; the static gates are transformed into that basis.
  const lone = disjoint ? groups.filter(({ sites, members }) => sites.length === 1 && members.length === 1) : [];
  const frames = eigenframes(
    lone.map(({ sites, members }) => ({ site: sites[0], matrix: matrixOf(h.drives[members[0]].matrix, grid.complex) })),
  );

  const at = arange(0, grid.steps, 1, { dtype: "float64" });
  const program: GateProgram = { dims, slots: [], fixed: [], tables: [], angles: [], at, stepAngles: null };
  /** Angles of each slot as a function of the drives at the stages of one step, [stages, K]. */
  const fromDrives: ((u: Tensor) => Tensor)[] = [];
  const slots: Slot[] = [];
  const terms = h.static.map(({ sites, matrix }) => ({ sites, matrix: matrixOf(matrix, grid.complex) }));
  const layers = method.splitting === "terms" ? termLayers(terms) : mergedLayers(dims, terms, grid);
  const requests: (LocalTerm & { key: string; length: number })[] = [];
  /** Index of the gate exp(-i length h term) among the requests. */
  const gateOf = (layer: number, at: number, length: number): number => {
    const key = `${layer} ${at} ${length.toPrecision(15)}`;
    const known = requests.findIndex((r) => r.key === key);
    return known >= 0 ? known : requests.push({ ...layers[layer][at], key, length }) - 1;
  };
  const pushLayer = (layer: number, length: number): void =>
    layers[layer].forEach(({ sites }, at) => {
      slots.push({ sites, kind: "fixed", index: gateOf(layer, at, length) });
    });
  const pushDrives = (part: number): void => {
    const length = grid.h.mul(parts[part]);
    const half = (group: DriveGroup, scale: number): void => {
      const { sites, members } = group;
      const frame = sites.length === 1 ? frames.get(sites[0]) : undefined;
      if (frame !== undefined) {
        const angle = amplitude(members[0], part).mul(length.mul(scale));
        const index = program.angles.push(angle.unsqueeze(1).mul(frame.values.unsqueeze(0))) - 1;
        const stage = u.shape[1] === 1 ? 0 : part;
        fromDrives.push((now) => now.index(stage, members[0]).mul(length.mul(scale)).mul(frame.values));
        slots.push({ sites, kind: "phases", index });
        return;
      }
      const m = levelsOf(dims, sites);
      const sum = members
        .map((k) => matrixOf(h.drives[k].matrix, grid.complex).mul(amplitude(k, part).reshape([grid.steps, 1, 1])))
        .reduce((a, b) => a.add(b))
        .reshape([grid.steps, m, m]);
      const index = program.tables.push(hermitianExponential(sum, length.mul(scale))) - 1;
      slots.push({ sites, kind: "table", index });
    };
    if (disjoint) for (const group of groups) half(group, 1);
    else {
      for (const group of groups) half(group, 0.5);
      for (const group of [...groups].reverse()) half(group, 0.5);
    }
  };

  // Each second-order part is layers, drives, reversed layers. Adjacent first layers of consecutive parts and steps are merged
  // into one gate.
  const last = parts.length - 1;
  parts.forEach((part, s) => {
    for (let l = 1; l < layers.length; l++) pushLayer(l, part / 2);
    pushDrives(s);
    for (let l = layers.length - 1; l >= 1; l--) pushLayer(l, part / 2);
    if (layers.length > 0) pushLayer(0, (part + parts[s === last ? 0 : s + 1]) / 2);
  });
  const rimGates = (layers[0] ?? []).map((_, at) => gateOf(0, at, parts[0] / 2));
  const gates = exponentials(dims, requests, grid, frames);
  const rim = rimGates.map((index) => ({ sites: requests[index].sites, gate: gates[index] }));
  const used = new Set(slots.filter((s) => s.kind === "fixed").map((s) => s.index));
  // Gates that only the first and last step use are not part of the loop.
  const keep = gates.map((_, i) => i).filter((i) => used.has(i));
  const { amplitudes } = h;
  const hasStepAngles = typeof amplitudes === "function" && program.tables.length === 0 && fromDrives.length > 0;
  const inLoop: GateProgram = {
    ...program,
    stepAngles: hasStepAngles
      ? extractStepAngles((k) => {
          const now = drivesAt(h, grid, method.stages, k);
          return fromDrives.map((angle) => angle(now));
        })
      : null,
    fixed: keep.map((i) => gates[i]),
    slots: slots.map((s) => (s.kind === "fixed" ? { ...s, index: keep.indexOf(s.index) } : s)),
  };
  const turned = [...frames].map(([site, { vectors }]) => ({ site, vectors }));
  return {
    program: inLoop,
    enter: (state) =>
      rim.reduce(
        (psi, { sites, gate }) => apply(sites, gate, psi),
        turned.reduce((psi, { site, vectors }) => apply([site], adjoint(vectors), psi), state),
      ),
    leave: (state) =>
      turned.reduce(
        (psi, { site, vectors }) => apply([site], vectors, psi),
        rim.reduce((psi, { sites, gate }) => apply(sites, adjoint(gate), psi), state),
      ),
  };
}
