// Entry @weft/quantum/qutip: states, operators, solvers and measures under the names and with the argument order of QuTiP.
import "@weft/core";

export { loadMatrix, partFrom, qload } from "./files.js";
export * from "./metrics.js";
export { Qobj } from "./qobj.js";
export {
  type Coefficient,
  type CollapseOperator,
  correlation2op1t,
  mesolve,
  propagator,
  type QobjEvo,
  type Result,
  type SolverOptions,
  sesolve,
  steadystate,
} from "./solve.js";
export * from "./states.js";
export * from "./trajectories.js";
