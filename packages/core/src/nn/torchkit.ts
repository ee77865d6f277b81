// A real PyTorch for the tests of nn/ and optim/: found or installed in a virtual environment of its own, asked many
// things in one process. Tests are skipped, loudly, where there is none.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { DType } from "../graph/index.js";
import type { Tensor } from "../tensor/index.js";

const script = fileURLToPath(new URL("../../testdata/torch_nn.py", import.meta.url));
const environment = join(homedir(), ".cache/weft/venvs/torch");

const imports = (python: string): boolean =>
  spawnSync(python, ["-c", "import torch"], { stdio: "ignore", timeout: 120_000 }).status === 0;

/** Python with PyTorch, or why there is none. WEFT_TORCH=none skips the search. */
export function findTorch(): { python: string } | { reason: string } {
  if (process.env.WEFT_TORCH === "none") return { reason: "WEFT_TORCH=none" };
  if (!existsSync(script)) return { reason: `${script} is not here` };
  const python = join(environment, "bin/python");
  const ready = [python, "python3"].find(imports);
  if (ready !== undefined) return { python: ready };
  const quiet = { stdio: "ignore", timeout: 600_000 } as const;
  const made = spawnSync("python3", ["-m", "venv", environment], quiet).status === 0;
  if (made) spawnSync(python, ["-m", "pip", "install", "-q", "--retries", "1", "--timeout", "15", "torch"], quiet);
  if (imports(python)) return { python };
  return { reason: `there is no PyTorch in ${environment}, and pip could not install it` };
}

const found = findTorch();
if ("reason" in found) console.error(`weft: nn and optim are NOT compared with PyTorch: ${found.reason}`);

/** Options for tests that need PyTorch. */
export const needsTorch = "reason" in found ? { skip: found.reason } : {};

export interface Wire {
  shape: readonly number[];
  data: number[];
}
export type Request = { task: string } & Record<string, unknown>;
export type Answer = Record<string, Wire>;

/** A tensor as PyTorch's side reads it. */
export const send = (t: Tensor): Wire & { dtype: DType } => ({
  dtype: t.dtype,
  shape: t.shape,
  data: Array.from(t.dataSync() as ArrayLike<number>, Number),
});

/** Asks PyTorch; one answer a request. */
export function askTorch(requests: readonly Request[]): Answer[] {
  assert.ok("python" in found);
  const done = spawnSync(found.python, ["-W", "ignore", script], {
    input: JSON.stringify(requests),
    encoding: "utf8",
    timeout: 300_000,
    maxBuffer: 1 << 28,
  });
  assert.equal(done.status, 0, done.stderr);
  return JSON.parse(done.stdout) as Answer[];
}
