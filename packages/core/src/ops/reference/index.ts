// Reference semantics of every op in plain TypeScript: slow and simple, the oracle of every device.

export { combine, groupMembers } from "./collective.js";
export type { EvaluationSteps, PendingCollective } from "./control.js";
export { realFunction, realFunction2 } from "./elementwise.js";
export { evaluate, evaluateSteps, referenceRules } from "./evaluate.js";
export { droppedOf, keptScale, numbering, threefry2x32 } from "./random.js";
export { realErf } from "./scalar.js";
export { fromComplexes, fromReals, type ReferenceRule, type Value } from "./value.js";
