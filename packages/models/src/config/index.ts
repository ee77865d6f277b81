// Reading of configuration files.
export { Fields } from "./fields.js";
export { fileOf, isJsonObject, type JsonObject, ModelError, readJson } from "./json.js";
