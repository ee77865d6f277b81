// The documentation of the package: every public name has TSDoc, every `@example` runs.
import assert from "node:assert/strict";
import { test } from "node:test";
import { needsRepository, packageExamples, runPrograms, undocumentedExports } from "@weft/testing/examples";

test("every public name has TSDoc", needsRepository, () => {
  assert.deepEqual(undocumentedExports("packages/quantum/src/index.ts"), []);
});

test("every @example compiles strictly, runs and prints", needsRepository, () => {
  const examples = packageExamples("packages/quantum");
  assert.ok(examples.length >= 10, `${examples.length} examples`);
  runPrograms(examples, ({ name }, output) => assert.notEqual(output.trim(), "", `${name} prints nothing`));
});
