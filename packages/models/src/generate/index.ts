// Generation with a cache of keys and values.
export { generateTokens, generationPrograms, roundUp, type TokenOptions } from "./decode.js";
export { type Generated, type GenerateOptions, generate, streamText } from "./generate.js";
export type { SamplingOptions } from "./sampling.js";
