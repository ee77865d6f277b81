// The documentation of the package: every public name has TSDoc, every `@example` and the programs of docs/cluster.md run.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import {
  markdownBlocks,
  needsRepository,
  packageExamples,
  repositoryRoot,
  runPrograms,
  undocumentedExports,
} from "@weft/testing/examples";

for (const entry of ["index.ts", "distributed.ts"])
  test(`every name that ${entry} exports has TSDoc`, needsRepository, () => {
    assert.deepEqual(undocumentedExports(`packages/cluster/src/${entry}`), []);
  });

test("every @example and every program of docs/cluster.md compiles and runs", needsRepository, () => {
  const page = readFileSync(join(repositoryRoot, "docs/cluster.md"), "utf8");
  // Smaller than on the page, so that the test takes a second.
  // The one that needs Ray is run by ray.test.ts.
  const blocks = markdownBlocks(page, "ts").filter((code) => !code.includes("ray:"));
  const programs = blocks.map((code) => ({
    name: "docs/cluster.md",
    code: code.replaceAll("8192", "32").replaceAll("4096", "16").replace("devices: 4", "devices: 2, cores: 1"),
  }));
  assert.equal(programs.length, 2);
  const examples = packageExamples("packages/cluster");
  assert.ok(examples.length >= 2);
  runPrograms([...examples, ...programs], ({ code }, output) => {
    for (const [, expected] of code.matchAll(/^console\.log\(.*\); \/\/ (\d+)$/gm))
      assert.equal(output.trim(), expected);
  });
});
