// Loaded into the process of every test file by scripts/test.mjs. Gives the file a temporary folder of its own and writes down its
// processor time.
import { mkdirSync, writeFileSync } from "node:fs";
import { relative } from "node:path";
import { isMainThread } from "node:worker_threads";
import { root } from "./setup.mjs";
import { folderOf, processorSeconds, timesOf } from "./test-folders.mjs";

// The tests of these files compile programs to check something else than what optimized programs compute. There the C compiler does
// only what takes it little time, also for the processes that they start: it takes a third of the time then.
const quick = [
  /^packages\/(bench|core|models|quantum|train)\//,
  /^packages\/cli\/dist\/commands\//,
  /^packages\/cli\/dist\/test\/(cluster-commands|examples|files|hosts|init|kubernetes|pages|startup|terminal|train|train-ray|train-slurm|tune)\.test/,
  /^packages\/cluster\/dist\/(attack|attention|cluster|distributed|docs|exhaustion|faults|hostile-peers|hosts|identity|links)\.test/,
  /^packages\/cluster\/dist\/(liveness|mpi|recompute|release|rendezvous|silence|steady|stopping|tape|uneven|test\/shard-cluster)\.test/,
  /^packages\/ui\/dist\/test\/gates\.test/,
];
// These are about it, or compare the digits of two programs: every op, gradients, random programs, kernels, lanes, layers, models and
// quantum systems. Programs of event-loop compute long.
const optimized = [
  /^packages\/core\/dist\/compile\/(fusion|guards|lane|shifts)\.test/,
  /^packages\/core\/dist\/device\/cpu\/(column-forms|epilogue|fft|direct-conv|half-products|kernel-forms|order|short-forms|short-rows|threads|vector-math|native\/linalg)\.test/,
  /^packages\/core\/dist\/nn\/(layers|torch|transformer)\.test/,
  /^packages\/core\/dist\/test\/(edges|event-loop|extrema-gradients|fuzz|gradients|nans|near-padding|operand-forms|ops|precision|reduce-axes|single-ops)\.test/,
  /^packages\/core\/dist\/test\/(complex|flow|integer|large)-programs\.test/,
  /^packages\/models\/dist\/equality\.test/,
  /^packages\/quantum\/dist\/(golden|control\/golden|solvers\/(lindblad|solvers)|systems\/systems)\.test/,
  /^packages\/train\/dist\/trainer\/(placement|torch)\.test/,
];

/** Whether any of the patterns fits. */
const fits = (patterns, file) => patterns.some((pattern) => pattern.test(file));

const base = process.env.WEFT_TEST_FOLDER;
if (base !== undefined && isMainThread && process.argv[1]?.endsWith(".test.js")) {
  const file = relative(root, process.argv[1]);
  if (fits(quick, file) && !fits(optimized, file)) process.env.WEFT_CC_FLAGS ??= "-Og";
  process.env.TMPDIR = folderOf(base, file);
  mkdirSync(process.env.TMPDIR, { recursive: true });
  process.on("exit", () => writeFileSync(timesOf(base, file), String(processorSeconds())));
}
