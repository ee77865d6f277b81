// The documentation of the package: every public name has TSDoc, every `@example` runs.
import assert from "node:assert/strict";
import { test } from "node:test";
import {
  needsCompiler,
  needsRepository,
  packageExamples,
  runPrograms,
  undocumentedExports,
} from "@weft/testing/examples";

for (const entry of ["index.ts", "distributed.ts"])
  test(`every name that ${entry} exports has TSDoc`, needsRepository, () => {
    assert.deepEqual(undocumentedExports(`packages/cluster/src/${entry}`), []);
  });

test("every @example compiles and runs", needsCompiler, () => {
  const examples = packageExamples("packages/cluster");
  assert.ok(examples.length >= 2);
  runPrograms(examples, ({ code }, output) => {
    for (const [, expected] of code.matchAll(/^console\.log\(.*\); \/\/ (\d+)$/gm))
      assert.equal(output.trim(), expected);
  });
});
