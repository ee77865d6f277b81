// For tests: a Python that has PyTorch or JAX, or why there is none. Debian's own PyTorch 1.13 has no working torchrun, so it is not asked.
import { pythonWith as find } from "@weft/testing/python";

export interface Python {
  python: string;
}

export async function pythonWith(module: "torch" | "jax"): Promise<Python | string> {
  const found = find(module);
  return "python" in found ? found : found.reason;
}

/** Prints the reason of a skipped test to standard error. */
export function loudly(reason: string): string {
  process.stderr.write(`\nweft: SKIPPED: ${reason}\n`);
  return reason;
}
