// Parts of a device (fluxonium, transmon, resonator, Duffing oscillator, two-level qubit): levels and matrix elements from circuit
// parameters. Parameters are in GHz, levels in rad/ns, flux in radians.
import { WeftError } from "@weft/core/internal/graph";
import {
  angle,
  ceil,
  complex,
  cos,
  diag,
  eigh,
  full,
  matmul,
  sin,
  sqrt,
  stack,
  stopGradient,
  type Tensor,
  tensor,
  where,
  zerosLike,
} from "@weft/core/internal/tensor";
import { destroy, type Operator } from "../operators/index.js";

type PartParameters = Readonly<Record<string, Tensor>>;

/** Largest number of levels and of points of a grid: matrices of this size are diagonalized. */
const largestGrid = 4096;

/** Lowest eigenstates of a part: energies [levels] in rad/ns, charge and phase operators [levels, levels]. */
export interface PartLevels {
  /** Energies of the levels in rad/ns. */
  energies: Tensor;
  /** Charge operator between the levels. */
  n: Tensor;
  /** Phase operator between the levels. */
  phi: Tensor;
}

/** Settings of a part that determine the shapes of the program; they have no gradient. */
export interface PartStructure {
  /** Number of levels that are kept. */
  levels: number;
  /** Number of computational levels; population of the others is leakage. */
  computational: number;
  /** Where the external flux enters (fluxonium). */
  fluxOn: "inductor" | "junction";
  /** Points of the phase grid (fluxonium) or charge states (transmon). */
  points: number;
  /** The phase grid runs from -range to range (fluxonium). */
  range: number;
  /** Whether energies include the zero-point energy (resonator). */
  zeroPoint: boolean;
}

interface PartRule {
  /** Parameters and defaults; null marks required ones. */
  parameters: Readonly<Record<string, number | null>>;
  structure: Partial<PartStructure>;
  solve(p: PartParameters, s: PartStructure): PartLevels;
}

const twoPi = 2 * Math.PI;
const f64 = { dtype: "float64" } as const;

/** Matrices of n^2 and n in the phase representation, and the grid points. */
interface PhaseGrid {
  kinetic: Float64Array;
  chargeRe: Float64Array;
  chargeIm: Float64Array;
  points: Float64Array;
  /** Real and imaginary parts of plane waves of the largest charges, one per row. */
  waves: readonly [Float64Array, Float64Array];
}
const grids = new Map<string, PhaseGrid>();

/** Number of points at each end of a grid where states that fit have no weight. */
const rimOf = (count: number): number => Math.ceil(count / 50);
/** Rows at both ends of a matrix. */
const rim = (v: Tensor, width: number): Tensor[] => [v.index(`0:${width}`), v.index(`${v.shape[0] - width}:`)];

/** Energies, or NaN if a state has more than `most` of its weight in some rows, which are the ends of its grid. */
const onGrid = (energies: Tensor, rows: readonly Tensor[], most: number): Tensor => {
  const weight = rows.map((x) => x.square().sum(0)).reduce((a, b) => a.add(b));
  return where(stopGradient(weight).max().lessEqual(most), energies, Number.NaN);
};

/** The part of a number that is not a multiple of `period`, from -period / 2 to period / 2. */
const wrapped = (x: Tensor, period: number): Tensor => x.sub(nearest(x, period));
const nearest = (x: Tensor, period: number): Tensor => stopGradient(ceil(x.div(period).sub(0.5)).mul(period));

