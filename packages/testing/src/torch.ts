// Values that PyTorch computes.
export * from "../../core/dist/nn/torch.testkit.js";
