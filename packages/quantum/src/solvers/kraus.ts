// Kraus maps of the Lindblad equation of orders 1 to 3, after P. Rouchon and Y. Cao and J. Lu: the expansion in the number of jumps,
// with quadratures of the jump times. Every term has the form K rho K^H, and the map is normalized, so that it is completely
// positive and trace-preserving for any step.
import { adjoint, cholesky, matmul, type Tensor, triangularSolve } from "@weft/core/internal/tensor";
import { identityOperator } from "../operators/index.js";
import { denseTerms, generatorTable, rateOf, ratesInTime } from "./generators.js";
import { gaussNodes } from "./krylov.js";
import { type CheckedJump, dimensionOf, type Grid, type Hamiltonian, matrixOf } from "./problem.js";

/** Times within a step at which a map of some order reads its inputs. */
export const krausStages = (order: number): readonly number[] => (order === 3 ? gaussNodes : [0.5]);

/** x -> K x K^H, or K^H x K. */
const conjugated = (k: Tensor, x: Tensor, isAdjoint = false): Tensor =>
  isAdjoint ? matmul(matmul(adjoint(k), x), k) : matmul(matmul(k, x), adjoint(k));

/** Weight and no-jump propagators of a term, in the order in which they act, with a jump at the given time between two. */
interface Term {
  weight: Tensor;
  moves: Tensor[];
  /** Times of the jumps as fractions of the step. */
  at: readonly number[];
}

/**
 * The map of a step for inputs of some steps: `tables` computes the matrices [steps, d, d], `apply` one step of them. Terms with
 * several jumps are nested, so that their cost grows with the number of jump operators, not with its powers.
 */
