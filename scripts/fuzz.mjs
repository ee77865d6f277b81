// Runs the random programs of the test suites in large numbers:
// `node scripts/fuzz.mjs COUNT [KIND ...] [--devices=reference,cpu,cuda-emulated] [--flags=-O0] [--eager] [--jobs=N] [--minutes=M]
// [--seed=S] [--out=FILE]`.
// `--flags` are for the C compiler. With -O0 it takes a quarter of its time (0.03 to 0.3 s of processor time per program in all, by kind):
// for errors of the code generator, not for those of the compiler. `--eager` runs programs as users do outside jit: the interpreter
// first, values read on the way. Both are counted separately. Every process runs a chunk with seeds of its own, so that one crash costs
// one chunk; `--jobs` processes run at once, the kinds in turns, and what `--minutes` ends is not counted. Seeds follow those of the
// record unless `--seed` says where they start. Adds the counts to FILE (bench/results/fuzz.json): per kind and suite how many programs
// ran, from which seeds, and which chunks failed.
import { spawn } from "node:child_process";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { root } from "./setup.mjs";

/** Test file and programs per process of each kind. */
const kinds = {
  "single operations": ["single-ops", 1000],
  "integer and gather programs": ["integer-programs", 200],
  "complex programs": ["complex-programs", 200],
  "calls with gradients": ["torch-calls", 250],
  "float programs with gradients": ["fuzz", 50],
  "programs with loops and branches": ["flow-programs", 48],
  "divided programs": ["shard-random", 250],
  "programs of mixed dtypes": ["mixed-programs", 200],
};

const names = ["devices", "flags", "jobs", "minutes", "seed", "out"];
const [total, ...rest] = process.argv.slice(2);
const wanted = rest.filter((word) => !word.startsWith("--"));
const option = (name) => rest.find((word) => word.startsWith(`--${name}=`))?.slice(name.length + 3);
const [devices, flags, isEager] = [option("devices"), option("flags"), rest.includes("--eager")];
const [count, jobs, minutes, firstSeed] = [
  total,
  option("jobs") ?? 1,
  option("minutes") ?? Infinity,
  option("seed") ?? 0,
].map(Number);
/** Part of the names of suites: how the programs ran, where that is not by jit with the usual flags. */
const mode = [...(isEager ? ["outside jit"] : []), ...(flags === undefined ? [] : [`compiled with ${flags}`])];
const isKnown = (word) => word === "--eager" || names.some((name) => word.startsWith(`--${name}=`));
const unknown = rest.filter((word) => (word.startsWith("--") ? !isKnown(word) : !(word in kinds)));
const isCount = (x) => Number.isInteger(x) && x > 0;
if (!isCount(count) || !isCount(jobs) || !(minutes > 0) || !(firstSeed >= 0) || unknown.length > 0) {
  console.error(
    `usage: node scripts/fuzz.mjs COUNT [KIND ...] [--eager] ${names.map((name) => `[--${name}=...]`).join(" ")}\n` +
      `kinds: ${Object.keys(kinds).join(", ")}${unknown.length > 0 ? `\nunknown: ${unknown.join(", ")}` : ""}`,
  );
  process.exit(2);
}

const path = resolve(option("out") ?? join(root, "bench/results/fuzz.json"));
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

/** Chunks of a kind, each with seeds of its own. */
function chunksOf(kind) {
  const start = Math.max(firstSeed, ...Object.values(read().suites?.[kind] ?? {}).map(({ nextSeed }) => nextSeed));
  const size = kinds[kind][1];
  return Array.from({ length: Math.ceil(count / size) }, (_, i) => ({
    kind,
    seed: start + i * size,
    programs: Math.min(size, count - i * size),
    /** Part of the kind that is done before this chunk: the kinds advance alike. */
    turn: (i * size) / count,
  }));
}

const env = {
  ...process.env,
  ...(isEager ? { WEFT_FUZZ_MODE: "eager" } : { WEFT_INTERPRET: "0" }),
  ...(flags === undefined ? {} : { WEFT_CC_FLAGS: flags }),
  ...(devices === undefined ? {} : { WEFT_TEST_DEVICES: devices }),
  // Programs are small: processes beside each other share the cores better than threads do.
  ...(jobs > 1 && process.env.WEFT_THREADS === undefined ? { WEFT_THREADS: "2" } : {}),
};
const deadline = performance.now() + 60_000 * minutes;
const queue = (wanted.length > 0 ? wanted : Object.keys(kinds)).flatMap(chunksOf).sort((a, b) => a.turn - b.turn);

/** Ends of the processes that run: each has a group of its own, which contains those that the test runner starts. */
const ends = new Set();
for (const signal of ["SIGINT", "SIGTERM"])
  process.once(signal, () => {
    for (const end of ends) end();
    process.exit(1);
  });

/** Runs a chunk. Resolves to what it printed, or to null when the time was over. */
const run = ({ kind, seed, programs }) =>
  new Promise((done) => {
    const file = join(root, `packages/core/dist/test/${kinds[kind][0]}.test.js`);
    const child = spawn(process.execPath, ["--test", "--test-reporter=tap", file], {
      env: { ...env, WEFT_FUZZ: String(programs), WEFT_FUZZ_SEED: String(seed) },
      stdio: ["ignore", "pipe", "inherit"],
      detached: true,
    });
    let isLate = false;
    const end = () => {
      isLate = true;
      process.kill(-child.pid, "SIGKILL");
    };
    ends.add(end);
    const timer = Number.isFinite(deadline) ? setTimeout(end, deadline - performance.now()) : undefined;
    const parts = [];
    child.stdout.on("data", (part) => parts.push(part));
    child.on("close", () => {
      ends.delete(end);
      clearTimeout(timer);
      done(isLate ? null : Buffer.concat(parts).toString());
    });
  });

/** Takes chunks until none is left. */
async function work() {
  while (queue.length > 0 && performance.now() < deadline) {
    const chunk = queue.shift();
    const { kind, seed, programs } = chunk;
    const started = performance.now();
    const printed = await run(chunk);
    if (printed === null) continue;
    const suites = suitesOf(printed);
    const failures = suites.filter(({ failed }) => failed).map(({ name }) => name);
    add(kind, seed, programs, suites);
    const result =
      suites.length === 0 ? "NOTHING RAN" : failures.length === 0 ? "no failures" : `FAILED ${failures.join(", ")}`;
    const seconds = ((performance.now() - started) / 1000).toFixed(0);
    console.log(`${kind}: seeds ${seed} to ${seed + programs - 1}: ${result} (${seconds} s)`);
    if (failures.length > 0 || suites.length === 0) console.log(printed.slice(-4000));
  }
}

await Promise.all(Array.from({ length: jobs }, work));
