// Generation with a cache of keys and values.
export { generateTokens } from "./decode.js";
export { type Generated, generate, streamText } from "./generate.js";
export { generationPrograms, roundUp } from "./programs.js";
