// Caches keyed by structure: compiled programs, operators, quadrature rules, eigenbases.
export { BoundedCache, type CacheOptions, type CacheStats, cacheStats, clearCaches, structureKey } from "./cache.js";
export { cachedProgram } from "./programs.js";
