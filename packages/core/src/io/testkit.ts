// Helpers of the io tests: scratch folders, arrays of every dtype, and calls of Python.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after } from "node:test";
import { type DType, dtypes, makeStorage, numel, type Shape } from "../graph/index.js";
import { FileError } from "./file.js";
import { bytesView, type HostArray } from "./host.js";

/** A temporary folder that is removed after the tests of this file. */
export function scratchFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), "weft-io-"));
  after(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/** An array whose bytes are all different from their neighbors, and valid in every dtype. */
export function sample(dtype: DType, shape: Shape): HostArray {
  const data = makeStorage(dtype, numel(shape));
  const bytes = bytesView(data);
  for (let i = 0; i < bytes.length; i++) bytes[i] = dtype === "bool" ? i % 2 : (i * 37 + 11) % 120;
  return { shape, dtype, data };
}

export const allDtypes = dtypes;

export function assertSameArray(actual: HostArray, expected: HostArray): void {
  assert.equal(actual.dtype, expected.dtype);
  assert.deepEqual([...actual.shape], [...expected.shape]);
  assert.deepEqual(actual.data, expected.data);
}

/** The promise is rejected with an error that names the file and matches the pattern. */
export async function rejects(promise: Promise<unknown>, path: string, pattern: RegExp): Promise<void> {
  await assert.rejects(promise, (error: unknown) => {
    assert.ok(error instanceof FileError, `not a FileError: ${String(error)}`);
    assert.ok(error.message.startsWith(path), error.message);
    assert.match(error.message, pattern);
    return true;
  });
}

/** Nothing but the named files is left in their folder: no temporary file survived. */
export function assertOnlyFiles(folder: string, names: readonly string[]): void {
  assert.deepEqual(readdirSync(folder).sort(), [...names].sort());
}

export function runPython(python: string, script: string, args: readonly string[]): string {
  const done = spawnSync(python, ["-c", script, ...args], { encoding: "utf8", timeout: 120_000 });
  assert.equal(done.status, 0, done.stderr);
  return done.stdout;
}
