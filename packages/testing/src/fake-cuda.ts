// A recorded CUDA driver.
export * from "../../core/dist/device/cuda/testkit.js";
