// Runs the random programs of the test suites in large numbers: `node scripts/fuzz.mjs COUNT [KIND ...]`. Every process runs a chunk with
// seeds of its own, so that one crash costs one chunk. Adds the counts to bench/results/fuzz.json: per kind and device how many
// programs ran, from which seeds, and what failed.
import { spawnSync } from "node:child_process";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { root } from "./setup.mjs";

/** Test file and programs per process of each kind. */
const kinds = {
  "single operations": ["single-ops", 2000],
  "integer and gather programs": ["integer-programs", 200],
  "complex programs": ["complex-programs", 200],
  "float programs with gradients": ["fuzz", 100],
  "programs with loops and branches": ["flow-programs", 50],
};

const [total, ...wanted] = process.argv.slice(2);
const count = Number(total);
const unknown = wanted.filter((kind) => !(kind in kinds));
if (!Number.isInteger(count) || count < 1 || unknown.length > 0)
  throw new Error(`usage: node scripts/fuzz.mjs COUNT [KIND ...]; kinds: ${Object.keys(kinds).join(", ")}`);

const path = join(root, "bench/results/fuzz.json");
const record = existsSync(path) ? JSON.parse(readFileSync(path, "utf8")) : { runs: [] };

for (const kind of wanted.length > 0 ? wanted : Object.keys(kinds)) {
  const [file, chunk] = kinds[kind];
  const start = Math.max(0, ...record.runs.filter((run) => run.kind === kind).map((run) => run.seed + run.programs));
  for (let done = 0; done < count; done += chunk) {
    const programs = Math.min(chunk, count - done);
    const seed = start + done;
    const child = spawnSync(
      process.execPath,
      ["--test", "--test-reporter=tap", join(root, `packages/core/dist/test/${file}.test.js`)],
      {
        env: { ...process.env, WEFT_FUZZ: String(programs), WEFT_FUZZ_SEED: String(seed), WEFT_INTERPRET: "0" },
        encoding: "utf8",
        maxBuffer: 1 << 28,
      },
    );
    const suites = [...child.stdout.matchAll(/^(not ok|ok) \d+ - (.*?)( # SKIP.*)?$/gm)].filter(
      ([, , , skipped]) => skipped === undefined,
    );
    const failures = suites.filter(([, result]) => result === "not ok").map(([, , name]) => name);
    record.runs.push({ kind, seed, programs, suites: suites.map(([, , name]) => name), failures });
    writeFileSync(path, `${JSON.stringify(record, null, 1)}\n`);
    console.log(
      `${kind}: seeds ${seed} to ${seed + programs - 1}: ${failures.length === 0 ? "no failures" : `FAILED ${failures.join(", ")}`}`,
    );
    if (failures.length > 0) console.log(child.stdout.slice(-4000));
  }
}
