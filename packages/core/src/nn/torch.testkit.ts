// A real PyTorch for the tests of nn/ and optim/: asked many things in one process.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import type { DType } from "../graph/index.js";
import type { Tensor } from "../tensor/index.js";
import { patient, testPython } from "../testing/python.js";

const script = fileURLToPath(new URL("../../testdata/torch_nn.py", import.meta.url));
const { python, skip } = existsSync(script)
  ? testPython("torch", "nn and optim against PyTorch")
  : { python: "", skip: `${script} is not here` };

/** Options for tests that need PyTorch. */
export const needsTorch = { skip };

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
  const done = spawnSync(python, ["-W", "ignore", script], {
    input: JSON.stringify(requests),
    encoding: "utf8",
    ...patient,
    maxBuffer: 1 << 28,
  });
  assert.equal(done.status, 0, done.stderr);
  return JSON.parse(done.stdout) as Answer[];
}
