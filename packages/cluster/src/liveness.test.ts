// Who is alive and what survives: busy workers, clients that die with queued work, data that is on one worker only, and
// workers that are replaced one after the other. The planner is the usual one. Real processes and signals.
import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { after, afterEach, test } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import * as weft from "@weft/core";
import type { TensorValue } from "@weft/core/internal/runtime";
import { type Cluster, connect } from "./connect.js";
import { Dispatcher } from "./dispatcher.js";
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

async function dispatcher(options: object = {}): Promise<number> {
  const made = await Dispatcher.start({ port: 0, ...options });
  open.push({ close: () => made.stop() });
  return made.port;
}

async function worker(port: number): Promise<ChildProcess> {
  const child = spawn(process.execPath, [main, "worker", JSON.stringify({ port, ...testWorker })], {
    stdio: ["pipe", "pipe", "inherit"],
  });
  started.push(child);
  await once(child.stdout!, "data");
  return child;
}

async function client(port: number): Promise<Cluster> {
  const cluster = await connect(`localhost:${port}`);
  open.push(cluster);
  return cluster;
}

async function until(what: string, condition: () => boolean): Promise<void> {
  for (const deadline = Date.now() + 20_000; !condition(); await delay(10))
    if (Date.now() > deadline) assert.fail(`never: ${what}`);
}

const holders = (cluster: Cluster, x: weft.Tensor): string[] =>
  cluster.device.describe((x.node.value as TensorValue).buffer).map((part) => part.worker);

const input = (): weft.Tensor => weft.tensor(Float32Array.from({ length: 1000 }, (_, i) => i % 97));
const step = weft.jit((x: weft.Tensor) => x.mul(0.5).add(1));
/** The value of element i after so many steps, in closed form: the fixed point is 2. */
const expected = (i: number, steps: number): number => 2 + ((i % 97) - 2) * 0.5 ** steps;
const right = (got: weft.Data, steps: number): void => {
  got.forEach((value, i) => {
    assert.ok(Math.abs(Number(value) - expected(i, steps)) < 1e-4, `element ${i} is ${value}`);
  });
};

for (const fetched of [true, false])
  test(`a tensor on one worker ${fetched ? "" : "that nobody has fetched "}is recomputed when that worker dies`, {
    skip,
  }, async () => {
    const port = await dispatcher();
    const workers = [await worker(port), await worker(port)];
    const cluster = await client(port);
    let y = step(input());
    for (let i = 1; i < 5; i++) y = step(y);
    y.realize();
    if (fetched) right(await y.data(), 5);
    const [holder] = holders(cluster, y);
    assert.equal(holders(cluster, y).length, 1, "the planner uses one worker");
    const { pid } = cluster.workers.find(({ id }) => id === holder)!.process;
    workers.find((child) => child.pid === pid)!.kill("SIGKILL");
    right(await y.data(), 5);
    right(await step(y).data(), 6);
    assert.ok(cluster.device.counts.recomputed > 0);
  });

test("replacing every worker, one after the other, loses nothing", { skip }, async () => {
  const port = await dispatcher();
  const workers = [await worker(port), await worker(port)];
  const cluster = await client(port);
  await until("two workers", () => cluster.workers.length === 2);
  let y = input();
  for (let round = 0; round < 4; round++) {
    y = step(y);
    y.realize();
    if (round % 2 === 0) right(await y.data(), round + 1);
    const [oldest] = workers;
    workers.shift();
    oldest.kill("SIGKILL");
    workers.push(await worker(port));
    await until("the worker was replaced", () => cluster.workers.every(({ process: p }) => p.pid !== oldest.pid));
  }
  right(await y.data(), 4);
  right(await step(y).data(), 5);
});

test("the only worker can be replaced", { skip }, async () => {
  const port = await dispatcher();
  const first = await worker(port);
  const cluster = await client(port);
  const y = step(input());
  right(await y.data(), 1);
  first.kill("SIGKILL");
  await until("no worker", () => cluster.workers.length === 0);
  const [value] = await Promise.all([y.data(), worker(port)]);
  right(value, 1);
});

/** One call that computes for seconds, if it has steps enough. */
const long = (length: number): ((x: weft.Tensor) => weft.Tensor) =>
  weft.jit((x: weft.Tensor) => {
    const multiply = (y: weft.Tensor): [weft.Tensor, weft.Tensor] => [y.matmul(x).mul(1 / 256), y.sum()];
    return weft.scan(multiply, x, null, { length })[0].sum();
  });

