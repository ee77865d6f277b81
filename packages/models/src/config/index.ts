// Reading of configuration files.
export { Fields } from "./fields.js";
export { type GenerationDefaults, readGenerationConfig } from "./generation.js";
export { fileOf, isJsonObject, type JsonObject, ModelError, readJson } from "./json.js";
export { keysWithoutEffect, refusedKeys, refuseForeignModels, unknownKeys } from "./keys.js";
