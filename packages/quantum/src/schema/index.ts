// Building blocks for the schemas of YAML files.
export {
  above,
  choiceOf,
  construct,
  exclusive,
  flag,
  isObject,
  jsonSchemaOf,
  listOf,
  number,
  numberList,
  parseSpecYaml,
  positiveTime,
  readValue,
  recordOf,
  SpecError,
  selectSchema,
  strict,
  text,
  variants,
  wholeNumber,
} from "./schema.js";
export { suggestion, unknownName } from "./suggestion.js";
