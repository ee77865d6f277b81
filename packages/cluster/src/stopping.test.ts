// Work that nobody waits for or that takes too long: loops and kernels without an end are stopped when their client leaves or its
// time is over, and the worker computes for others. Real processes.
import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { after, afterEach, test } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import * as weft from "@weft/core";
import koffi from "koffi";
import { type Cluster, connect } from "./connect.js";
import { type SharedWork, WorkWatch } from "./current-work.js";
import { Dispatcher } from "./dispatcher.js";
import { watch } from "./watch.js";
import { skip, testWorker } from "./workers.testkit.js";

const main = fileURLToPath(new URL("./main.js", import.meta.url));
const index = new URL("./index.js", import.meta.url).href;
const started: ChildProcess[] = [];
const open: { close(): unknown }[] = [];
afterEach(async () => {
  for (const one of open.splice(0).reverse()) await one.close();
  weft.setDevice("cpu");
});
after(() => {
  for (const child of started) child.kill("SIGKILL");
});

async function start(quotas: object, workers: number): Promise<number> {
  const dispatcher = await Dispatcher.start({ port: 0, quotas });
  open.push({ close: () => dispatcher.stop() });
  for (let i = 0; i < workers; i++) {
    const options = JSON.stringify({ port: dispatcher.port, ...testWorker });
    const child = spawn(process.execPath, [main, "worker", options], { stdio: ["pipe", "pipe", "inherit"] });
    started.push(child);
    await once(child.stdout!, "data");
  }
  return dispatcher.port;
}

async function client(port: number): Promise<Cluster> {
  const cluster = await connect(`localhost:${port}`);
  open.push(cluster);
  return cluster;
}

const computes = async (): Promise<void> => assert.equal(await weft.ones([1000]).mul(3).sum().item(), 3000);

/** Computations that take hours, by the code that runs them. */
const endless: Record<string, () => weft.Tensor> = {
  "a loop of one kernel over lanes": () =>
    weft.jit((x: weft.Tensor) =>
      weft.whileLoop(
        (c) => c.greaterEqual(0),
        (c) => c.mul(0.5).add(1),
        x,
      ),
    )(weft.tensor(1)),
  "a loop over a large body": () =>
    weft.jit((x: weft.Tensor) =>
      weft.whileLoop(
        (c) => c.sum().greaterEqual(0),
        (c) => c.matmul(c).mul(1e-3).abs(),
        x,
      ),
    )(weft.ones([200, 200])),
  "one kernel with many iterations": () =>
    weft.jit((x: weft.Tensor) =>
      x
        .reshape([-1, 1])
        .mul(x.reshape([1, -1]))
        .sin()
        .sum(1),
    )(weft.ones([1 << 20])),
};

for (const [name, compute] of Object.entries(endless))
  test(`${name} ends when its time is over, and the worker computes for others`, { skip }, async () => {
    const port = await start({ maxSeconds: 1 }, 1);
    await client(port);
    const begun = performance.now();
    await assert.rejects(compute().data(), /may take 1 s \(maxSeconds/);
    await computes();
    assert.ok(performance.now() - begun < 20_000);
  });

test("arguments that were given to a call that fails take no memory afterwards", { skip }, async () => {
  const port = await start({ maxSeconds: 0.3 }, 1);
  const cluster = await client(port);
  const seen: number[] = [];
  const loop = weft.jit(
    (x: weft.Tensor) =>
      weft.whileLoop(
        (c) => c.sum().greaterEqual(0),
        (c) => c.abs(),
        x,
      ),
    { donate: [0] },
  );
  const stop = watch(cluster.address, {}, ({ workers }) => seen.push(workers[0].stats?.bytes ?? 0), assert.fail);
  for (let i = 0; i < 8; i++) await assert.rejects(loop(weft.ones([1 << 20])).data(), /maxSeconds/);
  await computes();
  seen.length = 0;
  for (const deadline = Date.now() + 10_000; !(seen.at(-1)! < 20e6); await delay(100))
    assert.ok(Date.now() < deadline, `${seen.at(-1)} bytes are in use`);
  stop();
});

test("a collective program that takes too long ends on all its workers", { skip }, async () => {
  const port = await start({ maxSeconds: 2 }, 2);
  process.env.WEFT_FORCE_SHARD = "1";
  try {
    const cluster = await client(port);
    const body = (c: weft.Tensor): weft.Tensor => c.matmul(c).mul(1e-3).abs();
    const loop = weft.jit((x: weft.Tensor) => weft.whileLoop((c) => c.sum().greaterEqual(0), body, x));
    await assert.rejects(loop(weft.ones([256, 256])).data(), /maxSeconds|aborted|stopped/);
    await computes();
    assert.equal(cluster.workers.length, 2, "both workers are there");
  } finally {
    delete process.env.WEFT_FORCE_SHARD;
  }
});

test("the work of a client that disappears is stopped", { skip }, async () => {
  const port = await start({}, 1);
  const program = `
    import * as weft from ${JSON.stringify(import.meta.resolve("@weft/core"))};
    import { connect } from ${JSON.stringify(index)};
    await connect("localhost:${port}");
    const loop = weft.jit((x) => weft.whileLoop((c) => c.greaterEqual(0), (c) => c.mul(0.5).add(1), x));
    console.log((await loop(weft.tensor(-1)).item()));
    const never = loop(weft.tensor(1)).item();
    setTimeout(() => console.log("computes"), 300);
    await never;`;
  const child = spawn(process.execPath, ["--input-type=module", "-e", program], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  started.push(child);
  let said = "";
  for await (const text of child.stdout) if ((said += text).includes("computes")) break;
  child.kill("SIGKILL");
  await client(port);
  const begun = performance.now();
  await computes();
  assert.ok(performance.now() - begun < 10_000, "others waited for a client that is gone");
});

test("an instruction that cannot be stopped is reported with its client", async () => {
  const work: SharedWork = { numbers: new Int32Array(new SharedArrayBuffer(12)), address: null };
  work.numbers.set([7, 3, 300]);
  const stuck: number[] = [];
  const watch = new WorkWatch(work, (who) => stuck.push(who), 300);
  try {
    await delay(150);
    assert.deepEqual(stuck, [], "its time is not over");
    for (let i = 0; i < 100 && stuck.length === 0; i++) await delay(100);
    assert.deepEqual(stuck, [3]);
    assert.equal(watch.stuck, 3);
  } finally {
    watch.end();
  }
});

test("an instruction that begins after its client has left is stopped too", async () => {
  const flags = koffi.alloc("int32_t", 2);
  const address = Number(koffi.address(flags));
  const work: SharedWork = { numbers: new Int32Array(new SharedArrayBuffer(12)), address };
  const stopped = (): number => new Int32Array(koffi.view(BigInt(address), 8))[1];
  const watch = new WorkWatch(work, () => {});
  try {
    watch.stop(3);
    work.numbers.set([8, 4, 0]);
    await delay(500);
    assert.notEqual(stopped(), 8, "another client's");
    work.numbers.set([9, 3, 0]);
    for (let i = 0; i < 100 && stopped() !== 9; i++) await delay(50);
    assert.equal(stopped(), 9);
  } finally {
    watch.end();
  }
});

test("quotas have known names and sensible values", () => {
  assert.throws(() => new Dispatcher({ quotas: { maxSecond: 3 } as object }), /maxSecond.*maxSeconds/);
  for (const maxSeconds of [0, -1, Number.NaN, "9" as never])
    assert.throws(() => new Dispatcher({ quotas: { maxSeconds } }), /maxSeconds/);
});
