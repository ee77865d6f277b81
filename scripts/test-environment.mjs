// Loaded into the process of every test file by scripts/test.mjs. Gives the file a temporary folder of its own and writes down its
// processor time.
import { mkdirSync, writeFileSync } from "node:fs";
import { relative } from "node:path";
import { isMainThread } from "node:worker_threads";
import { root } from "./setup.mjs";
import { folderOf, processorSeconds, timesOf } from "./test-folders.mjs";

// What optimized programs compute is checked by the suites of every op, of gradients, of random programs, of kernels and lanes, of
// models and of quantum systems. The tests below compile programs to check something else, so the C compiler skips optimizations for them and
// for the processes that they start: it takes a third of the time then.
const unoptimized = [
  /^packages\/cli\/dist\/commands\/quantum(-meta|-optimize)?\.test/,
  /^packages\/cli\/dist\/test\/(terminal|train)\.test/,
  /^packages\/cluster\/dist\/cluster\.test/,
  /^packages\/core\/dist\/test\/(control|distributions|ops-emulated|scan|varying)\.test/,
  /^packages\/ui\/dist\/test\/gates\.test/,
];

const base = process.env.WEFT_TEST_FOLDER;
if (base !== undefined && isMainThread && process.argv[1]?.endsWith(".test.js")) {
  const file = relative(root, process.argv[1]);
  if (unoptimized.some((pattern) => pattern.test(file))) process.env.WEFT_CC_FLAGS ??= "-O0";
  process.env.TMPDIR = folderOf(base, file);
  mkdirSync(process.env.TMPDIR, { recursive: true });
  process.on("exit", () => writeFileSync(timesOf(base, file), String(processorSeconds())));
}
