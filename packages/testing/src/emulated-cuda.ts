// Preloaded into a process (`node --import`), replaces the CUDA driver by the emulator.
import "../../core/dist/device/cuda/emulated/preload.testkit.js";
