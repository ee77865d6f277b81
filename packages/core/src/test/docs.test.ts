// Checks of the documentation: the generated pages are up to date.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { test } from "node:test";
import { needsRepository, repositoryRoot as root } from "../testing/examples.js";

const run = (args: string[]) => spawnSync(process.execPath, args, { cwd: root, encoding: "utf8" });

test("docs/ops.md is up to date", needsRepository, () => {
  const { status, stderr } = run([join(root, "scripts/ops-doc.mjs"), "--check"]);
  assert.equal(status, 0, stderr);
});

test("docs/performance.md is up to date", needsRepository, () => {
  const { status, stderr } = run([join(root, "packages/bench/dist/suites/main.js"), "report", "--check"]);
  assert.equal(status, 0, stderr);
});
