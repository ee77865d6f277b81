// Loaded into the process of every test file by scripts/test.mjs. Tests of commands, clusters, trainers and pages compile hundreds of
// programs whose speed does not matter, so the C compiler skips optimizations for them and the processes that they start. What
// optimized programs compute is checked by the suites of core, models and quantum.
const incidental = /\/packages\/(bench|cli|cluster|lab|train|ui)\/dist\//;

if (incidental.test(process.argv[1] ?? "")) process.env.WEFT_CC_FLAGS ??= "-O0";
