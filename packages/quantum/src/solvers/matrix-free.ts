// Right-hand sides of Schrödinger and Lindblad equations without matrices on the whole space: every term stays local, and the sum
// of all terms is one element-wise expression of shifted states, which compiles to one kernel.
import { adjoint, matmul, type Tensor } from "@weft/core/internal/tensor";
import {
  addDiagonals,
  addPlanes,
  applyBothSides,
  applyLeft,
  type Diagonals,
  joinPlanes,
  localDiagonals,
  Operator,
  type Planes,
  planesOf,
  sandwich,
  scaleDiagonals,
  scalePlanes,
  tensorDiagonals,
} from "../operators/index.js";
import {
  type CheckedJump,
  checkHamiltonian,
  checkJumps,
  dimensionOf,
  type Grid,
  type Hamiltonian,
  type HamiltonianTerm,
  type Jump,
} from "./problem.js";

const minusI = { re: 0, im: -1 };

/** A sum of terms that share one coefficient: a drive's amplitude, a rate, or 1. */
interface Part {
  /** Index of the input of a step (a drive, or a rate that depends on time), a rate, or null for constant terms. */
  coefficient: number | Tensor | null;
  generator: Diagonals;
}

const wide = ({ dims }: Pick<Hamiltonian, "dims">, { sites, matrix }: HamiltonianTerm): Diagonals =>
  localDiagonals(dims, sites, matrix);

/** -i H as a constant part and one part per drive. */
function coherentParts(h: Hamiltonian): Part[] {
  const size = dimensionOf(h);
  const fixed = addDiagonals(
    size,
    h.static.map((term) => wide(h, term)),
  );
  return [
    { coefficient: null, generator: scaleDiagonals(fixed, minusI) },
    ...h.drives.map((term, k) => ({ coefficient: k, generator: scaleDiagonals(wide(h, term), minusI) })),
  ];
}

const squared = (l: Operator | Tensor): Operator | Tensor =>
  l instanceof Operator ? l.adjoint().mul(l) : matmul(adjoint(l), l);

interface Leap {
  coefficient: Part["coefficient"];
  operator: Diagonals;
}

const everySite = ({ dims }: Pick<Hamiltonian, "dims">): number[] => dims.map((_, k) => k);

/** Decay: -L^H L / 2 as parts of the generator, and the jumps L x L^H. */
function decayParts(h: Hamiltonian, jumps: readonly CheckedJump[]): { parts: Part[]; leaps: Leap[] } {
  const parts: Part[] = [];
  const leaps: Leap[] = [];
  let input = h.drives.length;
  for (const { operator, sites, rate } of jumps) {
    const at = sites ?? everySite(h);
    const loss = wide(h, { sites: at, matrix: squared(operator) });
    const leap = wide(h, { sites: at, matrix: operator });
    const size = typeof rate === "number" ? rate : 1;
    const coefficient = typeof rate === "number" ? null : typeof rate === "function" ? input++ : rate.reshape([]);
    parts.push({ coefficient, generator: scaleDiagonals(loss, { re: -size / 2, im: 0 }) });
    leaps.push({ coefficient, operator: scaleDiagonals(leap, { re: Math.sqrt(size), im: 0 }) });
  }
  return { parts, leaps };
}

/** Constant parts become one. */
function joined(size: number, parts: readonly Part[]): Part[] {
  const constant = parts.filter(({ coefficient }) => coefficient === null).map(({ generator }) => generator);
  return [
    { coefficient: null, generator: addDiagonals(size, constant) },
    ...parts.filter(({ coefficient }) => coefficient !== null),
  ].filter(({ generator }) => generator.diagonals.length > 0);
}

/**
 * x times a coefficient. The coefficient of a density matrix is a column first: its gradient is then summed row by row, which
 * threads and blocks divide among themselves, and not over the whole matrix in the kernel of the adjoint.
 */
function weighted(x: Planes, coefficient: Part["coefficient"], u: Tensor, grid: Grid): Planes {
  if (coefficient === null) return x;
  const factor = typeof coefficient === "number" ? u.index(coefficient) : coefficient.cast(grid.real);
  const { rank, shape } = (x.re ?? x.im)!;
  return scalePlanes(x, rank === 2 ? factor.reshape([1, 1]).expand([shape[0], 1]) : factor);
}

/** d x / dt of a state or density matrix for the inputs u of a step. */
type Rate = (x: Tensor, u: Tensor) => Tensor;

const total = (planes: readonly Planes[], x: Tensor): Tensor => {
  const all = planes.reduce(addPlanes, { re: null, im: null });
  return all.re === null && all.im === null ? x.mul(0) : joinPlanes(all);
};

