// The operators of an open system as functions of states, for trajectories: jump operators, the effective Hamiltonian and the
// Lindblad right-hand side. Small systems use constants of the program, large ones local terms.
import { adjoint, matmul, type Tensor, where } from "@weft/core/internal/tensor";
import {
  applyLeft,
  joinPlanes,
  localDiagonals,
  Operator,
  planesOf,
  scaleDiagonals,
  tensorDiagonals,
} from "../operators/index.js";
import { ratesInTime } from "./generators.js";
import { lindbladTerms, schrodingerTerms, usesTerms } from "./matrix-free.js";
import { type CheckedJump, type Grid, type Hamiltonian, matrixOf, wholeJump } from "./problem.js";

/** A jump operator times the root of its rate, applied to kets [D] or columns [D, n] for the inputs u of a step. */
interface JumpChannel {
  apply(x: Tensor, u: Tensor): Tensor;
}

/** Deterministic parts of the equations of motion. */
export interface OpenRates {
  /** -(i H + sum of L^H L / 2) x for kets [D] or columns [D, n]. */
  effective(x: Tensor, u: Tensor): Tensor;
  /** The Lindblad right-hand side. */
  lindblad(rho: Tensor, u: Tensor): Tensor;
}

/** Largest dimension at which operators of numbers become constants of the program. */
const literalLimit = 4;

/** A matrix applied to kets or columns. */
function product(matrix: Tensor): (x: Tensor) => Tensor {
  return (x) => (x.rank === 1 ? matmul(matrix, x.unsqueeze(1)).squeeze(1) : matmul(matrix, x));
}

const constantOf = (m: Operator | Tensor, grid: Grid): Tensor =>
  m instanceof Operator && m.rows <= literalLimit ? m.literal(grid.complex) : matrixOf(m, grid.complex);

const everySite = (h: Hamiltonian): number[] => h.dims.map((_, k) => k);

/** The root of a rate: a factor of the operator, or a tensor that multiplies the result for the inputs of a step. */
function rooted(
  jumps: readonly CheckedJump[],
  k: number,
  drives: number,
): { factor: number; scale: ((u: Tensor) => Tensor) | null } {
  const { rate } = jumps[k];
  if (typeof rate === "number") return { factor: Math.sqrt(rate), scale: null };
  if (typeof rate !== "function") return { factor: 1, scale: () => rate.sqrt() };
  const input = drives + ratesInTime(jumps.slice(0, k)).length;
  // The root of zero has no slope.
  return {
    factor: 1,
    scale: (u) => {
      const value = u.index(input);
      const isZero = value.equal(0);
      return where(isZero, 0, where(isZero, 1, value).sqrt());
    },
  };
}

const scaledBy = (x: Tensor, scale: ((u: Tensor) => Tensor) | null, u: Tensor, grid: Grid): Tensor =>
  scale === null ? x : x.mul(scale(u).cast(grid.real));

export function channelsOf(h: Hamiltonian, jumps: readonly CheckedJump[], grid: Grid): JumpChannel[] {
  const isLocal = usesTerms(h, jumps);
  return jumps.map((jump, k) => {
    const { factor, scale } = rooted(jumps, k, h.drives.length);
    if (isLocal) {
      const wide = localDiagonals(h.dims, jump.sites ?? everySite(h), jump.operator);
      const [table] = tensorDiagonals([scaleDiagonals(wide, { re: factor, im: 0 })], grid.real);
      return {
        apply: (x: Tensor, u: Tensor) => scaledBy(joinPlanes(applyLeft(table, planesOf(x), 0)), scale, u, grid),
      };
    }
    const { operator } = wholeJump(h, jump, grid.complex);
    const matrix = operator instanceof Operator ? operator.scale(factor) : operator.mul(factor);
    const apply = product(constantOf(matrix, grid));
    return { apply: (x: Tensor, u: Tensor) => scaledBy(apply(x), scale, u, grid) };
  });
}

export function openRates(h: Hamiltonian, jumps: readonly CheckedJump[], grid: Grid): OpenRates {
  if (usesTerms(h, jumps))
    return { effective: schrodingerTerms(h, grid, jumps), lindblad: lindbladTerms(h, jumps, grid) };
  const channels = channelsOf(h, jumps, grid);
  const adjoints = jumps.map((jump, k) => {
    const { factor, scale } = rooted(jumps, k, h.drives.length);
    const { operator } = wholeJump(h, jump, grid.complex);
    const matrix = operator instanceof Operator ? operator.adjoint().scale(factor) : adjoint(operator).mul(factor);
    const apply = product(constantOf(matrix, grid));
    return (x: Tensor, u: Tensor): Tensor => scaledBy(apply(x), scale, u, grid);
  });
  const { still, turns } = smallGenerator(h, grid);
  const effective = (x: Tensor, u: Tensor): Tensor => {
    const coherent = turns.reduce((sum, turn, k) => sum.add(turn(x).mul(u.index(k))), still(x));
    return channels.reduce((sum, l, j) => sum.sub(adjoints[j](l.apply(x, u), u).mul(0.5)), coherent);
  };
  return {
    effective,
    lindblad: (rho, u) => {
      const half = effective(rho, u);
      return channels.reduce((sum, l) => sum.add(l.apply(adjoint(l.apply(rho, u)), u)), half.add(adjoint(half)));
    },
  };
}

/** -i H of a small system: a constant part and one part per drive. */
function smallGenerator(h: Hamiltonian, grid: Grid): { still(x: Tensor): Tensor; turns: ((x: Tensor) => Tensor)[] } {
  const minusI = { re: 0, im: -1 };
  const whole = ({ sites, matrix }: Hamiltonian["static"][number]): Operator | Tensor => {
    const { operator } = wholeJump(h, { operator: matrix, sites, rate: 1 }, grid.complex);
    return operator instanceof Operator ? operator.scale(minusI) : operator.mul(minusI);
  };
  const parts = h.static.map(whole);
  const numbers = parts.filter((p): p is Operator => p instanceof Operator);
  const tensors = parts.filter((p): p is Tensor => !(p instanceof Operator));
  const applied = [
    ...(numbers.length === 0
      ? []
      : [
          product(
            constantOf(
              numbers.reduce((a, b) => a.add(b)),
              grid,
            ),
          ),
        ]),
    ...tensors.map(product),
  ];
  return {
    still: (x) => (applied.length === 0 ? x.mul(0) : applied.map((f) => f(x)).reduce((a, b) => a.add(b))),
    turns: h.drives.map((drive) => product(constantOf(whole(drive), grid))),
  };
}
