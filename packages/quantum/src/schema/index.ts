// Building blocks for the schemas of YAML files.
export {
  above,
  choice,
  construct,
  flag,
  isObject,
  list,
  number,
  numbers,
  parseYaml,
  positiveTime,
  readValue,
  record,
  SpecError,
  select,
  strict,
  text,
  variants,
  whole,
} from "./schema.js";
export { suggestion, unknownName } from "./suggestion.js";
