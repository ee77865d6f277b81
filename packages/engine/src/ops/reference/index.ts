// The reference value of every op, in plain TypeScript: slow, obviously right, the oracle for every device.
export { type Complex, complex } from "./complex.js";
export { evaluate, referenceRules } from "./evaluate.js";
export { threefry2x32 } from "./random.js";
export { erf } from "./scalar.js";
export {
  complexes,
  fromComplexes,
  fromIntegers,
  fromReals,
  integers,
  type ReferenceRule,
  reals,
  type Value,
} from "./value.js";
