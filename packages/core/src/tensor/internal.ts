// The public API of tensors, and what only other layers and packages use: they import it as `@weft/core/internal/tensor`.
export { fromStorage } from "./create.js";
export * from "./index.js";
export { jitLowered, type RankLowering } from "./jit.js";
