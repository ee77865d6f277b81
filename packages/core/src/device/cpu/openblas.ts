// Where OpenBLAS is on this machine. The OpenMP build is preferred: it shares our threads.
import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { settings } from "../../settings/index.js";

const folders = [
  "/usr/lib/x86_64-linux-gnu",
  "/usr/lib/aarch64-linux-gnu",
  "/usr/lib64",
  "/usr/lib",
  "/usr/local/lib",
  "/opt/OpenBLAS/lib",
];
const places = [
  "openblas-openmp/libopenblas.so.0",
  "libopenblaso.so.0",
  "libopenblas.so.0",
  "openblas-pthread/libopenblas.so.0",
  "libopenblas.so",
];

/** The path of OpenBLAS: $WEFT_OPENBLAS ("none" for the built-in fallback), or the first usual place that has it. */
export function findOpenBlas(): string | null {
  const chosen = settings.openBlas.get();
  if (chosen !== undefined) return chosen === "none" ? null : chosen;
  for (const place of places) {
    for (const folder of folders) {
      const path = join(folder, place);
      if (existsSync(path)) return path;
    }
  }
  for (const folder of folders) {
    if (!existsSync(folder)) continue;
    const other = readdirSync(folder).find((name) => /^libopenblas.*\.so(\.\d+)*$/.test(name));
    if (other !== undefined) return join(folder, other);
  }
  return null;
}
