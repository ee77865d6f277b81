import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

test("docs/lab.md shows what the commands really print", () => {
  const script = fileURLToPath(new URL("../../../lab/scripts/write-docs.mjs", import.meta.url));
  const { status, stderr } = spawnSync(process.execPath, [script, "--check"], { encoding: "utf8" });
  assert.equal(status, 0, stderr);
});
