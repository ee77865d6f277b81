// Python environments for tests and comparisons: packages that pip installs once into a virtual environment outside the repository,
// which later runs reuse. WEFT_VENVS names another folder. Who gets a reason instead skips, and prints it.
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, rmdirSync, statSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";

/** What an environment contains, and how to see that it does. */
interface Environment {
  packages: readonly string[];
  /** Ends with an error if something is missing. */
  check: string;
}

const environments = {
  numpy: {
    packages: ["numpy>=2", "scipy", "safetensors", "ml_dtypes"],
    check: "import numpy, scipy, safetensors, ml_dtypes; assert numpy.__version__ >= '2'",
  },
  torch: { packages: ["torch"], check: "import torch" },
  jax: { packages: ["jax"], check: "import jax" },
  transformers: {
    packages: ["torch", "transformers", "safetensors"],
    check: "import torch, transformers, safetensors",
  },
  qutip: { packages: ["qutip>=5"], check: "import qutip; assert qutip.__version__ >= '5'" },
  ray: { packages: ["ray"], check: "import ray" },
  jsonschema: { packages: ["jsonschema"], check: "import jsonschema" },
} satisfies Record<string, Environment>;

/** A Python that has what was asked for, or why there is none. */
export type FoundPython = { python: string } | { reason: string };

const folder = process.env["WEFT_VENVS"] ?? join(homedir(), ".cache/weft/venvs");
const quiet = { stdio: "ignore", timeout: 600_000 } as const;
const runs = (python: string, code: string): boolean =>
  existsSync(python) && spawnSync(python, ["-W", "ignore", "-c", code], quiet).status === 0;

const pause = (ms: number): void => void Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);

/** Runs `work` in one process at a time. */
function locked(lock: string, work: () => void): void {
  const deadline = performance.now() + quiet.timeout;
  for (let held = false; !held && performance.now() < deadline; ) {
    try {
      mkdirSync(lock);
      held = true;
    } catch {
      // A lock older than any installation was left by a killed process.
      if (existsSync(lock) && Date.now() - statSync(lock).mtimeMs > quiet.timeout) rmdirSync(lock);
      pause(500);
    }
  }
  try {
    work();
  } finally {
    if (existsSync(lock)) rmdirSync(lock);
  }
}

/** The environment of that name, made first if it is missing. WEFT_TORCH=none leaves out those with PyTorch. */
export function pythonWith(name: keyof typeof environments): FoundPython {
  const { packages, check }: Environment = environments[name];
  if (process.env["WEFT_TORCH"] === "none" && packages.includes("torch")) return { reason: "WEFT_TORCH=none" };
  const home = join(folder, name);
  const python = join(home, "bin/python");
  if (runs(python, check)) return { python };
  mkdirSync(folder, { recursive: true });
  locked(`${home}.lock`, () => {
    if (runs(python, check) || spawnSync("python3", ["-m", "venv", home], quiet).status !== 0) return;
    spawnSync(python, ["-m", "pip", "install", "-q", "--retries", "1", "--timeout", "15", ...packages], quiet);
  });
  if (runs(python, check)) return { python };
  return { reason: `${packages.join(", ")}: not in ${home}, and pip could not install it` };
}

/** How tests run a Python that computes: one thread, which does not spin beside other work, and as long as a busy machine takes. */
export const patient = { env: { ...process.env, OMP_NUM_THREADS: "1" }, timeout: 1_200_000 } as const;

/** The same for tests: the Python, or the options of a test that is skipped, with the reason printed. */
export function testPython(
  name: keyof typeof environments,
  what: string,
): { python: string; skip: false } | { python: ""; skip: string } {
  const found = pythonWith(name);
  if ("python" in found) return { python: found.python, skip: false };
  process.stderr.write(`\nweft: SKIPPED: ${what}: ${found.reason}\n`);
  return { python: "", skip: found.reason };
}
