// The documentation of the package: every public name has TSDoc, every `@example` and the program of docs/quantum.md run.
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
  assert.deepEqual(undocumentedExports("packages/quantum/src/index.ts"), []);
});

test("every @example compiles strictly, runs and prints", needsRepository, () => {
  const examples = packageExamples("packages/quantum");
  assert.ok(examples.length >= 10, `${examples.length} examples`);
  runPrograms(examples, ({ name }, output) => assert.notEqual(output.trim(), "", `${name} prints nothing`));
});

test("the programs of docs/quantum.md run", needsRepository, () => {
  const page = readFileSync(join(repositoryRoot, "docs/quantum.md"), "utf8");
  const programs = markdownBlocks(page, "ts").map((code) => ({ name: "docs/quantum.md", code }));
  assert.equal(programs.length, 2);
  runPrograms(programs, (_, output) => assert.match(output, /^[\d.e-]+( [\d.e-]+)+$/m));
});
