// Fuzzes everything that arrives from outside with all native code under the address sanitizer: `node scripts/fuzz-memory.mjs
// [MESSAGES] [RUNS] [SEED]`. Functions, messages, tapes and checkpoints are mutated; accepted functions are compiled and run; the
// attack tests send hostile messages to real workers. Works in chunks with seeds of their own, and adds the counts of each to
// bench/results/fuzz-memory.json. Ends with 1 where the sanitizer or a test finds something.
import { spawnSync } from "node:child_process";
import { chmodSync, existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { root } from "./setup.mjs";

const [messages = 100_000, runs = 400, firstSeed = 1] = process.argv.slice(2).map(Number);
/** Messages per process. */
const chunk = 5000;
const results = join(root, "bench/results/fuzz-memory.json");
const compiler = process.env.WEFT_CC ?? "gcc";
const library = spawnSync(compiler, ["-print-file-name=libasan.so"], { encoding: "utf8" }).stdout?.trim() ?? "";
if (!existsSync(library)) {
  console.error(`${compiler} has no address sanitizer (libasan.so); Debian: apt install gcc`);
  process.exit(2);
}
const folder = mkdtempSync(join(tmpdir(), "weft-fuzz-memory-"));
const wrapper = join(folder, "cc");
const log = join(folder, "found");
const sanitize = "-fsanitize=address -fno-omit-frame-pointer -g";
writeFileSync(wrapper, `#!/bin/sh\nunset LD_PRELOAD\nexec ${compiler} ${sanitize} "$@"\n`);
chmodSync(wrapper, 0o755);

const env = {
  ...process.env,
  LD_PRELOAD: library,
  // The allocator may be asked for any size by hostile input; JavaScript's garbage is not a leak.
  ASAN_OPTIONS: `detect_leaks=0:allocator_may_return_null=1:log_path=${log}:exitcode=99`,
  WEFT_CC: wrapper,
  WEFT_CACHE_DIR: join(folder, "cache"),
  WEFT_CPU_POOL: "0",
  // The sanitizer reserves 20 TB of addresses, also in the shell that starts the compiler.
  WEFT_CC_BYTES: String(2 ** 50),
  WEFT_INTERPRET: "0",
  WEFT_RATES: "assumed",
  WEFT_FUZZ_CURRENT: join(folder, "current.json"),
};

const reports = () => readdirSync(folder).filter((name) => name.startsWith("found"));
const node = (args, more = {}) =>
  spawnSync(process.execPath, args, { env: { ...env, ...more }, encoding: "utf8", maxBuffer: 1 << 28, cwd: root });

/** Adds what a test file did to the record. */
function add(name, seed, said, found, passed) {
  const record = existsSync(results) ? JSON.parse(readFileSync(results, "utf8")) : { counts: {}, tests: {} };
  for (const text of said) {
    const [, count, what] = /^(\d+) (functions computed|functions|messages|tapes|files)/.exec(text) ?? [];
    if (what !== undefined) record.counts[what] = (record.counts[what] ?? 0) + Number(count);
  }
  const test = (record.tests[name] ??= { passed: 0, failed: [], reports: 0, nextSeed: 0 });
  if (passed) test.passed++;
  else test.failed.push(seed);
  test.reports += found;
  test.nextSeed = Math.max(test.nextSeed, seed + 1);
  writeFileSync(results, `${JSON.stringify(record, null, 1)}\n`);
}

/** The sanitizer must find an overflow in code that is compiled and called as generated code is. */
function provesItself() {
  const source = join(folder, "overflow.c");
  writeFileSync(
    source,
    "#include <stdlib.h>\nint f(int n) { char *p = malloc(n); p[n] = 1; int r = p[n]; free(p); return r; }\n",
  );
  const made = spawnSync(wrapper, ["-shared", "-fPIC", source, "-o", `${source}.so`], { encoding: "utf8" });
  if (made.status !== 0) throw new Error(made.stderr);
  const call = `const k = (await import("koffi")).default; k.load(${JSON.stringify(`${source}.so`)}).func("int f(int)")(8);`;
  node(["--input-type=module", "-e", call]);
  const found = reports();
  for (const name of found) rmSync(join(folder, name));
  return found.length > 0;
}

let failed = false;

function test(name, seed, more) {
  const begin = Date.now();
  const file = join(root, `packages/cluster/dist/${name}.test.js`);
  const { status, stdout } = node(["--test", "--test-reporter=tap", file], more);
  const said = [...stdout.matchAll(/^\s*# (\d+ (?:functions|messages|tapes|files).*)$/gm)].map(([, text]) => text);
  const found = reports();
  add(name, seed, said, found.length, status === 0);
  console.log(
    `${name} ${seed}: ${status === 0 ? "passed" : "FAILED"}, ${found.length} reports, ${((Date.now() - begin) / 1e3).toFixed(0)} s`,
  );
  for (const text of said) console.log(`  ${text}`);
  for (const report of found) {
    console.log(readFileSync(join(folder, report), "utf8").slice(0, 6000));
    rmSync(join(folder, report));
  }
  if (found.length > 0 && existsSync(env.WEFT_FUZZ_CURRENT))
    console.log(readFileSync(env.WEFT_FUZZ_CURRENT, "utf8").slice(0, 4000));
  if (status !== 0) console.log(stdout.slice(-6000));
  failed ||= status !== 0 || found.length > 0;
}

try {
  if (!provesItself()) throw new Error("the sanitizer did not notice an overflow: nothing below would mean anything");
  const chunks = Math.ceil(messages / chunk);
  for (let i = 0; i < chunks; i++)
    test("fuzz", firstSeed + i, {
      WEFT_FUZZ_MESSAGES: String(Math.min(chunk, messages - i * chunk)),
      WEFT_FUZZ_RUNS: String(Math.ceil(runs / chunks)),
      WEFT_FUZZ_SEED: String(firstSeed + i),
    });
  for (const name of ["attack", "hostile-peers", "identity"]) test(name, 0, {});
} finally {
  rmSync(folder, { recursive: true, force: true });
}
process.exit(failed ? 1 : 0);