test("a worker that computes for seconds is not suspended, and serves clients that connect meanwhile", {
  skip,
}, async () => {
  const port = await dispatcher({ stopTimeout: 2 });
  const busy = await worker(port);
  const cluster = await client(port);
  const program = `
    import * as weft from ${JSON.stringify(new URL(import.meta.resolve("@weft/core")).href)};
    import { connect } from ${JSON.stringify(index)};
    const cluster = await connect("localhost:${port}");
    console.log(await weft.tensor([1, 2]).add(1).sum().item());
    await cluster.close();`;
  let took = 0;
  // Machines differ: a call must be longer than the time after which a silent worker is suspended.
  for (let length = 6000; took <= 3000 && length < 1e6; length *= 4) {
    const begun = Date.now();
    const value = long(length)(weft.ones([256, 256])).item();
    await delay(200);
    const other = spawn(process.execPath, ["--input-type=module", "-e", program], {
      stdio: ["ignore", "pipe", "inherit"],
    });
    started.push(other);
    const [text] = (await once(other.stdout!, "data")) as [Buffer];
    assert.equal(text.toString().trim(), "5");
    assert.ok(Number.isFinite(await value));
    took = Date.now() - begun;
  }
  assert.ok(took > 3000, "the call was too short to show anything");
  assert.deepEqual(
    cluster.workers.map(({ process: p }) => p.pid),
    [busy.pid],
  );
  assert.equal(cluster.device.counts.recomputed, 0);
});

test("a program over all workers waits for one that computes for another client", {
  skip,
  timeout: 120_000,
}, async () => {
  const port = await dispatcher();
  for (let i = 0; i < 2; i++) await worker(port);
  const endless = `
    import * as weft from ${JSON.stringify(new URL(import.meta.resolve("@weft/core")).href)};
    import { connect } from ${JSON.stringify(index)};
    await connect("localhost:${port}");
    const loop = weft.jit((x) => weft.whileLoop((c) => c.sum().greaterEqual(0), (c) => c.matmul(c).mul(1e-3).abs(), x));
    loop(weft.ones([256, 256])).realize();
    setTimeout(() => console.log("computes"), 1500);
    setInterval(() => {}, 1000);`;
  const other = spawn(process.execPath, ["--input-type=module", "-e", endless], {
    stdio: ["ignore", "pipe", "inherit"],
    env: { ...process.env, WEFT_AUTO_SHARD: "0" },
  });
  started.push(other);
  await once(other.stdout!, "data");
  process.env.WEFT_FORCE_SHARD = "1";
  try {
    await client(port);
    let over = false;
    const value = weft
      .shard(weft.ones([90, 60]), { 0: "d" })
      .sum()
      .item();
    void value.catch(() => {}).finally(() => (over = true));
    await delay(9000);
    assert.ok(!over, "the other worker is not busy");
    other.kill("SIGKILL");
    assert.equal(await value, 5400);
  } finally {
    delete process.env.WEFT_FORCE_SHARD;
  }
});

test("queued work of a client that dies is canceled", { skip }, async () => {
  const port = await dispatcher();
  await worker(port);
  await worker(port);
  const program = `
    process.env.WEFT_FORCE_SHARD = "1";
    import * as weft from ${JSON.stringify(new URL(import.meta.resolve("@weft/core")).href)};
    import { connect } from ${JSON.stringify(index)};
    const cluster = await connect("localhost:${port}");
    const x = weft.ones([256, 256]);
    const f = weft.jit((x) => { let y = x; for (let i = 0; i < 40; i++) y = y.matmul(x).mul(1 / 256).add(y.sum(0)); return y; });
    let y = f(x);
    await y.sum().item();
    for (let i = 0; i < 3000; i++) y = f(y);
    y.realize();
    await cluster.device.connection.flush();
    setTimeout(() => console.log("queued"), 300);
    setInterval(() => {}, 1000);`;
  const other = spawn(process.execPath, ["--input-type=module", "-e", program], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  started.push(other);
  await once(other.stdout!, "data");
  other.kill("SIGKILL");
  const begun = Date.now();
  await client(port);
  right(await step(input()).data(), 1);
  // All of the queued work takes a minute on a quiet machine.
  assert.ok(Date.now() - begun < 40_000, `it took ${Date.now() - begun} ms`);
});