function phaseGrid(count: number, range: number): PhaseGrid {
  const key = `${count} ${range}`;
  const cached = grids.get(key);
  if (cached !== undefined) return cached;
  // A grid of N points over 2 range resolves charges up to pi N / (2 range).
  const nMax = (Math.PI * count) / (2 * range);
  const charges = Float64Array.from({ length: count }, (_, k) => -nMax + (2 * nMax * k) / count);
  const points = Float64Array.from({ length: count }, (_, j) => -range + (2 * range * j) / count);
  const rows = { kinetic: new Float64Array(count), re: new Float64Array(count), im: new Float64Array(count) };
  for (let distance = 0; distance < count; distance++) {
    const delta = (2 * range * distance) / count;
    for (const n of charges) {
      rows.kinetic[distance] += (n * n * Math.cos(n * delta)) / count;
      rows.re[distance] += (n * Math.cos(n * delta)) / count;
      rows.im[distance] += (n * Math.sin(n * delta)) / count;
    }
  }
  const toeplitz = (row: Float64Array, mirror: number): Float64Array =>
    Float64Array.from({ length: count * count }, (_, at) => {
      const distance = Math.floor(at / count) - (at % count);
      return distance >= 0 ? row[distance] : mirror * row[-distance];
    });
  const outer = [...charges.slice(0, rimOf(count)), ...charges.slice(count - rimOf(count))];
  const wave = (part: (x: number) => number): Float64Array =>
    Float64Array.from(outer.flatMap((n) => Array.from(points, (x) => part(n * x) / Math.sqrt(count))));
  const grid = {
    waves: [wave(Math.cos), wave(Math.sin)] as const,
    kinetic: toeplitz(rows.kinetic, 1),
    chargeRe: toeplitz(rows.re, 1),
    chargeIm: toeplitz(rows.im, -1),
    points,
  };
  grids.set(key, grid);
  return grid;
}

const square = (data: Float64Array, n: number): Tensor => tensor(data, { shape: [n, n] });

/** Fixes the phases of the eigenstates so that <i|n|i+1> is real and positive; applied to both operators. */
function fixPhases(n: Tensor, phi: Tensor): { n: Tensor; phi: Tensor } {
  const [levels] = n.shape;
  if (levels === 1) return { n, phi };
  const steps = Array.from({ length: levels - 1 }, (_, i) => angle(n.index(i, i + 1)));
  const phases = stack([zerosLike(steps[0]), ...steps])
    .cumsum(0)
    .neg();
  const turn = complex(cos(phases), sin(phases));
  const around = (m: Tensor): Tensor => turn.conj().unsqueeze(1).mul(m).mul(turn.unsqueeze(0));
  return { n: around(n), phi: around(phi) };
}

/** Matrix elements v^T (re + i im) v between real states. */
const elements = (v: Tensor, re: Tensor, im: Tensor | null): Tensor => {
  const between = (m: Tensor): Tensor => matmul(v.T, matmul(m, v));
  const real = between(re);
  return complex(real, im === null ? zerosLike(real) : between(im));
};

function solveFluxonium(p: PartParameters, s: PartStructure): PartLevels {
  const { points: count, levels } = s;
  const grid = phaseGrid(count, s.range);
  const points = tensor(grid.points, f64);
  const onJunction = s.fluxOn === "junction";
  // The whole is periodic in the flux; the grid is around the well of the smallest one.
  const centered = onJunction ? points : points.add(wrapped(p.phiExt, twoPi));
  const well = centered.square().mul(p.el.mul(0.5));
  const washboard = cos(onJunction ? points.sub(p.phiExt) : points).mul(p.ej);
  const h = square(grid.kinetic, count)
    .mul(p.ec.mul(4))
    .add(diag(well.sub(washboard)));
  const { values, vectors } = eigh(h);
  const v = vectors.index(":", `0:${levels}`);
  const n = elements(v, square(grid.chargeRe, count), square(grid.chargeIm, count));
  const phi = complex(matmul(v.T, centered.unsqueeze(1).mul(v)), full([levels, levels], 0, f64));
  const outer = grid.waves.map((wave) => matmul(tensor(wave, { shape: [wave.length / count, count] }), v));
  const energies = onGrid(values.index(`0:${levels}`), [...rim(v, rimOf(count)), ...outer], 1e-6);
  return { energies: energies.mul(twoPi), ...fixPhases(n, phi) };
}

function solveTransmon(p: PartParameters, s: PartStructure): PartLevels {
  const { points: count, levels } = s;
  const nMax = count / 2;
  const charges = Float64Array.from({ length: count }, (_, k) => k - nMax);
  const half = p.phiExt.mul(0.5);
  const ej = p.ej.mul(
    sqrt(
      cos(half)
        .square()
        .add(p.asymmetry.mul(sin(half)).square()),
    ),
  );
  const hop = Float64Array.from({ length: count * count }, (_, at) =>
    Math.abs(Math.floor(at / count) - (at % count)) === 1 ? 0.5 : 0,
  );
  // Charges around that of the gate.
  const n = tensor(charges, f64).add(nearest(p.ng, 1));
  const h = diag(n.sub(p.ng).square().mul(p.ec.mul(4))).sub(square(hop, count).mul(ej));
  const { values, vectors } = eigh(h);
  const v = vectors.index(":", `0:${levels}`);
  const phase = Float64Array.from({ length: count * count }, (_, at) => {
    const k = Math.floor(at / count) - (at % count);
    return k === 0 ? 0 : (k % 2 === 0 ? 1 : -1) / k;
  });
  const charge = complex(matmul(v.T, n.unsqueeze(1).mul(v)), full([levels, levels], 0, f64));
  const phi = elements(v, full([count, count], 0, f64), square(phase, count));
  const energies = onGrid(values.index(`0:${levels}`), rim(v, 1), 1e-9);
  return { energies: energies.mul(twoPi), ...fixPhases(charge, phi) };
}

