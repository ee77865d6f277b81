// Runs jax-js's own tests on Weft: `node scripts/jax-js/run.mjs CHECKOUT [FILTER]`. CHECKOUT is a clone of github.com/ekzhang/jax-js;
// vitest is installed beside it, outside of this repository. Without a filter the counts go to bench/results/jax-js.json.
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { excluded } from "./exclusions.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const root = resolve(here, "../..");
const [checkout, filter = ""] = process.argv.slice(2);
if (checkout === undefined || !existsSync(join(checkout, "test/numpy.test.ts")))
  throw new Error(
    "usage: node scripts/jax-js/run.mjs CHECKOUT [FILTER]; CHECKOUT is a clone of github.com/ekzhang/jax-js",
  );
const source = resolve(checkout);
const runner = `${source}-vitest`;
if (!existsSync(join(runner, "node_modules/vitest"))) {
  mkdirSync(runner, { recursive: true });
  writeFileSync(join(runner, "package.json"), '{ "private": true, "type": "module" }\n');
  spawnSync("npm", ["install", "vitest@4"], { cwd: runner, stdio: "inherit" });
}

// Tests of its compiler, its WebAssembly backend, its loaders and its ONNX reader concern its own internals, not arrays.
const include = ["test/*.test.ts", "packages/optax/test/*.test.ts"];
const config = {
  root: source,
  resolve: {
    alias: {
      "@jax-js/jax": join(here, "index.mjs"),
      "@jax-js/optax": join(source, "packages/optax/src/index.ts"),
      vitest: join(runner, "node_modules/vitest"),
    },
  },
  server: { fs: { strict: false } },
  test: {
    include: filter === "" ? include : include.map((pattern) => pattern.replace("*.test", `*${filter}*.test`)),
    setupFiles: [join(source, "test/setup.ts"), join(here, "setup.mjs")],
    reporters: [["json", { outputFile: join(runner, "report.json") }]],
    pool: "forks",
    maxWorkers: 1,
    testTimeout: 120_000,
    isolate: false,
  },
};
writeFileSync(join(runner, "vitest.config.mjs"), `export default ${JSON.stringify(config)};\n`);
const child = spawnSync(
  process.execPath,
  [join(runner, "node_modules/vitest/vitest.mjs"), "run", "--config", join(runner, "vitest.config.mjs")],
  {
    cwd: runner,
    env: { ...process.env, WEFT_INTERPRET: process.env.WEFT_INTERPRET ?? "1" },
    stdio: ["ignore", "inherit", "inherit"],
  },
);
if (!existsSync(join(runner, "report.json"))) process.exit(child.status ?? 1);

const report = JSON.parse(readFileSync(join(runner, "report.json"), "utf8"));
const rows = report.testResults.flatMap((file) =>
  file.assertionResults.map((test) => ({
    file: file.name.slice(source.length + 1),
    name: test.fullName,
    passed: test.status === "passed",
    skipped: test.status !== "passed" && test.status !== "failed",
    message: test.failureMessages?.[0]?.split("\n")[0] ?? "",
  })),
);
const broken = report.testResults.filter((file) => file.assertionResults.length === 0);
const counted = rows.filter((row) => !row.skipped);
const failed = counted.filter((row) => !row.passed);
const reasons = new Map();
const rest = [];
for (const row of failed) {
  const reason = excluded(row);
  if (reason === null) rest.push(row);
  else reasons.set(reason, [...(reasons.get(reason) ?? []), `${row.file}: ${row.name}`]);
}
const passed = counted.length - failed.length;
const judged = passed + rest.length;
for (const row of rest) console.log(`FAIL ${row.file}: ${row.name}\n     ${row.message}`);
for (const file of broken) console.log(`BROKEN ${file.name}: ${file.message}`);
console.log(
  `${counted.length} tests: ${passed} pass, ${failed.length - rest.length} excluded, ${rest.length} fail; ${((100 * passed) / judged).toFixed(2)}% of ${judged}`,
);
if (filter === "") {
  const commit = spawnSync("git", ["-C", source, "rev-parse", "HEAD"], { encoding: "utf8" }).stdout.trim();
  const files = {};
  for (const row of counted) {
    files[row.file] ??= { tests: 0, passed: 0 };
    files[row.file].tests++;
    if (row.passed) files[row.file].passed++;
  }
  const record = {
    suite: "tests of github.com/ekzhang/jax-js",
    commit: process.env.JAX_JS_COMMIT ?? commit,
    tests: counted.length,
    passed,
    excluded: failed.length - rest.length,
    failed: rest.length,
    share: passed / judged,
    files,
    exclusions: Object.fromEntries(reasons),
    failures: rest.map((row) => ({ test: `${row.file}: ${row.name}`, message: row.message })),
  };
  writeFileSync(join(root, "bench/results/jax-js.json"), `${JSON.stringify(record, null, 1)}\n`);
}
