// Documentation of the public API: every exported name has TSDoc, and every `@example` runs and prints what its comments say.
import assert from "node:assert/strict";
import { test } from "node:test";
import {
  needsCompiler,
  needsRepository,
  packageExamples,
  runPrograms,
  undocumentedExports,
} from "../testing/examples.js";

for (const entry of ["index.ts", "nn/index.ts", "optim/index.ts", "io/index.ts"])
  test(`every name that ${entry} exports has TSDoc`, needsRepository, () => {
    assert.deepEqual(undocumentedExports(`packages/core/src/${entry}`), []);
  });

const dense = (text: string): string => text.replaceAll(/[\s'"]/g, "");

test("every @example compiles strictly and prints what its comments say", needsCompiler, () => {
  const programs = packageExamples("packages/core");
  assert.ok(programs.length >= 20);
  runPrograms(programs, ({ name, code }, output) => {
    let rest = dense(output);
    for (const [, expected] of code.matchAll(/^console\.log\(.*\); \/\/ ([[{\d-].*|true|false)$/gm)) {
      const at = rest.indexOf(dense(expected));
      assert.ok(at >= 0, `${name}: expected ${expected} in ${output}`);
      rest = rest.slice(at + dense(expected).length);
    }
  });
});
