// Python packages for tests and comparisons, which pip installs once into one virtual environment outside the repository; later runs
// reuse it. WEFT_VENVS names another folder. Who gets a reason instead skips, and prints it.
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, readFileSync, rmdirSync, rmSync, statSync, writeFileSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";

/** Packages that belong together, and how to see that they work. */
interface PackageGroup {
  packages: readonly string[];
  /** Ends with an error if something is missing. */
  check: string;
}

const groups = {
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
  peft: {
    packages: ["torch", "transformers", "safetensors", "peft"],
    check: "import torch, transformers, safetensors, peft",
  },
  qutip: { packages: ["qutip>=5"], check: "import qutip; assert qutip.__version__ >= '5'" },
  dynamiqs: { packages: ["dynamiqs"], check: "import dynamiqs" },
  ray: { packages: ["ray"], check: "import ray" },
  jsonschema: { packages: ["jsonschema"], check: "import jsonschema" },
} satisfies Record<string, PackageGroup>;

/** A Python that has what was asked for, or why there is none. */
export type FoundPython = { python: string } | { reason: string };

const folder = process.env["WEFT_VENVS"] ?? join(homedir(), ".cache/weft/venvs");
/** One environment for all groups: several need the same large packages. */
const home = join(folder, "shared");
const python = join(home, "bin/python");
const quiet = { stdio: "ignore", timeout: 600_000 } as const;
const runs = (code: string): boolean =>
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

/** Written when a group was seen to work, or could not be installed: importing PyTorch takes seconds, and an index that is away longer. */
const noteOf = (name: string): string => join(folder, `${name}.json`);
/** How long a failed installation counts. */
const failureMs = 3600e3;

/** What an earlier process found out about a group; null if it must be tried. */
function noted(name: string, group: PackageGroup): boolean | null {
  try {
    const { works, ...of } = JSON.parse(readFileSync(noteOf(name), "utf8")) as PackageGroup & { works: boolean };
    if (JSON.stringify(of) !== JSON.stringify(group)) return null;
    if (works) return existsSync(python) ? true : null;
    return Date.now() - statSync(noteOf(name)).mtimeMs < failureMs ? false : null;
  } catch {
    return null;
  }
}

function install(name: string, group: PackageGroup): boolean {
  const known = noted(name, group);
  if (known !== null) return known;
  if (!runs(group.check)) {
    // What is installed may replace packages of other groups: they are checked again.
    for (const file of readdirSync(folder)) if (file.endsWith(".json")) rmSync(join(folder, file), { force: true });
    if (existsSync(join(home, "bin/pip")) || spawnSync("python3", ["-m", "venv", home], quiet).status === 0)
      spawnSync(python, ["-m", "pip", "install", "-q", "--retries", "1", "--timeout", "15", ...group.packages], quiet);
  }
  const works = runs(group.check);
  writeFileSync(noteOf(name), JSON.stringify({ ...group, works }));
  return works;
}

/** A Python with the packages of that name, installed first if they are missing. WEFT_TORCH=none leaves out those with PyTorch. */
export function pythonWith(name: keyof typeof groups): FoundPython {
  const group: PackageGroup = groups[name];
  if (process.env["WEFT_TORCH"] === "none" && group.packages.includes("torch")) return { reason: "WEFT_TORCH=none" };
  let works = noted(name, group);
  if (works === null) {
    mkdirSync(folder, { recursive: true });
    locked(`${home}.lock`, () => {
      works = install(name, group);
    });
  }
  if (works) return { python };
  return { reason: `${group.packages.join(", ")}: not in ${home}, and pip could not install it` };
}

/** How tests run a Python that computes: one thread, which does not spin beside other work, and as long as a busy machine takes. */
export const patient = { env: { ...process.env, OMP_NUM_THREADS: "1" }, timeout: 1_200_000 } as const;

/** The same for tests: the Python, or the options of a test that is skipped, with the reason printed. */
export function testPython(
  name: keyof typeof groups,
  what: string,
): { python: string; skip: false } | { python: ""; skip: string } {
  const found = pythonWith(name);
  if ("python" in found) return { python: found.python, skip: false };
  process.stderr.write(`\nweft: SKIPPED: ${what}: ${found.reason}\n`);
  return { python: "", skip: found.reason };
}
