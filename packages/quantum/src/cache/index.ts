// Caches keyed by structure: compiled programs, operators, quadrature rules, eigenbases.
export { BoundedCache, cacheStats, clearCaches, structureKey } from "./cache.js";
export { cachedProgram } from "./programs.js";
