// The documentation of the package: every public name has TSDoc.
import assert from "node:assert/strict";
import { test } from "node:test";
import { needsRepository, undocumentedExports } from "@weft/testing/examples";

for (const entry of ["trainer/index.ts", "data/index.ts"])
  test(`every name that ${entry} exports has TSDoc`, needsRepository, () => {
    assert.deepEqual(undocumentedExports(`packages/train/src/${entry}`), []);
  });
