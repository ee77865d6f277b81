// Named ranges for NVIDIA's profilers: the programs, kernels and spans that a user knows, beside the driver's own names.
// On under Nsight (which sets NVTX_INJECTION64_PATH) and with WEFT_NVTX=1; costs nothing otherwise.

import { settings } from "../../settings/index.js";
import type { NamedRanges } from "../contract.js";
import type { CudaLibraries } from "./driver.js";

const wanted = (): boolean =>
  settings.nvtx.get() || (process.env.NVTX_INJECTION64_PATH ?? "") !== "" || "NSYS_PROFILING_SESSION_ID" in process.env;

export function namedRanges(libraries: CudaLibraries): NamedRanges | null {
  if (!wanted() || libraries.nvtx === null) return null;
  const { nvtxRangePushA, nvtxRangePop } = libraries.nvtx;
  return { push: (name) => void nvtxRangePushA(name), pop: () => void nvtxRangePop() };
}
