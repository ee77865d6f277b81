// The generator of CUDA programs, which no package exports.
export * from "../../core/dist/device/cuda/source.js";
