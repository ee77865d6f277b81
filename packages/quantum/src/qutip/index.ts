// Entry @weft/quantum/qutip: states, operators, solvers and measures under the names and with the argument order of QuTiP.
import "@weft/core";

export {
  coherenceFunctionG1,
  coherenceFunctionG2,
  correlation2op1t,
  correlation3op1t,
  spectrum,
} from "./correlations.js";
export { loadMatrix, partFrom, qload } from "./files.js";
export {
  buresAngle,
  buresDist,
  concurrence,
  entropyConditional,
  entropyLinear,
  entropyMutual,
  entropyRelative,
  entropyVn,
  expect,
  fidelity,
  hilbertDist,
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
  type EOp,
  mesolve,
  propagator,
  type SolverOptions,
  type SolverResult,
  sesolve,
  steadystate,
} from "./solve.js";
export * from "./states.js";
export * from "./superoperators.js";
export type { Args, Coefficient, CollapseOperator, QobjEvo } from "./terms.js";
export * from "./trajectories.js";
