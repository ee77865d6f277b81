// weft/quantum: devices, pulses, evolution, figures of merit, control and meta-learning.
export * from "./noise/index.js";
export * from "./operators/index.js";
export * from "./solvers/index.js";
