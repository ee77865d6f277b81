// Graph language: dtypes, shapes, ops, nodes, printing, structural hash. Does not define the semantics of ops.
export * from "./attr-rules.js";
export * from "./dtype.js";
export * from "./errors.js";
export * from "./half.js";
export * from "./hash.js";
export * from "./limits.js";
export * from "./node.js";
export * from "./op.js";
export * from "./options.js";
export * from "./print.js";
export * from "./scalar.js";
export * from "./serialize.js";
export * from "./shape.js";
