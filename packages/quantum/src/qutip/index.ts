// Entry @weft/quantum/qutip: states, operators, solvers and measures under the names and with the argument order of QuTiP.
import "@weft/core";

export { loadMatrix, partFrom, qload } from "./files.js";
export {
  concurrence,
  entropyLinear,
  entropyVn,
  expect,
  fidelity,
  negativity,
  type PhaseSpace,
  partialTranspose,
  ptrace,
  purity,
  qfunc,
  tracedist,
  variance,
  wigner,
} from "./metrics.js";
export { Qobj } from "./qobj.js";
export {
  correlation2op1t,
  type EOp,
  mesolve,
  propagator,
  type SolverOptions,
  type SolverResult,
  sesolve,
  steadystate,
} from "./solve.js";
export * from "./states.js";
export type { Args, Coefficient, CollapseOperator, QobjEvo } from "./terms.js";
export * from "./trajectories.js";