/** -i H x for states [D] or columns [D, n]; with jumps -(i H + sum of rate L^H L / 2) x. */
export function schrodingerTerms(h: Hamiltonian, grid: Grid, jumps: readonly CheckedJump[] = []): Rate {
  const parts = joined(dimensionOf(h), [...coherentParts(h), ...decayParts(h, jumps).parts]);
  const tables = tensorDiagonals(
    parts.map(({ generator }) => generator),
    grid.real,
  );
  return (x, u) => {
    const planes = planesOf(x);
    return total(
      parts.map(({ coefficient }, k) => weighted(applyLeft(tables[k], planes, 0), coefficient, u, grid)),
      x,
    );
  };
}

/** The right-hand side of the Lindblad equation: G x + x G^H + sum of rate L x L^H with G = -i H - sum of rate L^H L / 2. */
export function lindbladTerms(h: Hamiltonian, jumps: readonly CheckedJump[], grid: Grid): Rate {
  const decay = decayParts(h, jumps);
  const parts = joined(dimensionOf(h), [...coherentParts(h), ...decay.parts]);
  const { leaps } = decay;
  const tables = tensorDiagonals([...parts.map((p) => p.generator), ...leaps.map((l) => l.operator)], grid.real);
  return (x, u) => {
    const planes = planesOf(x);
    return total(
      [
        ...parts.map(({ coefficient }, k) => weighted(applyBothSides(tables[k], planes), coefficient, u, grid)),
        ...leaps.map(({ coefficient }, k) =>
          weighted(sandwich(tables[parts.length + k], planes), coefficient, u, grid),
        ),
      ],
      x,
    );
  };
}

/** Numbers of multiplications per element of a density matrix, for the choice between matrix-free and dense products. */
interface RateCost {
  /** Shifted reads per element without matrices. */
  terms: number;
  /** Multiplications per element with matrices on the whole space. */
  dense: number;
}

/** Costs of a right-hand side; `jumps` is null for the Schrödinger equation. Builds no tensors for operators of numbers. */
export function rateCost(h: Hamiltonian, jumps: readonly CheckedJump[] | null): RateCost {
  const size = dimensionOf(h);
  const decay = jumps === null ? { parts: [], leaps: [] } : decayParts(h, jumps);
  const count = joined(size, [...coherentParts(h), ...decay.parts]).reduce(
    (n, p) => n + p.generator.diagonals.length,
    0,
  );
  const leaps = decay.leaps.reduce((n, { operator }) => n + operator.diagonals.length ** 2, 0);
  return jumps === null
    ? { terms: count, dense: size }
    : { terms: 2 * count + leaps, dense: (1 + 2 * decay.leaps.length) * size };
}

/** Smallest dimension of matrix-free right-hand sides; below, states fit into registers and whole matrices fold. */
const fromSize = 12;
/** Largest number of terms per element: each is a read in the kernel, which takes longer to compile with every term. */
const maxTerms = 240;
/** Products of matrices do this many times more multiplications per second than reads of shifted states. */
const denseAdvantage = 2;

/** Whether a right-hand side is faster without matrices on the whole space. `jumps` is null for the Schrödinger equation. */
export function usesTerms(h: Hamiltonian, jumps: readonly CheckedJump[] | null): boolean {
  if (dimensionOf(h) < fromSize) return false;
  const { terms, dense } = rateCost(h, jumps);
  return terms <= maxTerms && terms * denseAdvantage <= dense;
}

/**
 * Says how `schrodinger` (for a Hamiltonian) or `lindblad` (for an open system) applies the operators of a system in explicit
 * methods, and what that costs: as shifted reads of the state per element, or as products with matrices on the whole space.
 *
 * @example
 * ```ts
 * import { destroy, explainRightHandSide, hamiltonian, numberOperator } from "@weft/quantum";
 *
 * const a = destroy(32);
 * const system = { hamiltonian: hamiltonian({ static: numberOperator(32) }), jumps: [{ operator: a }] };
 * console.log(explainRightHandSide(system)); // matrix-free: 3 terms per element; whole matrices would take 96 multiplications
 * ```
 */
export function explainRightHandSide(
  system: Hamiltonian | { hamiltonian: Hamiltonian; jumps: readonly Jump[] },
): string {
  const h = checkHamiltonian("hamiltonian" in system ? system.hamiltonian : system);
  const jumps = "hamiltonian" in system ? checkJumps(system.jumps, h) : null;
  const { terms, dense } = rateCost(h, jumps);
  const numbers = [`${terms} terms per element`, `${dense} multiplications`];
  if (usesTerms(h, jumps)) return `matrix-free: ${numbers[0]}; whole matrices would take ${numbers[1]}`;
  const why = dimensionOf(h) < fromSize ? `the dimension is below ${fromSize}` : `terms would take ${numbers[0]}`;
  return `whole matrices: ${numbers[1]} per element; ${why}`;
}