export function krausMaps(
  h: Hamiltonian,
  jumps: readonly CheckedJump[],
  grid: Grid,
  order: number,
): { tables(inputs: Tensor): Tensor[]; apply(rho: Tensor, tables: readonly Tensor[]): Tensor } {
  const d = dimensionOf(h);
  const eye = identityOperator(d).tensor(grid.complex);
  const { fixed, drives } = denseTerms(h, grid);
  const turns = [fixed, ...drives].map((m) => m.mul({ re: 0, im: -1 }));
  const leaps = jumps.map(({ operator }) => matrixOf(operator, grid.complex));
  const losses = leaps.map((l) => matmul(adjoint(l), l).mul(-0.5));
  const constant = jumps.reduce(
    (sum, { rate }, j) =>
      typeof rate === "function" ? sum : sum.add(losses[j].mul(rateOf(jumps, j, drives.length, sum, grid))),
    turns[0],
  );
  const moving = losses.filter((_, j) => typeof jumps[j].rate === "function");
  const dt = grid.h;
  /** -i H - sum of rate L^H L / 2 for inputs [steps, K]. */
  const generator = (u: Tensor): Tensor => generatorTable(constant, u, [...turns.slice(1), ...moving]);
  /** 1 + x + x^2 / 2 + ... up to a power. */
  const taylor = (x: Tensor, power: number): Tensor => {
    let sum = eye.add(x.mul(1 / power));
    for (let k = power - 1; k >= 1; k--) sum = eye.add(matmul(x, sum).mul(1 / k));
    return sum;
  };
  /** Linear in time through the values at the Gauss nodes; the value itself where there is one. */
  const between = (values: readonly Tensor[], time: number): Tensor => {
    if (values.length === 1) return values[0];
    const share = (time - gaussNodes[0]) / (gaussNodes[1] - gaussNodes[0]);
    return values[0].mul(1 - share).add(values[1].mul(share));
  };
  /** No-jump propagators: of the whole step, then over [0, s] and so on, for the terms with jumps. */
  const moves = (stages: readonly Tensor[]): Tensor[] => {
    const js = stages.map(generator);
    const over = (from: number, to: number, power: number): Tensor =>
      taylor(between(js, (from + to) / 2).mul(dt.mul(to - from)), power);
    if (order === 1) return [taylor(js[0].mul(dt), 1)];
    if (order === 2) return [taylor(js[0].mul(dt), 2), over(0, 0.5, 1)];
    const [c1, c2] = gaussNodes;
    const mean = between(js, 0.5).mul(dt);
    const magnus =
      js.length === 1
        ? mean
        : mean.sub(
            matmul(js[0], js[1])
              .sub(matmul(js[1], js[0]))
              .mul(dt.square().mul(Math.sqrt(3) / 12)),
          );
    return [taylor(magnus, 3), over(0, c1, 2), over(c1, 1, 2), over(0, c2, 2), over(c2, 1, 2), over(1 / 3, 2 / 3, 1)];
  };
  const terms = (m: readonly Tensor[]): Term[] => {
    const [second, third] = [dt.square().mul(0.5), dt.square().mul(dt).div(6)];
    const whole = { weight: dt.mul(0).add(1), moves: [m[0]], at: [] };
    if (order === 1) return [whole, { weight: dt, moves: [], at: [0.5] }];
    if (order === 2)
      return [whole, { weight: dt, moves: [m[1], m[1]], at: [0.5] }, { weight: second, moves: [], at: [0.5, 0.5] }];
    return [
      whole,
      { weight: dt.mul(0.5), moves: [m[1], m[2]], at: [gaussNodes[0]] },
      { weight: dt.mul(0.5), moves: [m[3], m[4]], at: [gaussNodes[1]] },
      { weight: second, moves: [m[5], m[5], m[5]], at: [1 / 3, 2 / 3] },
      { weight: third, moves: [], at: [0.5, 0.5, 0.5] },
    ];
  };
  /** Sum of the terms for a state, or of their adjoints for an observable. `inputs` are those of the stages. */
  const total = (m: readonly Tensor[], inputs: readonly Tensor[], x: Tensor, isAdjoint: boolean): Tensor => {
    const jumped = (y: Tensor, time: number): Tensor =>
      leaps.reduce<Tensor | null>((sum, l, j) => {
        const part = conjugated(l, y, isAdjoint);
        const { rate } = jumps[j];
        const factor =
          typeof rate === "function"
            ? rateOfInputs(inputs, drives.length + ratesInTime(jumps.slice(0, j)).length, time, y.rank)
            : rateOf(jumps, j, drives.length, y, grid);
        const weighted = factor === 1 ? part : part.mul(factor);
        return sum === null ? weighted : sum.add(weighted);
      }, null) ?? y.mul(0);
    const rateOfInputs = (all: readonly Tensor[], column: number, time: number, rank: number): Tensor => {
      const value = between(
        all.map((u) => (u.rank === 1 ? u.index(column) : u.index(":", column))),
        time,
      );
      return rank === 3 ? value.reshape([value.size, 1, 1]) : value;
    };
    return terms(m)
      .filter(({ at }) => at.length === 0 || jumps.length > 0)
      .map(({ weight, moves: own, at }) => {
        // Moves and jumps alternate; the adjoint acts in the opposite order.
        const acts = Array.from({ length: at.length + 1 }, (_, k): ((y: Tensor) => Tensor)[] => [
          ...(own[k] === undefined ? [] : [(y: Tensor) => conjugated(own[k], y, isAdjoint)]),
          ...(k < at.length ? [(y: Tensor) => jumped(y, at[k])] : []),
        ]).flat();
        return (isAdjoint ? acts.reverse() : acts).reduce((y, act) => act(y), x).mul(weight);
      })
      .reduce((a, b) => a.add(b));
  };
  const stagesOf = (inputs: Tensor): Tensor[] =>
    Array.from({ length: inputs.shape[1] }, (_, k) => inputs.index(":", k));
  return {
    tables: (inputs) => {
      const stages = stagesOf(inputs);
      const m = moves(stages);
      const n = inputs.shape[0];
      // S = sum of K^H K = C C^H; the map of C^-H rho C^-1 preserves the trace.
      const s = total(m, stages, eye.expand([n, d, d]), true);
      const inverse = triangularSolve(cholesky(s.add(adjoint(s)).mul(0.5)), eye.expand([n, d, d]));
      return [adjoint(inverse), ...m, inputs];
    },
    apply: (rho, tables) => {
      const [normal, ...rest] = tables;
      const inputs = rest[rest.length - 1];
      const stages = Array.from({ length: inputs.shape[0] }, (_, k) => inputs.index(k));
      return total(rest.slice(0, -1), stages, conjugated(normal, rho), false);
    },
  };
}
