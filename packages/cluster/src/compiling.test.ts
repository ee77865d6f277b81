// Programs that take long to compile: they delay their own client only, and end with their time or their client. The compiler is a
// real one that takes a minute for sources with a certain number. Real processes.
import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { chmodSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, afterEach, test } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import * as weft from "@weft/core";
import { isAlive } from "@weft/testing/processes";
import { type Cluster, connect } from "./connect.js";
import { Dispatcher } from "./dispatcher.js";
import { skip as noCompiler, onGpu, testWorker } from "./workers.testkit.js";

const skip = noCompiler || (onGpu ? "the C compiler is not used" : false);
const main = fileURLToPath(new URL("./main.js", import.meta.url));
const folder = mkdtempSync(join(tmpdir(), "weft-compiling-"));
const slow = 7.15625;
const mark = join(folder, "compiling");
const compiler = join(folder, "cc");
writeFileSync(
  compiler,
  `#!/bin/sh
for word; do case "$word" in *.c) grep -q ${slow} "$word" && { echo $$ >>${mark}; exec sleep 60; };; esac; done
exec cc "$@"
`,
);
chmodSync(compiler, 0o755);

const started: ChildProcess[] = [];
const open: { close(): unknown }[] = [];
afterEach(async () => {
  for (const one of open.splice(0).reverse()) await one.close();
  weft.setDevice("cpu");
});
after(() => {
  for (const child of started) child.kill("SIGKILL");
  rmSync(folder, { recursive: true, force: true });
});

async function start(quotas: object): Promise<{ port: number; worker: ChildProcess; cache: string }> {
  const dispatcher = await Dispatcher.start({ port: 0, quotas });
  open.push({ close: () => dispatcher.stop() });
  const cache = mkdtempSync(join(folder, "cache-"));
  const options = JSON.stringify({ port: dispatcher.port, ...testWorker });
  const env = { ...process.env, WEFT_CC: compiler, WEFT_CC_FLAGS: "-O0", WEFT_CACHE_DIR: cache };
  const worker = spawn(process.execPath, [main, "worker", options], { stdio: ["pipe", "pipe", "inherit"], env });
  started.push(worker);
  await once(worker.stdout!, "data");
  rmSync(mark, { force: true });
  return { port: dispatcher.port, worker, cache };
}

async function client(port: number): Promise<Cluster> {
  const cluster = await connect(`localhost:${port}`);
  open.push(cluster);
  return cluster;
}

const compileSlowly = (): Promise<unknown> =>
  weft
    .jit((x: weft.Tensor) => x.mul(slow))(weft.ones([100]))
    .data();
const computes = async (): Promise<void> => assert.equal(await weft.ones([1000]).mul(3).sum().item(), 3000);

/** The compiler of the slow program, once it runs. */
async function compilerProcess(): Promise<number> {
  for (const deadline = Date.now() + 20_000; ; await delay(50)) {
    assert.ok(Date.now() < deadline, "nothing is compiled");
    try {
      const [pid] = readFileSync(mark, "utf8").split("\n");
      if (pid !== "") return Number(pid);
    } catch {
      // Not yet.
    }
  }
}

async function ends(pid: number): Promise<void> {
  for (const deadline = Date.now() + 10_000; isAlive(pid); await delay(50))
    assert.ok(Date.now() < deadline, "the compiler was left behind");
}

test("a program that takes long to compile delays its own client only, and ends with it", { skip }, async () => {
  const { port } = await start({});
  const first = await client(port);
  const never = assert.rejects(compileSlowly());
  const pid = await compilerProcess();
  await client(port);
  const begun = performance.now();
  await computes();
  assert.ok(performance.now() - begun < 15_000, "others waited for the compiler");
  await first.close();
  await never;
  await ends(pid);
  await computes();
});

test("a compilation that takes longer than it may is an error, and the worker goes on", { skip }, async () => {
  const { port } = await start({ maxCompileSeconds: 1 });
  const cluster = await client(port);
  const begun = performance.now();
  await assert.rejects(compileSlowly(), /took longer than 1 s \(maxCompileSeconds/);
  assert.ok(performance.now() - begun < 15_000);
  await ends(await compilerProcess());
  await computes();
  assert.equal(cluster.workers.length, 1);
});

test("a worker that is killed while it compiles leaves no compiler and no files", { skip }, async () => {
  const { port, worker, cache } = await start({});
  await client(port);
  const lost = assert.rejects(compileSlowly());
  const pid = await compilerProcess();
  worker.kill("SIGKILL");
  await ends(pid);
  await lost;
  for (const deadline = Date.now() + 5000; ; await delay(50)) {
    const left = readdirSync(join(cache, "cpu")).filter((name) => name.includes(".tmp-"));
    if (left.length === 0) break;
    assert.ok(Date.now() < deadline, left.join(" "));
  }
});