/** Oscillator levels with n = a + a^H and phi = i (a - a^H). */
function ladder(energies: (k: Tensor) => Tensor, levels: number): PartLevels {
  const a = destroy(levels);
  const k = tensor(
    Array.from({ length: levels }, (_, i) => i),
    f64,
  );
  const phi: Operator = a.sub(a.adjoint()).scale({ re: 0, im: 1 });
  return { energies: energies(k).mul(twoPi), n: a.add(a.adjoint()).tensor(), phi: phi.tensor() };
}

const usualRange = 5 * Math.PI;

/** Grid on which the levels of a fluxonium fit: the turning point of the highest one, half a period of the flux, and the tail of a state. */
function fluxoniumGrid({ ec, ej, el }: Readonly<Record<string, number>>, levels: number): Partial<PartStructure> {
  const top = levels * Math.sqrt(8 * ec * el) + ej;
  const extent = Math.sqrt((2 * top) / el) + Math.PI + (2.5 * ((8 * ec) / el) ** 0.25) / Math.SQRT2;
  const times = Math.min(10, Math.max(1, Math.ceil(extent / usualRange)));
  return { points: 400 * times, range: usualRange * times };
}

/** Kinds of parts. */
export type PartKind = "fluxonium" | "transmon" | "resonator" | "duffing" | "qubit";

export const partRules: Readonly<Record<PartKind, PartRule>> = {
  fluxonium: {
    parameters: { ec: null, ej: null, el: null, phiExt: 0 },
    structure: { points: 400, range: usualRange },
    solve: solveFluxonium,
  },
  transmon: {
    parameters: { ec: null, ej: null, phiExt: 0, asymmetry: 0, ng: 0 },
    structure: { points: 62 },
    solve: solveTransmon,
  },
  resonator: {
    parameters: { frequency: null },
    structure: { computational: 1 },
    solve: (p, s) => ladder((k) => (s.zeroPoint ? k.add(0.5) : k).mul(p.frequency), s.levels),
  },
  duffing: {
    parameters: { frequency: null, anharmonicity: null },
    structure: {},
    solve: (p, s) => ladder((k) => k.mul(p.frequency).add(k.mul(k.sub(1)).mul(p.anharmonicity.mul(0.5))), s.levels),
  },
  qubit: {
    parameters: { frequency: null },
    structure: { levels: 2 },
    solve: (p, s) => ladder((k) => k.mul(p.frequency), s.levels),
  },
};

const structureDefaults: PartStructure = {
  levels: 5,
  computational: 2,
  fluxOn: "inductor",
  points: 0,
  range: 0,
  zeroPoint: false,
};

type PartFields = Partial<PartStructure> & Readonly<Record<string, number | string | boolean | undefined>>;

/** One part of a device. `Fluxonium`, `Transmon`, `Resonator`, `Duffing` and `Qubit` are typed constructors. */
export class DevicePart {
  /** Energies and other parameters. */
  readonly parameters: Readonly<Record<string, number>>;
  /** Numbers of levels, and what does not change by optimization. */
  readonly structure: PartStructure;

