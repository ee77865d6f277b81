// For tests: a Python that has PyTorch or JAX, installed by pip into a virtual environment outside the repository that later
// runs reuse. Without pip the test skips and prints the reason: Debian's own PyTorch 1.13 has no working torchrun.
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, rmdirSync, statSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";

const venvs = process.env["WEFT_VENVS"] ?? join(homedir(), ".cache/weft/venvs");

function imports(python: string, module: string): boolean {
  return spawnSync(python, ["-c", `import ${module}`], { stdio: "ignore", timeout: 120_000 }).status === 0;
}

export interface Python {
  python: string;
}

/** A lock, so that one process at a time creates an environment. */
async function locked<T>(name: string, work: () => T): Promise<T> {
  const lock = join(venvs, `${name}.lock`);
  const deadline = performance.now() + 300_000;
  for (;;) {
    try {
      mkdirSync(lock);
      break;
    } catch {
      // A lock older than any installation was left by a killed process.
      if (existsSync(lock) && Date.now() - statSync(lock).mtimeMs > 600_000) rmdirSync(lock);
      if (performance.now() > deadline) break;
      await new Promise((resolve) => setTimeout(resolve, 500));
    }
  }
  try {
    return work();
  } finally {
    try {
      rmdirSync(lock);
    } catch {
      // Another process removed it as stale.
    }
  }
}

export async function pythonWith(module: "torch" | "jax"): Promise<Python | string> {
  const python = join(venvs, module, "bin/python");
  if (existsSync(python) && imports(python, module)) return { python };
  if (spawnSync("python3", ["--version"], { stdio: "ignore" }).status !== 0) return "there is no python3 here";
  mkdirSync(venvs, { recursive: true });
  const made = await locked(module, () => {
    if (existsSync(python) && imports(python, module)) return true;
    if (spawnSync("python3", ["-m", "venv", join(venvs, module)], { stdio: "ignore", timeout: 120_000 }).status !== 0)
      return false;
    const pip = ["-m", "pip", "install", "--quiet", "--retries", "0", "--timeout", "30", module];
    return spawnSync(python, pip, { stdio: "ignore", timeout: 280_000 }).status === 0 && imports(python, module);
  });
  if (made) return { python };
  return `${module} is not in ${join(venvs, module)}, and pip could not install it`;
}

/** Prints the reason of a skipped test to standard error. */
export function loudly(reason: string): string {
  process.stderr.write(`\nweft: SKIPPED: ${reason}\n`);
  return reason;
}
