// The documentation of the package: every public name has TSDoc, every `@example` and every program of docs/models.md runs.
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

test("every public name has TSDoc", needsRepository, () => {
  for (const entry of ["index.ts", "tune/module.ts"])
    assert.deepEqual(undocumentedExports(`packages/models/src/${entry}`), []);
});

test("the examples and the programs of docs/models.md run", needsRepository, () => {
  const page = readFileSync(join(repositoryRoot, "docs/models.md"), "utf8");
  const programs = markdownBlocks(page, "ts").map((code, i) => ({ name: `docs/models.md ${i + 1}`, code }));
  assert.equal(programs.length, 3);
  const outputs: string[] = [];
  runPrograms([...packageExamples("packages/models"), ...programs], ({ name }, output) => {
    assert.notEqual(output.trim(), "", `${name} prints nothing`);
    outputs.push(output);
  });
  assert.ok(outputs.some((output) => output.includes("[ 'transformer.h.0.attn.c_attn' ]")));
});
