// Reading a value must not block the event loop: neither while the C compiler runs nor during a long computation. Small programs
// start without the compiler. Every case runs in its own process, with its own cache.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { chmodSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { fileURLToPath } from "node:url";
import { CpuDevice } from "../device/index.js";

const skip = !CpuDevice.available() ? "no C compiler" : false;
const library = fileURLToPath(new URL("../index.js", import.meta.url));
const folders: string[] = [];
after(() => {
  for (const folder of folders) rmSync(folder, { recursive: true, force: true });
});
const freshFolder = (): string => {
  const folder = mkdtempSync(join(tmpdir(), "weft-event-loop-"));
  folders.push(folder);
  return folder;
};
const sharedCache = freshFolder();

interface Ended {
  out: string;
  err: string;
}

function run(body: string, env: NodeJS.ProcessEnv = {}): Promise<Ended> {
  const source = `import * as weft from ${JSON.stringify(library)};
    const counted = async (work) => {
      let ticks = 0;
      const timer = setInterval(() => ticks++, 2);
      const result = await work();
      clearInterval(timer);
      return { ticks, result };
    };
    ${body}`;
  return new Promise((resolve, reject) => {
    execFile(
      process.execPath,
      ["--input-type=module", "-e", source],
      { env: { ...process.env, WEFT_DEVICE: "cpu", WEFT_CACHE_DIR: sharedCache, ...env }, timeout: 240_000 },
      (error, out, err) => (error ? reject(new Error(`${error.message}\n${err}`)) : resolve({ out: out.trim(), err })),
    );
  });
}

/** A compiler that takes long, and writes a line about every file that it compiles. */
function slowCompiler(seconds: number): { cc: string; calls(): number } {
  const folder = freshFolder();
  const [cc, log] = [join(folder, "cc"), join(folder, "log")];
  writeFileSync(log, "");
  writeFileSync(cc, `#!/bin/sh\ncase " $* " in *".c "*) echo unit >> ${log}; sleep ${seconds};; esac\nexec cc "$@"\n`);
  chmodSync(cc, 0o755);
  return { cc, calls: () => readFileSync(log, "utf8").split("\n").filter(Boolean).length };
}

test("the event loop runs while the compiler does", { skip }, async () => {
  const { cc } = slowCompiler(1);
  const { out } = await run(
    `const x = weft.ones([300, 300]);
     weft.ones([5000]).add(1).dataSync();
     const { ticks, result } = await counted(() => x.mul(2).sin().sum().item());
     console.log(ticks >= 20, Math.abs(result - 90000 * Math.sin(2)) < 1);`,
    { WEFT_CC: cc, WEFT_INTERPRET: "1" },
  );
  assert.equal(out, "true true");
});

test("the event loop runs during a long computation, and its result is that of a blocking read", { skip }, async () => {
  const { out } = await run(
    `const x = weft.linspace(0, 1, 1 << 21); // A second of work: a busy machine may delay single ticks for long.
     const long = () => { let y = x; for (let i = 0; i < 60; i++) y = y.sin().add(x).cos(); return y; };
     const expected = long().dataSync();
     const { ticks, result } = await counted(() => long().data());
     console.log(ticks >= 3, Buffer.compare(Buffer.from(expected.buffer), Buffer.from(result.buffer)) === 0);`,
  );
  assert.equal(out, "true true");
});

test("what happens during a background read does not disturb it, and memory stays flat", { skip }, async () => {
  const { out } = await run(
    `const x = weft.ones([1 << 20]);
     const long = (t) => { let y = t; for (let i = 0; i < 40; i++) y = y.sin().add(1); return y; };
     const expected = await long(x).sum().item();
     // Arguments and results that are disposed meanwhile, reads of the same tensor, blocking reads of others.
     const y = x.add(0).realize();
     const sum = long(y).sum();
     const reads = [sum.item(), sum.item(), long(x).mean().item()];
     sum.dispose();
     y.dispose();
     const blocking = long(x).sum().itemSync();
     const [a, b, c] = await Promise.all(reads);
     console.log(a === expected, b === expected, blocking === expected, c === expected / x.size);
     await assertRejects(() => { const z = weft.ones([4]); z.dispose(); return z.data(); });
     const before = weft.session().device.memory().usedBytes;
     for (let i = 0; i < 5; i++) { const t = long(x); await t.data(); t.dispose(); }
     console.log(weft.session().device.memory().usedBytes <= before);
     async function assertRejects(read) { let failed = false; try { await read(); } catch { failed = true; } console.log(failed); }`,
  );
  assert.equal(out, "true true true true\ntrue\ntrue");
});

