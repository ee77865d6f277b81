// What only other packages of the workspace use, with the public API: `@weft/quantum/internal`. It may change without notice.

export {
  type Bounds,
  controlJsonSchema,
  controlSections,
  type MinimizeMethod,
  type MinimizeOptions,
  minimizeMethods,
  type NamedParameters,
  type ParameterLoss,
} from "./control/index.js";
export * from "./index.js";
export { type MetaPreset, type MetaSettings, metaJsonSchema, presetNames } from "./meta/index.js";
export { methodNames, type PropagatorOptions } from "./solvers/index.js";
export {
  gateJsonSchema,
  gateSections,
  type PartListener,
  type PulseLine,
  pulseLines,
  scaleTimes,
  setParameter,
  type TunedEvolution,
  tuneEvolution,
} from "./spec/index.js";
