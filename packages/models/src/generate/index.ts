// Generation with a cache of keys and values.
export { generateTokens, generationPrograms, roundUp } from "./decode.js";
export { type Generated, generate, streamText } from "./generate.js";