test("runAsync of a jitted function leaves the event loop free while it compiles and computes", { skip }, async () => {
  const { cc } = slowCompiler(1);
  const { out } = await run(
    `const long = (t) => { let y = t; for (let i = 0; i < 60; i++) y = y.sin().add(t).cos(); return y; };
     const x = weft.linspace(0, 1, 1 << 20).realize();
     const expected = long(x).dataSync();
     const same = (t) => Buffer.compare(Buffer.from(expected.buffer), Buffer.from(t.dataSync().buffer)) === 0;
     const f = weft.jit(long);
     const compiled = await counted(() => f.runAsync(x.add(0)));
     const { ticks, result } = await counted(() => f.runAsync(x));
     console.log(compiled.ticks >= 20, ticks >= 3, same(compiled.result), same(result), f.programs);
     // Arguments that are disposed meanwhile; donated ones are consumed; several calls at once; varying sizes.
     const step = weft.jit((w, n) => [w.mul(2).add(n), w.sum()], { donate: [0] });
     let w = weft.ones([1 << 20]).realize();
     const pending = step.runAsync(w, weft.ones([1]));
     let refused = false;
     const second = pending.then(() => { try { w.add(1).realize(); } catch { refused = true; } });
     const [[next, total]] = await Promise.all([pending, second]);
     console.log(refused, next.index(5).itemSync(), total.itemSync());
     const y = x.add(0).realize();
     const many = [f.runAsync(y), f.runAsync(x), f.runAsync(y)];
     await Promise.resolve();
     y.dispose();
     console.log((await Promise.all(many)).every(same));
     const sized = weft.jit((t) => long(t).sum(), { vary: [0] });
     const sums = await Promise.all([9e5, 1e6].map((n) => sized.runAsync(weft.ones([n]))));
     console.log(sums.every((t, i) => Math.abs(t.itemSync() / [9e5, 1e6][i] - long(weft.ones([1])).itemSync()) < 1e-3), sized.programs);
     let failure = null;
     const bad = weft.jit((t) => { throw new Error("mine"); });
     await bad.runAsync(x).catch((error) => { failure = error.message; });
     console.log(failure);`,
    { WEFT_CC: cc, WEFT_INTERPRET: "0" },
  );
  assert.equal(out, "true true true true 1\ntrue 3 1048576\ntrue\ntrue 1\nmine");
});

test("small programs run without the compiler, and often used ones are compiled", { skip }, async () => {
  const { cc, calls } = slowCompiler(0);
  const env = { WEFT_CC: cc, WEFT_CACHE_DIR: freshFolder(), WEFT_INTERPRET: "1" };
  const started = await run("weft.zeros([2]).realize(); console.log('ready');", env);
  assert.equal(started.out, "ready");
  const before = calls();
  const shapes =
    "for (let n = 1; n <= 40; n++) total += weft.ones([n, 3]).mul(2).add(weft.linspace(0, 1, 3)).sum().itemSync();";
  const { out } = await run(`let total = 0; ${shapes} console.log(total);`, env);
  assert.equal(Number(out), 820 * 7.5);
  assert.equal(calls(), before, "new shapes started the compiler");
  const again = await run(
    `const x = weft.tensor([1, 2, 3]).realize();
     const device = weft.session().device;
     const seen = [];
     for (let i = 0; i < 20; i++) { const before = device.programs.planned; seen.push(x.mul(3).sum().itemSync()); }
     console.log(new Set(seen).size, seen[0], device.programs.planned);`,
    env,
  );
  assert.match(again.out, /^1 18 [12]$/);
  assert.ok(calls() > before, "a program that runs often was not compiled");
});

test("a compilation that takes long is reported while it runs, blocking or not", { skip }, async () => {
  const { cc } = slowCompiler(1.5);
  const env = { WEFT_CC: cc, WEFT_COMPILE_NOTICE: "0.5", WEFT_INTERPRET: "0" };
  const blocking = await run("console.log(weft.ones([7]).mul(3).sum().itemSync());", env);
  assert.equal(blocking.out, "21");
  assert.match(blocking.err, /C compiler .* has been running for 0.5 s/);
  const waiting = await run("console.log(await weft.ones([9]).mul(3).sum().item());", env);
  assert.match(waiting.err, /C compiler .* has been running for 0.5 s/);
  const quick = await run("console.log(weft.ones([7]).mul(3).sum().itemSync());", { WEFT_COMPILE_NOTICE: "200" });
  assert.equal(quick.err, "");
});
