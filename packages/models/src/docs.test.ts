// The documentation of the package: every public name has TSDoc, every `@example` runs.
import assert from "node:assert/strict";
import { test } from "node:test";
import { needsRepository, packageExamples, runPrograms, undocumentedExports } from "@weft/testing/examples";

test("every public name has TSDoc", needsRepository, () => {
  for (const entry of ["index.ts", "tune/module.ts"])
    assert.deepEqual(undocumentedExports(`packages/models/src/${entry}`), []);
});

test("every @example runs", needsRepository, () => {
  runPrograms(packageExamples("packages/models"), ({ name }, output) =>
    assert.notEqual(output.trim(), "", `${name} prints nothing`),
  );
});
