// CUDA C to machine code by NVRTC, with an on-disk cache beside that of the CPU kernels.
import { createHash } from "node:crypto";
import { renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { WeftError } from "../../graph/index.js";
import { inWritableFolder } from "../cache-root.js";
import { addedToCache, cachePlaces, isCached } from "../kernel-cache.js";
import { readSealed, sealOf } from "../sealed-file.js";
import { type CudaLibraries, cText, result64 } from "./driver.js";
import { withOwnSignals } from "./signals.js";

/** A cached program; null if it is missing or unreadable. */
function cached(path: string): Uint8Array | null {
  try {
    return isCached(path) ? readSealed(path) : null;
  } catch {
    return null;
  }
}

/** Caches a program on disk, if possible. */
function keep(file: string, cubin: Uint8Array): void {
  try {
    inWritableFolder("cuda", (folder) => {
      const path = join(folder, file);
      const temporary = `${path}.${process.pid}.tmp`;
      writeFileSync(temporary, Buffer.concat([cubin, sealOf(cubin)]));
      renameSync(temporary, path);
      addedToCache(path);
    });
  } catch {
    // Not writable: the next process compiles again.
  }
}

/** The first line of sources whose products and sums are not fused. */
export const unfused = "// Products and sums are not fused.\n";

/** The machine code of a source for one architecture ("sm_90"). */
export function compileCuda(libraries: Pick<CudaLibraries, "nvrtc">, source: string, architecture: string): Uint8Array {
  const { nvrtc } = libraries;
  if (nvrtc === null)
    throw new WeftError(
      "cuda: NVRTC (libnvrtc.so.13, .12 or .11) was not found, and without it no kernel can be compiled; " +
        "install the CUDA toolkit or `pip install nvidia-cuda-nvrtc`, or point CUDA_HOME at one",
    );
  const [major, minor] = [new Int32Array(1), new Int32Array(1)];
  nvrtc.nvrtcVersion(major, minor);
  const hash = createHash("sha256")
    .update(`${major[0]}.${minor[0]} ${architecture}\0`)
    .update(source)
    .digest("hex")
    .slice(0, 40);
  const file = `${hash}.cubin`;
  for (const path of cachePlaces("cuda", file)) {
    const kept = cached(path);
    if (kept !== null) return kept;
  }
  const program = result64("nvrtcCreateProgram", (out) => nvrtc.nvrtcCreateProgram(out, source, "weft.cu", 0, 0, 0));
  try {
    // --minimal leaves out unused parts of the language, which halves the time for small programs.
    const minimal = major[0] >= 13 ? ["--minimal"] : [];
    const exact = source.startsWith(unfused) ? ["--fmad=false"] : [];
    const options = [`--gpu-architecture=${architecture}`, "--std=c++17", ...minimal, ...exact];
    const status = withOwnSignals(() => nvrtc.nvrtcCompileProgram(program, options.length, options) as number);
    if (status !== 0) {
      const size = result64("nvrtcGetProgramLogSize", (out) => nvrtc.nvrtcGetProgramLogSize(program, out));
      const log = new Uint8Array(size);
      nvrtc.nvrtcGetProgramLog(program, log);
      throw new WeftError(`cuda: NVRTC failed (error ${status}):\n${cText(log).split("\n").slice(0, 12).join("\n")}`);
    }
    const size = result64("nvrtcGetCUBINSize", (out) => nvrtc.nvrtcGetCUBINSize(program, out));
    const cubin = new Uint8Array(size);
    nvrtc.nvrtcGetCUBIN(program, cubin);
    keep(file, cubin);
    return cubin;
  } finally {
    nvrtc.nvrtcDestroyProgram(BigUint64Array.of(BigInt(program)));
  }
}
