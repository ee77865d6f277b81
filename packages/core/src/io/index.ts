// Interchange: tensors in .npy, .npz and .safetensors files. Works on host arrays and knows nothing of devices.
export { FileError } from "./file.js";
export type { ArraySource, HostArray, LazyArray } from "./host.js";
export { type NpyFile, openNpy, readNpy, writeNpy } from "./npy.js";
export { type NpzFile, openNpz, readNpz, writeNpz } from "./npz.js";
export { openSafetensors, readSafetensors, type SafetensorsFile, writeSafetensors } from "./safetensors.js";
export { load, save } from "./tensors.js";
