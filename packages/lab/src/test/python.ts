// For tests: a Python that has PyTorch or JAX. Virtual environments are kept outside the repository and used again; where
// pip finds nothing, Debian's own package is tried; otherwise the reason is given and the test skips with it.
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, rmdirSync, statSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import { aptInstall } from "./slurm.js";

const venvs = process.env["WEFT_VENVS"] ?? join(homedir(), ".cache/weft/venvs");

function imports(python: string, module: string): boolean {
  return spawnSync(python, ["-c", `import ${module}`], { stdio: "ignore", timeout: 120_000 }).status === 0;
}

export interface Python {
  python: string;
  /** True when `python -m torch.distributed.run` works: Debian's 1.13 cannot under its Python. */
  torchrun: boolean;
}

/** One process at a time makes an environment; the others wait for it. */
async function locked<T>(name: string, work: () => T): Promise<T> {
  const lock = join(venvs, `${name}.lock`);
  const deadline = performance.now() + 300_000;
  for (;;) {
    try {
      mkdirSync(lock);
      break;
    } catch {
      // A lock that is older than an installation can take was left by something that was killed.
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
      // Taken away by another that thought it stale.
    }
  }
}

export async function pythonWith(module: "torch" | "jax"): Promise<Python | string> {
  const python = join(venvs, module, "bin/python");
  if (existsSync(python) && imports(python, module)) return { python, torchrun: true };
  if (spawnSync("python3", ["--version"], { stdio: "ignore" }).status !== 0) return "there is no python3 here";
  mkdirSync(venvs, { recursive: true });
  const made = await locked(module, () => {
    if (existsSync(python) && imports(python, module)) return true;
    if (spawnSync("python3", ["-m", "venv", join(venvs, module)], { stdio: "ignore", timeout: 120_000 }).status !== 0)
      return false;
    const pip = ["-m", "pip", "install", "--quiet", "--retries", "0", "--timeout", "30", module];
    return spawnSync(python, pip, { stdio: "ignore", timeout: 280_000 }).status === 0 && imports(python, module);
  });
  if (made) return { python, torchrun: true };
  if (module === "torch") {
    const debian = "/usr/bin/python3";
    if (aptInstall(["python3-torch"], () => existsSync(debian) && imports(debian, "torch")))
      return {
        python: debian,
        torchrun: spawnSync(debian, ["-m", "torch.distributed.run", "--help"], { stdio: "ignore" }).status === 0,
      };
  }
  return `${module} could not be installed: neither by pip${module === "torch" ? " nor as Debian's python3-torch" : ""}`;
}

/** A skip that cannot be overlooked. */
export function loudly(reason: string): string {
  process.stderr.write(`\nweft: SKIPPED: ${reason}\n`);
  return reason;
}
