// Runs the random programs of the test suites in large numbers:
// `node scripts/fuzz.mjs COUNT [KIND ...] [--devices=reference,cpu,cuda-emulated] [--flags=-O0] [--eager]`.
// `--flags` are for the C compiler. With -O0 it takes a quarter of its time (0.03 to 0.3 s of processor time per program in all, by kind):
// for errors of the code generator, not for those of the compiler. `--eager` runs programs as users do outside jit: the interpreter
// first, values read on the way. Both are counted separately. Every process runs a chunk with seeds of its own, so that one crash costs
// one chunk. Adds the counts to bench/results/fuzz.json: per kind and suite how many programs ran, from which seeds, and which chunks failed.
import { spawnSync } from "node:child_process";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { root } from "./setup.mjs";

/** Test file and programs per process of each kind. */
const kinds = {
  "single operations": ["single-ops", 2000],
  "integer and gather programs": ["integer-programs", 200],
  "complex programs": ["complex-programs", 200],
  "calls with gradients": ["torch-calls", 500],
  "float programs with gradients": ["fuzz", 100],
  "programs with loops and branches": ["flow-programs", 48],
  "divided programs": ["shard-random", 500],
  "programs of mixed dtypes": ["mixed-programs", 200],
};

const [total, ...rest] = process.argv.slice(2);
const count = Number(total);
const wanted = rest.filter((word) => !word.startsWith("--"));
const option = (name) => rest.find((word) => word.startsWith(`--${name}=`))?.slice(name.length + 3);
const [devices, flags, isEager] = [option("devices"), option("flags"), rest.includes("--eager")];
/** Part of the names of suites: how the programs ran, where that is not by jit with the usual flags. */
const mode = [...(isEager ? ["outside jit"] : []), ...(flags === undefined ? [] : [`compiled with ${flags}`])];
const unknown = wanted.filter((kind) => !(kind in kinds));
if (!Number.isInteger(count) || count < 1 || unknown.length > 0)
  throw new Error(
    `usage: node scripts/fuzz.mjs COUNT [KIND ...] [--devices=reference,cpu,cuda-emulated] [--flags=-O0] [--eager]; kinds: ${Object.keys(kinds).join(", ")}`,
  );

const path = join(root, "bench/results/fuzz.json");
const read = () => (existsSync(path) ? JSON.parse(readFileSync(path, "utf8")) : { suites: {} });

/** Adds a chunk to what was recorded of its suites. Other processes add theirs: the file is read again each time. */
function add(kind, seed, programs, suites) {
  const record = read();
  for (const { name: suiteName, failed } of suites) {
    const name = [suiteName, ...mode].join(", ");
    record.suites[kind] ??= {};
    const suite = (record.suites[kind][name] ??= { programs: 0, nextSeed: 0, failedChunks: [] });
    suite.programs += programs;
    suite.nextSeed = Math.max(suite.nextSeed, seed + programs);
    if (failed) suite.failedChunks.push([seed, programs]);
  }
  writeFileSync(path, `${JSON.stringify(record, null, 1)}\n`);
}

/** Suites of a test file that ran: the innermost tests of node:test in TAP, which come before the line of the group around them. */
function suitesOf(tap) {
  const found = [];
  let group = [];
  for (const [, indent, result, name, skipped] of tap.matchAll(/^( *)(not ok|ok) \d+ - (.*?)( # SKIP.*)?$/gm)) {
    const test = { name, failed: result === "not ok" };
    if (indent !== "") group.push(...(skipped === undefined ? [test] : []));
    else if (group.length === 0) found.push(...(skipped === undefined ? [test] : []));
    else {
      found.push(...group.map((inner) => ({ ...inner, name: `${name}: ${inner.name}` })));
      group = [];
    }
  }
  return found;
}

for (const kind of wanted.length > 0 ? wanted : Object.keys(kinds)) {
  const [file, chunk] = kinds[kind];
  const names = Object.values(read().suites?.[kind] ?? {});
  const start = Math.max(0, ...names.map(({ nextSeed }) => nextSeed));
  for (let done = 0; done < count; done += chunk) {
    const programs = Math.min(chunk, count - done);
    const seed = start + done;
    const child = spawnSync(
      process.execPath,
      ["--test", "--test-reporter=tap", join(root, `packages/core/dist/test/${file}.test.js`)],
      {
        env: {
          ...process.env,
          WEFT_FUZZ: String(programs),
          WEFT_FUZZ_SEED: String(seed),
          ...(isEager ? { WEFT_FUZZ_MODE: "eager" } : { WEFT_INTERPRET: "0" }),
          ...(flags === undefined ? {} : { WEFT_CC_FLAGS: flags }),
          ...(devices === undefined ? {} : { WEFT_TEST_DEVICES: devices }),
        },
        encoding: "utf8",
        maxBuffer: 1 << 28,
      },
    );
    const suites = suitesOf(child.stdout);
    const failures = suites.filter(({ failed }) => failed).map(({ name }) => name);
    add(kind, seed, programs, suites);
    console.log(
      `${kind}: seeds ${seed} to ${seed + programs - 1}: ${failures.length === 0 ? "no failures" : `FAILED ${failures.join(", ")}`}`,
    );
    if (failures.length > 0) console.log(child.stdout.slice(-4000));
  }
}
