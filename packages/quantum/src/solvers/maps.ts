// Methods that compute a map of density matrices per step: exponentials of the generator, splitting into unitary and dissipative
// maps, and Kraus maps. Maps are computed for one block of steps at a time, in bounded memory.
import { adjoint, expm, full, matmul, type Tensor } from "@weft/core/internal/tensor";
import { hermitianExponential } from "./exponential.js";
import { denseTerms, generatorTable, superoperators } from "./generators.js";
import { krausMaps } from "./kraus.js";
import type { Method } from "./methods.js";
import { type CheckedJump, dimensionOf, type Grid, type Hamiltonian } from "./problem.js";

/** Tables of maps for the inputs of some steps, a step with its row of the tables, and the size of a row in bytes. */
interface StepMaps {
  tables(inputs: Tensor): Tensor[];
  step(rho: Tensor, row: Tensor[]): Tensor;
  bytes: number;
}

export function stepMaps(h: Hamiltonian, jumps: readonly CheckedJump[], grid: Grid, method: Method): StepMaps {
  const maps = mapsOf(h, jumps, grid, method);
  if (h.drives.length > 0 || jumps.some(({ rate }) => typeof rate === "function")) return maps;
  // Without inputs all steps have the same map.
  const row = maps.tables(noInputs(0, grid)).map((x) => x.index(0));
  return { tables: () => [], step: (rho) => maps.step(rho, row), bytes: 1 };
}

/** Inputs of one step that are zero. */
const noInputs = (drives: number, grid: Grid): Tensor => full([1, 1, drives], 0, { dtype: grid.real });

function mapsOf(h: Hamiltonian, jumps: readonly CheckedJump[], grid: Grid, method: Method): StepMaps {
  const d = dimensionOf(h);
  const bytes = 16 * d ** 2;
  if (method.name.startsWith("rouchon")) {
    const { tables, apply } = krausMaps(h, jumps, grid, method.order);
    return { tables, step: apply, bytes: 8 * bytes };
  }
  const { whole, decay, hasConstantDecay } = superoperators(h, jumps, grid);
  const applied = (map: Tensor, y: Tensor): Tensor => matmul(map, y.reshape([d * d, 1])).reshape([d, d]);
  const middle = (xs: Tensor): Tensor => xs.index(":", 0);
  if (method.name === "pwcExpm")
    return {
      tables: (xs) => [expm(whole(middle(xs)).mul(grid.h))],
      step: (y, [map]) => applied(map, y),
      bytes: 16 * d ** 4,
    };
  // Strang splitting: half the unitary map, the whole decay, half the unitary map. Each factor is completely positive.
  const dense = denseTerms(h, grid);
  const unitaries = (xs: Tensor): Tensor =>
    hermitianExponential(
      generatorTable(dense.fixed, middle(xs).index(":", `0:${dense.drives.length}`), dense.drives),
      grid.h.mul(0.5),
    );
  const decayed = (xs: Tensor): Tensor => expm(decay(middle(xs)).mul(grid.h));
  const constant = hasConstantDecay && jumps.length > 0 ? decayed(noInputs(h.drives.length, grid)).index(0) : null;
  return {
    tables: (xs) => (hasConstantDecay ? [unitaries(xs)] : [unitaries(xs), decayed(xs)]),
    step: (y, [unitary, own]) => {
      const turned = (x: Tensor): Tensor => matmul(matmul(unitary, x), adjoint(unitary));
      const map = own ?? constant;
      return turned(map === null ? turned(y) : applied(map, turned(y)));
    },
    bytes: hasConstantDecay ? bytes : 16 * d ** 4,
  };
}
