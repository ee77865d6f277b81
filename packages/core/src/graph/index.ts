// The one language: dtypes, shapes, ops, graph nodes, printing, structural hash. It knows nothing of what ops mean.
export * from "./attr-rules.js";
export * from "./dtype.js";
export * from "./errors.js";
export * from "./half.js";
export * from "./hash.js";
export * from "./limits.js";
export * from "./node.js";
export * from "./op.js";
export * from "./print.js";
export * from "./scalar.js";
export * from "./serialize.js";
export * from "./shape.js";
