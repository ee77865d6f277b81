// weft/quantum: devices, pulses, evolution, figures of merit, control and meta-learning.
export * from "./noise/index.js";
