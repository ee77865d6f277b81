// Building blocks for the schemas of YAML files.
export {
  above,
  choice,
  construct,
  exclusive,
  flag,
  isObject,
  jsonSchemaOf,
  listOf,
  number,
  numberList,
  parseYaml,
  positiveTime,
  readValue,
  recordOf,
  SpecError,
  select,
  strict,
  text,
  variants,
  wholeNumber,
} from "./schema.js";
export { suggestion, unknownName } from "./suggestion.js";
