// weft/quantum: devices, pulses, evolution, figures of merit, control and meta-learning.

export * from "./cache/index.js";
export * from "./control/index.js";
export * from "./fidelity/index.js";
export * from "./meta/index.js";
export * from "./noise/index.js";
export * from "./operators/index.js";
export * from "./pulses/index.js";
export { SpecError } from "./schema/index.js";
export * from "./solvers/index.js";
export * from "./spec/index.js";
export * from "./systems/index.js";
