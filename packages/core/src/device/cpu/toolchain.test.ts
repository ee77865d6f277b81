// The compiler and its cache on bad days: killed half way, damaged files, several processes at once, no compiler at all.
import assert from "node:assert/strict";
import { execFile, spawn, spawnSync } from "node:child_process";
import {
  chmodSync,
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { hostname, tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { after, test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { findCompiler } from "./compiler.js";

const skip = findCompiler() === null ? "no C compiler on this machine" : false;
const entry = join(dirname(fileURLToPath(import.meta.url)), "../../index.js");
const folders: string[] = [];
const freshFolder = (): string => {
  const folder = mkdtempSync(join(tmpdir(), "weft-cache-"));
  folders.push(folder);
  return folder;
};
after(() => {
  for (const folder of folders) rmSync(folder, { recursive: true, force: true });
});

const program = (body: string): string[] => [
  "--input-type=module",
  "-e",
  `import * as weft from ${JSON.stringify(`file://${entry}`)};\n${body}`,
];
const adds = program("console.log(weft.ones([1000]).add(2).sum().itemSync());");
/** The same without blocking the event loop, as workers of a cluster compile. */
const addsInBackground = program(
  "console.log(await (await weft.jit((x) => x.add(2).sum()).runAsync(weft.ones([1000]))).item());",
);

// Programs of these processes must be compiled, however small, and with an empty cache the runtime library too: quickly.
process.env.WEFT_INTERPRET = "0";
process.env.WEFT_CC_FLAGS = "-O0";

function run(args: string[], env: Record<string, string>): { status: number | null; out: string; err: string } {
  const done = spawnSync(process.execPath, args, { encoding: "utf8", env: { ...process.env, ...env } });
  return { status: done.status, out: done.stdout.trim(), err: done.stderr };
}

const files = (folder: string): string[] => (existsSync(join(folder, "cpu")) ? readdirSync(join(folder, "cpu")) : []);

test("four processes may fill one cache at once", { skip }, async () => {
  const folder = freshFolder();
  const options = { env: { ...process.env, WEFT_CACHE_DIR: folder } };
  const done = await Promise.all([1, 2, 3, 4].map(() => promisify(execFile)(process.execPath, adds, options)));
  assert.deepEqual(
    done.map((d) => d.stdout.trim()),
    ["3000", "3000", "3000", "3000"],
  );
  assert.ok(
    files(folder).every((name) => /\.(so|self-test)$/.test(name)),
    files(folder).join(" "),
  );
});

/** A compiler that writes a line about every unit that it is asked for. */
function watchedCompiler(line: string): { cc: string; calls(): string[] } {
  const bin = freshFolder();
  const [cc, log] = [join(bin, "cc"), join(bin, "log")];
  writeFileSync(log, "");
  const note = `case " $* " in *".c "*) ${line} >> ${log};; esac`;
  writeFileSync(cc, `#!/bin/sh\n${note}\nexec ${findCompiler()!.command} "$@"\n`);
  chmodSync(cc, 0o755);
  return { cc, calls: () => readFileSync(log, "utf8").split("\n").filter(Boolean) };
}

test("kernels of another compiler are not reused, even if it calls itself the same", { skip }, () => {
  const folder = freshFolder();
  const compilers = [watchedCompiler("echo unit"), watchedCompiler("echo unit")];
  for (const { cc } of compilers) assert.equal(run(adds, { WEFT_CACHE_DIR: folder, WEFT_CC: cc }).out, "3000");
  const [first, second] = compilers.map(({ calls }) => calls().length);
  assert.ok(first > 0);
  assert.equal(second, first);
});

for (const [how, line] of [
  ["", adds],
  [" in the background", addsInBackground],
] as const)
  test(`of four processes that need the same kernels${how}, one compiles them`, { skip }, async () => {
    const { cc, calls } = watchedCompiler("echo unit");
    const alone = { ...process.env, WEFT_CACHE_DIR: freshFolder(), WEFT_CC: cc };
    await promisify(execFile)(process.execPath, line, { env: alone });
    const once = calls().length;
    assert.ok(once >= 2);
    const env = { ...alone, WEFT_CACHE_DIR: freshFolder() };
    await Promise.all([1, 2, 3, 4].map(() => promisify(execFile)(process.execPath, line, { env })));
    assert.equal(calls().length, 2 * once);
  });

test("a lock of a stopped process is ignored", {
  skip: skip || !existsSync("/proc/self/stat"),
  timeout: 60_000,
}, () => {
  const folder = freshFolder();
  run(adds, { WEFT_CACHE_DIR: folder });
  const stopped = spawn("sleep", ["1000"]);
  stopped.kill("SIGSTOP");
  try {
    for (const name of files(folder)) {
      rmSync(join(folder, "cpu", name));
      writeFileSync(join(folder, "cpu", `${name}.lock`), `${hostname()} ${stopped.pid}`);
    }
    const again = run(addsInBackground, { WEFT_CACHE_DIR: folder });
    assert.equal(again.out, "3000", again.err);
  } finally {
    stopped.kill("SIGKILL");
  }
});

test("a lock of a dead process is ignored", { skip }, () => {
  const folder = freshFolder();
  run(adds, { WEFT_CACHE_DIR: folder });
  const gone = spawnSync(process.execPath, ["-e", ""]).pid;
  for (const name of files(folder)) {
    rmSync(join(folder, "cpu", name));
    writeFileSync(join(folder, "cpu", `${name}.lock`), `${hostname()} ${gone}`);
  }
  const again = run(adds, { WEFT_CACHE_DIR: folder });
  assert.equal(again.out, "3000", again.err);
  assert.ok(
    files(folder).every((name) => /\.(so|self-test)$/.test(name)),
    files(folder).join(" "),
  );
});

test("a device that is pinned to one core compiles on all cores", {
  skip: skip || !existsSync("/proc/self/status"),
}, () => {
  const { cc, calls } = watchedCompiler("grep Cpus_allowed_list /proc/self/status");
  const [own] = /^Cpus_allowed_list:.*$/m.exec(readFileSync("/proc/self/status", "utf8"))!;
  const first = Number(/\d+/.exec(own)![0]);
  const pinned = program(`
    weft.useDevice(new weft.CpuDevice({ cores: [${first}] }));
    console.log(weft.ones([1000]).add(2).sum().itemSync());
  `);
  const { out, err } = run(pinned, { WEFT_CACHE_DIR: freshFolder(), WEFT_CC: cc });
  assert.equal(out, "3000", err);
  assert.deepEqual([...new Set(calls())], [own]);
});

test("a second process compiles nothing", { skip }, () => {
  const folder = freshFolder();
  assert.equal(run(adds, { WEFT_CACHE_DIR: folder }).out, "3000");
  const written = (): [string, number][] =>
    files(folder)
      .map((name) => [name, statSync(join(folder, "cpu", name)).mtimeMs] as [string, number])
      .sort();
  const before = written();
  assert.equal(run(adds, { WEFT_CACHE_DIR: folder }).out, "3000");
  assert.deepEqual(written(), before);
});

test("a damaged file in the cache is compiled again", { skip }, () => {
  const folder = freshFolder();
  run(adds, { WEFT_CACHE_DIR: folder });
  for (const name of files(folder)) writeFileSync(join(folder, "cpu", name), "not a library");
  const again = run(adds, { WEFT_CACHE_DIR: folder });
  assert.equal(again.out, "3000", again.err);
});

test("a compiler that fails gives one clear error, leaves nothing behind, and the next call works", { skip }, () => {
  const folder = freshFolder();
  const bin = freshFolder();
  const flag = join(bin, "broken");
  const cc = join(bin, "cc");
  writeFileSync(
    cc,
    `#!/bin/sh\nif [ -e ${flag} ] && [ "$1" != --version ]; then echo "disk on fire" >&2; exit 1; fi\nexec ${findCompiler()!.command} "$@"\n`,
  );
  chmodSync(cc, 0o755);
  const body = program(`
    import { writeFileSync, rmSync } from "node:fs";
    weft.ones([3]).add(1).dataSync();
    writeFileSync(${JSON.stringify(flag)}, "");
    try { weft.ones([3]).mul(7).sub(1).dataSync(); } catch (error) { console.log(error.name, error.message.split("\\n").slice(0, 2).join(" | ")); }
    rmSync(${JSON.stringify(flag)});
    console.log(weft.ones([3]).mul(7).sub(1).dataSync().join(" "));
  `);
  const { out, err } = run(body, { WEFT_CACHE_DIR: folder, WEFT_CC: cc });
  const lines = out.split("\n");
  assert.match(lines[0] ?? err, /^WeftError the C compiler failed .* \| disk on fire/);
  assert.equal(lines[1], "6 6 6");
  assert.ok(
    files(folder).every((name) => /\.(so|self-test)$/.test(name)),
    "only finished files in the cache",
  );
});

test("without a compiler the reference device is used, with a notice", () => {
  const { out, err } = run(adds, { WEFT_CC: "/nowhere/cc", WEFT_CACHE_DIR: freshFolder() });
  assert.equal(out, "3000");
  assert.match(err, /no C compiler was found/);
});

test("without OpenBLAS the built-in product gives the same result", { skip }, () => {
  const product = program(`
    const a = weft.randn([70, 130], { seed: 1 }), b = weft.randn([130, 90], { seed: 2 });
    console.log(weft.session().device.blas, Math.abs(a.matmul(b).sum().itemSync() - a.sum(0).mul(b.sum(1)).sum().itemSync()) < 0.05);
    const z = weft.complex(a, a), y = weft.complex(b, b.mul(2));
    console.log(weft.real(z.matmul(y).sum().sub(z.sum(0).mul(y.sum(1)).sum())).abs().itemSync() < 0.1);
  `);
  const { out, err } = run(product, { WEFT_OPENBLAS: "none", WEFT_CACHE_DIR: freshFolder() });
  assert.equal(out, "none true\ntrue", err);
});

/** A compiler that swaps the two sides of every select, with flags that match. */
function wrongCompiler(flags: string): string {
  const cc = join(freshFolder(), "cc");
  const swap = "s/(x & mask) | (y & ~mask)/(x \\& ~mask) | (y \\& mask)/";
  writeFileSync(
    cc,
    `#!/bin/sh
case " $* " in *"${flags}"*".c "*)
  for a in "$@"; do case "$a" in *.c) sed -i '${swap}' "$a";; esac; done;;
esac
exec ${findCompiler()!.command} "$@"
`,
  );
  chmodSync(cc, 0o755);
  return cc;
}
const chooses = program(
  `console.log(weft.where(weft.tensor([true, false, true]), weft.tensor([1, 2, 3]), weft.tensor([4, 5, 6])).arraySync().join(" "), weft.system.compilerTest().flags);`,
);

test("a compiler that miscompiles vectorized loops is used with safe flags, with one notice", { skip }, () => {
  const env = { WEFT_CACHE_DIR: freshFolder(), WEFT_CC: wrongCompiler(" -O2 ") };
  for (const _ of ["tested", "kept"]) {
    const { out, err } = run(chooses, env);
    assert.equal(out, "1 5 3 safe", err);
    assert.equal(err.match(/gives wrong results with the usual flags/g)?.length, 1, err);
  }
  const right = run(chooses, { WEFT_CACHE_DIR: env.WEFT_CACHE_DIR });
  assert.equal(right.out, "1 5 3 usual", "another compiler is tested by itself");
  assert.equal(right.err, "");
});

test("a compiler that fails the self-test with all flags is refused", { skip }, () => {
  const { status, err } = run(chooses, { WEFT_CACHE_DIR: freshFolder(), WEFT_CC: wrongCompiler(" ") });
  assert.notEqual(status, 0);
  assert.match(err, /gives wrong results, also without.*WEFT_CC/s);
});

test("programs are linked with the C library where they do not find it in the process", { skip }, () => {
  const cc = join(freshFolder(), "cc");
  const refuse = `case " $* " in *" -shared "*" -nostdlib "*) exit 1;; esac`;
  writeFileSync(cc, `#!/bin/sh\n${refuse}\nexec ${findCompiler()!.command} "$@"\n`);
  chmodSync(cc, 0o755);
  const body = program("console.log(weft.ones([10]).erf().sum().itemSync() > 8, weft.system.compilerTest().linked);");
  const { out, err } = run(body, { WEFT_CACHE_DIR: freshFolder(), WEFT_CC: cc });
  assert.equal(out, "true true", err);
});

test("the self-test compiles one file, once for each cache", { skip }, () => {
  const { cc, calls } = watchedCompiler("echo unit");
  const only = program("console.log(weft.system.compilerTest().flags);");
  const env = { WEFT_CACHE_DIR: freshFolder(), WEFT_CC: cc };
  assert.equal(run(only, env).out, "usual");
  assert.equal(run(only, env).out, "usual");
  assert.equal(calls().length, 1);
});

test("flags of WEFT_CC_FLAGS reach the compiler, and what they compiled is not used with others", { skip }, () => {
  const { cc, calls } = watchedCompiler('echo "$*"');
  const only = program("console.log(weft.system.compilerTest().flags);");
  const env = { WEFT_CACHE_DIR: freshFolder(), WEFT_CC: cc };
  const flags = ["-O0  -DFIRST", "-DSECOND", "-O0 -DFIRST"];
  for (const WEFT_CC_FLAGS of flags) assert.equal(run(only, { ...env, WEFT_CC_FLAGS }).out, "usual");
  assert.equal(calls().length, 2);
  assert.match(calls()[0], / -O0 -DFIRST /);
  assert.match(calls()[1], / -DSECOND /);
});

test("flags of WEFT_CC_FLAGS do not change the digits of functions", { skip }, () => {
  const numbers = [20, 20 * Math.PI, 2 * Math.PI, Math.PI];
  const only = program(`console.log(Array.from(weft.tensor(${JSON.stringify(numbers)}).sin().dataSync()).join(" "));`);
  // Near multiples of pi, all digits come from the reduction of the argument.
  const expected = numbers.map((x) => Math.sin(Math.fround(x)));
  const WEFT_CC_FLAGS = "-O0 -ffp-contract=off";
  const { out, err } = run(only, { WEFT_CACHE_DIR: freshFolder(), WEFT_INTERPRET: "0", WEFT_CC_FLAGS });
  const sines = out.split(" ").map(Number);
  assert.equal(sines.length, expected.length, err);
  for (const [i, x] of sines.entries())
    assert.ok(Math.abs(x - expected[i]) <= 3e-7 * Math.abs(expected[i]), `${x} for ${expected[i]}`);
});

test("a compiler that needs more memory than it may use is an error that says so", { skip }, () => {
  const { err, status } = run(adds, { WEFT_CACHE_DIR: freshFolder(), WEFT_CC_BYTES: "60000000" });
  assert.notEqual(status, 0);
  assert.match(err, /needs more memory for one program than it may use \(WEFT_CC_BYTES\)/);
});
