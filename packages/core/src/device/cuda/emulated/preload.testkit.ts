// Preloaded into a process (node --import) it puts the emulated driver in the place of the real one, so that worker
// processes with a CUDA device can be tested where there is no GPU.
import { useCudaLibraries } from "../driver.js";
import { emulatedLibraries } from "./index.js";

useCudaLibraries(emulatedLibraries({ log: [] }));
