// weft/quantum: devices, pulses, solvers, fidelities.
export * from "./operators/index.js";
export * from "./solvers/index.js";
