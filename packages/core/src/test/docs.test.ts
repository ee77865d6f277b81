// Checks of the documentation: the README's example runs, the generated pages are up to date.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { markdownBlocks, needsRepository, repositoryRoot as root, runPrograms } from "../testing/examples.js";

const run = (args: string[]) => spawnSync(process.execPath, args, { cwd: root, encoding: "utf8" });

test("the README's example compiles strictly, runs and learns", needsRepository, () => {
  const blocks = markdownBlocks(readFileSync(join(root, "README.md"), "utf8"), "ts");
  assert.equal(blocks.length, 1);
  runPrograms([{ name: "README.md", code: blocks[0] }], (_, output) => {
    const printed = /^loss ([\d.]+), accuracy ([\d.]+)$/m.exec(output);
    assert.ok(printed !== null, output);
    assert.ok(Number(printed[1]) < 0.12, `loss ${printed[1]}`);
    assert.ok(Number(printed[2]) > 0.95, `accuracy ${printed[2]}`);
  });
});

test("docs/ops.md is up to date", needsRepository, () => {
  const { status, stderr } = run([join(root, "scripts/ops-doc.mjs"), "--check"]);
  assert.equal(status, 0, stderr);
});

test("docs/performance.md is up to date", needsRepository, () => {
  const { status, stderr } = run([join(root, "packages/bench/dist/suites/main.js"), "report", "--check"]);
  assert.equal(status, 0, stderr);
});
