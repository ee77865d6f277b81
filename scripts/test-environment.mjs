// Loaded into the process of every test file by scripts/test.mjs. Gives the file a temporary folder of its own and writes down its
// processor time.
import { mkdirSync, writeFileSync } from "node:fs";
import { relative } from "node:path";
import { isMainThread } from "node:worker_threads";
import { root } from "./setup.mjs";
import { folderOf, processorSeconds, timesOf } from "./test-folders.mjs";

// The files below compile many programs whose speed does not matter,
// so the C compiler skips optimizations for them and for the processes that they start. What optimized programs compute is checked by
// the suites of core, models and quantum.
const incidental = [
  "bench/dist/suites/suites.test.js",
  "cli/dist/commands/quantum-meta.test.js",
  "cli/dist/commands/quantum.test.js",
  "cli/dist/commands/quantum-optimize.test.js",
  "cli/dist/test/init.test.js",
  "cli/dist/test/terminal.test.js",
  "cli/dist/test/train-slurm.test.js",
  "cli/dist/test/train.test.js",
  "cluster/dist/cluster.test.js",
  "ui/dist/test/gates.test.js",
];

if (incidental.some((file) => process.argv[1]?.endsWith(`/packages/${file}`))) process.env.WEFT_CC_FLAGS ??= "-O0";

const base = process.env.WEFT_TEST_FOLDER;
if (base !== undefined && isMainThread && process.argv[1]?.endsWith(".test.js")) {
  const file = relative(root, process.argv[1]);
  process.env.TMPDIR = folderOf(base, file);
  mkdirSync(process.env.TMPDIR, { recursive: true });
  process.on("exit", () => writeFileSync(timesOf(base, file), String(processorSeconds())));
}
