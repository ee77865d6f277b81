// Loaded into the process of every test file by scripts/test.mjs. The files below compile many programs whose speed does not matter,
// so the C compiler skips optimizations for them and for the processes that they start. What optimized programs compute is checked by
// the suites of core, models and quantum.
const incidental = [
  "cli/dist/commands/quantum.test.js",
  "cli/dist/commands/quantum-optimize.test.js",
  "cli/dist/test/terminal.test.js",
  "cluster/dist/cluster.test.js",
];

if (incidental.some((file) => process.argv[1]?.endsWith(`/packages/${file}`))) process.env.WEFT_CC_FLAGS ??= "-O0";
