// Values that PyTorch computes.
export * from "../../core/dist/nn/torchkit.js";
