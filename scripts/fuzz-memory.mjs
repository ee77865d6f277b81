// Fuzzes everything that arrives from outside with all native code under the address sanitizer: `node scripts/fuzz-memory.mjs
// [MESSAGES] [RUNS] [SEED]`. Functions, messages, tapes and checkpoints are mutated; accepted functions are compiled and run; the
// attack tests send hostile messages to real workers. Ends with 1 where the sanitizer or a test finds something.
import { spawnSync } from "node:child_process";
import { chmodSync, existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { root } from "./setup.mjs";

const [messages = "100000", runs = "400", seed = "1"] = process.argv.slice(2);
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
  // The allocator may be asked for any size by hostile input; leaks of JavaScript's garbage are none.
  ASAN_OPTIONS: `detect_leaks=0:allocator_may_return_null=1:log_path=${log}:exitcode=99`,
  WEFT_CC: wrapper,
  WEFT_CACHE_DIR: join(folder, "cache"),
  WEFT_CPU_POOL: "0",
  WEFT_INTERPRET: "0",
  WEFT_RATES: "assumed",
  WEFT_FUZZ_MESSAGES: messages,
  WEFT_FUZZ_RUNS: runs,
  WEFT_FUZZ_SEED: seed,
  WEFT_FUZZ_CURRENT: join(folder, "current.json"),
};

const reports = () => readdirSync(folder).filter((name) => name.startsWith("found"));
const node = (args) => spawnSync(process.execPath, args, { env, encoding: "utf8", maxBuffer: 1 << 28, cwd: root });

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
try {
  if (!provesItself()) throw new Error("the sanitizer did not notice an overflow: nothing below would mean anything");
  for (const name of ["fuzz", "attack", "hostile-peers", "identity"]) {
    const begin = Date.now();
    const { status, stdout } = node([
      "--test",
      "--test-reporter=tap",
      join(root, `packages/cluster/dist/${name}.test.js`),
    ]);
    const said = [...stdout.matchAll(/^\s*# (\d+ (?:functions|messages|tapes|files).*)$/gm)].map(([, text]) => text);
    const found = reports();
    console.log(
      `${name}: ${status === 0 ? "passed" : "FAILED"}, ${found.length} reports, ${((Date.now() - begin) / 1e3).toFixed(0)} s`,
    );
    for (const text of said) console.log(`  ${text}`);
    for (const file of found) {
      console.log(readFileSync(join(folder, file), "utf8").slice(0, 6000));
      rmSync(join(folder, file));
    }
    if (found.length > 0 && existsSync(env.WEFT_FUZZ_CURRENT))
      console.log(readFileSync(env.WEFT_FUZZ_CURRENT, "utf8").slice(0, 4000));
    if (status !== 0) console.log(stdout.slice(-6000));
    failed ||= status !== 0 || found.length > 0;
  }
} finally {
  rmSync(folder, { recursive: true, force: true });
}
process.exit(failed ? 1 : 0);
