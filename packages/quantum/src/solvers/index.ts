// Solvers of the Schrödinger and Lindblad equations, their integration methods and gradient methods.
export { coefficientScales } from "./borders.js";
export { diffusive } from "./diffusive.js";
export { hermitianExponential } from "./exponential.js";
export { denseTerms } from "./generators.js";
export { evolveOnHost, type HostRun } from "./host.js";
export { hostFunction } from "./host-inputs.js";
export { type LindbladOptions, lindblad, type OpenSystem } from "./lindblad.js";
export { explainRightHandSide } from "./matrix-free.js";
export {
  adaptiveNames,
  cptp2,
  dopri8,
  euler,
  type GradientKind,
  krylov,
  type Method,
  type MethodName,
  methodNames,
  pwcExpm,
  rk4,
  rouchon1,
  rouchon2,
  rouchon3,
  sdirk4,
  type Tolerance,
  trotter2,
  trotter4,
  tsit5,
} from "./methods.js";
export { checkJumps, type Hamiltonian, type HamiltonianTerm, hamiltonian, type Jump } from "./problem.js";
export { jumpTrajectories } from "./quantum-jumps.js";
export { squareOf } from "./reachable.js";
export {
  type CheckLimits,
  checkArrival,
  checkDensity,
  checkSteps,
  computeTogether,
  type Evolution,
  expectation,
  roomFor,
  type Validity,
} from "./result.js";

export { type PropagatorOptions, propagator, type SchrodingerOptions, schrodinger } from "./schrodinger.js";
export { type FloquetModes, floquetModes, steadyState, superPropagator } from "./steady.js";
export type { Average, Trajectories } from "./trajectories.js";
