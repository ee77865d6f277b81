// The whole test suite: set-up, build, style and layer checks, then node:test on the compiled output.
// Arguments are passed on as path filters: `npm test -- compile` runs the test files whose path contains "compile".

import { chmodSync, mkdtempSync, realpathSync, rmSync, writeFileSync } from "node:fs";
import { availableParallelism, tmpdir } from "node:os";
import { join, relative } from "node:path";
import { pathToFileURL } from "node:url";
import { globSync } from "./glob.mjs";
import { root, setup, sh } from "./setup.mjs";
import { leftBehind } from "./test-folders.mjs";
import { longestFirst } from "./test-order.mjs";

setup({ tests: true });
const steps = [
  ["build", process.execPath, [join(root, "scripts/build.mjs")]],
  ["style", process.execPath, [join(root, "node_modules/@biomejs/biome/bin/biome"), "check", "."]],
  ["native style", process.execPath, [join(root, "scripts/native-files.mjs"), "--check"]],
  ["layers", process.execPath, [join(root, "scripts/check-layers.mjs")]],
];
for (const [name, command, args] of steps) {
  const status = sh(command, args);
  if (status !== 0) {
    console.error(`weft: the ${name} step failed`);
    process.exit(status);
  }
}
const filters = process.argv.slice(2).filter((a) => !a.startsWith("-"));
const files = globSync(join(root, "packages"), (path) => path.endsWith(".test.js") && path.includes("/dist/"))
  .map((path) => relative(root, path))
  .filter((path) => filters.length === 0 || filters.some((f) => path.includes(f)));
if (files.length === 0) {
  console.error(`weft: no test file matches ${filters.join(" ")}`);
  process.exit(1);
}
// What tests see of the planner must not depend on how busy a machine is.
process.env.WEFT_RATES ??= "assumed";
// What commands print must not depend on it either.
process.env.WEFT_PROGRESS ??= "0";
// Suites of the CPU device check compiled programs; small ones would be interpreted by the rules that they are compared with.
process.env.WEFT_INTERPRET ??= "0";
// One file more than cores: the suites start real processes and wait for them a fifth of their time. Not many more, because each
// file may start several.
const concurrency = process.env.WEFT_TEST_CONCURRENCY ?? String(Math.min(availableParallelism(), 4) + 1);
// Temporary files of the test files: whatever is there at the end was left behind.
const temporary = mkdtempSync(join(realpathSync(tmpdir()), "wt-"));
// Some tests run programs as another user, who must reach the folder that was made for them.
chmodSync(temporary, 0o711);
process.env.WEFT_TEST_FOLDER = temporary;
// Most processes of the tests live for a second or two: functions are optimized only when they have run fifteen times as long as usual,
// which saves a fifth to a half of the processor time. `NODE_OPTIONS` does not accept the flag itself. The file is where other users
// can read it.
const tiering = join(temporary, "tiering.cjs");
writeFileSync(tiering, 'require("node:v8").setFlagsFromString("--interrupt-budget=2000000");\n');
process.env.NODE_OPTIONS = `${process.env.NODE_OPTIONS ?? ""} --require ${JSON.stringify(tiering)}`.trim();
const status = sh(process.execPath, [
  "--import",
  pathToFileURL(join(root, "scripts/test-environment.mjs")).href,
  join(root, "scripts/test-files.mjs"),
  concurrency,
  ...longestFirst(files).map((file) => join(root, file)),
]);
for (const line of leftBehind(temporary, files)) console.error(`weft: left behind by ${line}`);
rmSync(temporary, { recursive: true, force: true });
process.exit(status);