  constructor(
    /** Kind of the part. */
    readonly kind: PartKind,
    fields: PartFields,
  ) {
    const rule = partRules[kind];
    if (rule === undefined)
      throw new WeftError(`part: there is no kind "${String(kind)}"; known: ${Object.keys(partRules).join(", ")}`);
    const parameters: Record<string, number> = {};
    const structure: Record<string, unknown> = { ...structureDefaults, ...rule.structure };
    for (const [name, value] of Object.entries(fields)) {
      if (value === undefined) continue;
      if (name in rule.parameters) {
        if (typeof value !== "number" || !Number.isFinite(value))
          throw new WeftError(`${kind}: ${name} must be a finite number, got ${String(value)}`);
        if ((["ec", "ej", "el"].includes(name) || (kind === "resonator" && name === "frequency")) && value <= 0)
          throw new WeftError(`${kind}: ${name} must be positive (GHz), got ${value}`);
        parameters[name] = value;
      } else if (name in structureDefaults) structure[name] = value;
      else
        throw new WeftError(
          `${kind}: there is no "${name}"; known: ${[...Object.keys(rule.parameters), ...Object.keys(structureDefaults)].join(", ")}`,
        );
    }
    for (const [name, fallback] of Object.entries(rule.parameters)) {
      if (name in parameters) continue;
      if (fallback === null) throw new WeftError(`${kind}: ${name} is missing; give it a number`);
      parameters[name] = fallback;
    }
    this.parameters = parameters;
    if (kind === "fluxonium" && fields.range === undefined && fields.points === undefined)
      Object.assign(structure, fluxoniumGrid(parameters, Number(structure.levels)));
    this.structure = structure as unknown as PartStructure;
    const { levels, computational, points, fluxOn } = this.structure;
    if (!Number.isInteger(points) || points < 0 || points > largestGrid)
      throw new WeftError(`${kind}: points must be a whole number up to ${largestGrid}, got ${points}`);
    if (levels > largestGrid) throw new WeftError(`${kind}: levels must be at most ${largestGrid}, got ${levels}`);
    if (!Number.isInteger(levels) || levels < 2 || (points > 0 && levels > points))
      throw new WeftError(
        `${kind}: levels must be a whole number from 2${points > 0 ? ` to ${points}` : ""}, got ${levels}`,
      );
    if (!Number.isInteger(computational) || computational < 1 || computational > levels)
      throw new WeftError(`${kind}: computational must be 1 to ${levels} levels, got ${computational}`);
    if (fluxOn !== "inductor" && fluxOn !== "junction")
      throw new WeftError(`${kind}: fluxOn must be "inductor" or "junction", got ${String(fluxOn)}`);
  }

  /** Parts with equal keys are solved as one batch. */
  get structureKey(): string {
    return `${this.kind} ${JSON.stringify(this.structure)}`;
  }

  /** The parameters as float64 tensors. */
  tensors(): Record<string, Tensor> {
    return Object.fromEntries(Object.entries(this.parameters).map(([k, x]) => [k, full([], x, f64)]));
  }

  /** Levels for parameters given as tensors. Default: the part's own values. */
  solve(p: PartParameters = this.tensors()): PartLevels {
    return partRules[this.kind].solve(p, this.structure);
  }

  /** The part as an entry of a specification file, without defaults. */
  toJSON(): Record<string, unknown> {
    const rule = partRules[this.kind];
    const usual: Record<string, unknown> = { ...structureDefaults, ...rule.structure };
    const own = Object.entries(this.structure).filter(([k, x]) => x !== usual[k]);
    return { kind: this.kind, ...this.parameters, ...Object.fromEntries(own) };
  }
}

type Fields<K extends string, O extends string = never> = { [N in K]: number } & {
  [N in O]?: number;
} & Partial<PartStructure>;

/** Fluxonium: 4 Ec n^2 - Ej cos(phi) + El (phi + phiExt)^2 / 2, or with the flux on the junction. */
export class Fluxonium extends DevicePart {
  constructor(fields: Fields<"ec" | "ej" | "el", "phiExt">) {
    super("fluxonium", fields);
  }
}
/** Transmon: 4 Ec (n - ng)^2 - Ej(flux) cos(phi), flux-tunable with junction asymmetry. */
export class Transmon extends DevicePart {
  constructor(fields: Fields<"ec" | "ej", "phiExt" | "asymmetry" | "ng">) {
    super("transmon", fields);
  }
}
/** Harmonic oscillator. */
export class Resonator extends DevicePart {
  constructor(fields: Fields<"frequency">) {
    super("resonator", fields);
  }
}
/** Duffing oscillator: energies k frequency + k (k - 1) anharmonicity / 2. */
export class Duffing extends DevicePart {
  constructor(fields: Fields<"frequency" | "anharmonicity">) {
    super("duffing", fields);
  }
}
/** Two-level system. */
export class Qubit extends DevicePart {
  constructor(fields: Fields<"frequency">) {
    super("qubit", fields);
  }
}
