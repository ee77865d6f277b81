// Faults injected into real processes: unaffected clients keep working, affected ones get one clear error soon, and no
// resources leak.
import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { connect as connectSocket, createServer, type Socket } from "node:net";
import { after, afterEach, test } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import * as weft from "@weft/core";
import { groupFiles } from "@weft/core/internal/device";
import type { TensorValue } from "@weft/core/internal/runtime";
import { type Cluster, connect } from "./connect.js";
import { Dispatcher } from "./dispatcher.js";
import { encode } from "./protocol.js";
import { securityFrom } from "./security.js";
import { type ClusterStatus, watch } from "./watch.js";
import { openStream } from "./wire.js";
import { onGpu, skip, testWorker } from "./workers.testkit.js";

const main = fileURLToPath(new URL("./main.js", import.meta.url));
process.env.WEFT_FORCE_SHARD = "1";
// Recomputation is disabled here; recompute.test.ts tests it.
process.env.WEFT_RECOMPUTE = "0";
const started: ChildProcess[] = [];
const open: Cluster[] = [];

afterEach(async () => {
  for (const cluster of open.splice(0)) await cluster.close();
  weft.setDevice("cpu");
});
after(() => {
  for (const child of started) child.kill("SIGKILL");
});

async function begin(options: Parameters<typeof connect>[0], more = {}): Promise<Cluster> {
  const cluster = await connect(options, more);
  open.push(cluster);
  return cluster;
}

/** A server or worker process started directly; resolves when it is ready. */
async function process_(
  role: string,
  options: object,
  env: Record<string, string> = {},
): Promise<{ child: ChildProcess; port: number }> {
  const child = spawn(process.execPath, [main, role, JSON.stringify(options)], {
    stdio: ["pipe", "pipe", "inherit"],
    env: { ...process.env, ...env },
  });
  started.push(child);
  const [text] = (await once(child.stdout!, "data")) as [Buffer];
  return { child, port: (JSON.parse(text.toString().split("\n")[0]) as { port: number }).port };
}

/** The message of an expected error, which must arrive within ten seconds. */
async function failsSoon(work: Promise<unknown>): Promise<string> {
  const begun = Date.now();
  try {
    await work;
  } catch (error) {
    const seconds = (Date.now() - begun) / 1e3;
    assert.ok(seconds < 10, `it took ${seconds} s`);
    return (error as Error).message;
  }
  return assert.fail("there was no error");
}

async function until(what: string, condition: () => boolean | Promise<boolean>): Promise<void> {
  const deadline = Date.now() + 20_000;
  while (!(await condition())) {
    if (Date.now() > deadline) assert.fail(`never: ${what}`);
    await delay(20);
  }
}

/** Shards rows over all workers: with GPU rates the planner would replicate the computation. */
const spread = (x: weft.Tensor): weft.Tensor => weft.shard(x, { 0: "d" });

/** Repeated sums over all workers, long enough to be disturbed. */
function longProgram(): Promise<weft.Data> {
  const x = weft.ones([512, 512]);
  const program = weft.jit((x: weft.Tensor) => {
    let y = spread(x);
    for (let i = 0; i < 40; i++)
      y = spread(
        y
          .matmul(x)
          .mul(1 / 512)
          .add(y.sum(0).mul(1e-6)),
      );
    return y;
  });
  let y = program(x);
  for (let i = 0; i < (onGpu ? 1000 : 60); i++) y = y.add(program(x));
  return y.data();
}

const addsUp = async (): Promise<void> => {
  assert.deepEqual(await weft.tensor([1, 2]).add(1).array(), [2, 3]);
};
/** A product large enough for all workers. */
const spreads = async (cluster: Cluster, workers: number): Promise<void> => {
  const before = cluster.device.counts.sharded;
  const y = weft.ones([600, 300]).matmul(weft.ones([300, 300]));
  assert.equal((await y.sum().item()) / 54_000_000, 1);
  assert.equal(cluster.workers.length, workers);
  assert.equal(cluster.device.counts.sharded > before, workers > 1);
};

for (const data of ["shared", "socket"])
  test(`a data connection that breaks is opened again while its worker is there (${data})`, { skip }, async () => {
    if (data === "socket") process.env.WEFT_CLUSTER_DATA = data;
    try {
      const cluster = await begin({ devices: 1, ...testWorker });
      const [{ id }] = cluster.workers;
      const values = Float32Array.from({ length: 50_000 }, (_, i) => i);
      const doubled = async (): Promise<number> => Number((await weft.tensor(values).mul(2).data())[49_999]);
      assert.equal(await doubled(), 99_998);
      await delay(1000);
      const { connection } = cluster.device;
      connection.link(id).fail("the network failed for a moment");
      assert.equal(await doubled(), 99_998);
      // The connection breaks while an array is uploaded: it is sent again.
      await delay(1100);
      const pending = doubled();
      await new Promise(setImmediate);
      connection.link(id).fail("the network failed during an upload");
      assert.equal(await pending, 99_998);
    } finally {
      delete process.env.WEFT_CLUSTER_DATA;
    }
  });

test("whoever listens and never answers is given up within seconds, and keeps no process alive", { skip }, async () => {
  const silent = createServer((socket) => socket.on("error", () => {}).resume());
  await new Promise<void>((resolve) => silent.listen(0, "127.0.0.1", resolve));
  const { port } = silent.address() as { port: number };
  const index = new URL("./index.js", import.meta.url).href;
  const code = `const { connect, watch } = await import(${JSON.stringify(index)});
    const at = "localhost:${port}", token = "a token of sixteen characters";
    await connect(at, { token, timeout: 1 }).catch((error) => console.log(error.message));
    watch(at, { token }, () => {}, console.log);`;
  const child = spawn(process.execPath, ["--input-type=module", "-e", code], { stdio: ["ignore", "pipe", "inherit"] });
  started.push(child);
  let out = "";
  child.stdout!.on("data", (text) => (out += String(text)));
  const begun = performance.now();
  await once(child, "exit");
  silent.close();
  assert.match(out, /no answer from .* within 1 s;.*no answer from .* for 10 s/s);
  assert.ok(performance.now() - begun < 30_000);
});

test("when a worker is killed during a step, the client gets an error, the others continue, and a new one can join", {
  skip,
}, async () => {
  const cluster = await begin({ devices: 3, ...testWorker });
  await spreads(cluster, 3);
  const everywhere = weft.tensor([5]).add(1).realize();
  assert.equal(cluster.device.describe((everywhere.node.value as TensorValue).buffer).length, 3);
  const work = longProgram();
  await delay(300);
  const victim = cluster.workers[0];
  process.kill(victim.process.pid, "SIGKILL");
  const message = await failsSoon(work);
  assert.match(message, /worker w\d+ .*ended|is gone/);
  assert.match(message, /recompute them|start all ranks again/);
  await until("two workers are left", () => cluster.workers.length === 2);
  // Replicated tensors survive on the remaining workers.
  assert.deepEqual(await everywhere.array(), [6]);
  assert.deepEqual(await everywhere.add(1).array(), [7]);
  await spreads(cluster, 2);
  const { port } = new URL(`http://${cluster.address}`);
  await process_("worker", { port: Number(port), ...testWorker }, { WEFT_WORKER_TOKEN: cluster.local!.workerToken });
  await until("three workers again", () => cluster.workers.length === 3);
  await spreads(cluster, 3);
  const [own] = cluster.device.connection.dispatcher.split("@");
  assert.ok(own.length > 0);
  assert.deepEqual(
    groupFiles().filter((name) => name.includes(own)),
    [],
  );
});

test("a stopped worker is suspended, and used again when it continues", { skip }, async () => {
  const cluster = await begin({ devices: 2, ...testWorker });
  await spreads(cluster, 2);
  const victim = cluster.workers[1].process.pid;
  process.kill(victim, "SIGSTOP");
  try {
    const message = await failsSoon(spread(weft.ones([600, 300]).matmul(weft.ones([300, 300]))).data());
    assert.match(message, /hangs|is stopped/);
    assert.match(message, new RegExp(`kill -CONT ${victim}`));
    await until("one worker is left", () => cluster.workers.length === 1);
    await spreads(cluster, 1);
  } finally {
    process.kill(victim, "SIGCONT");
  }
  await until("it is back", () => cluster.workers.length === 2);
  await spreads(cluster, 2);
});

test("a worker that runs out of memory reports it and continues", { skip }, async () => {
  const cluster = await begin({ devices: 2, ...testWorker, env: { WEFT_CPU_MEMORY: "8000000" } });
  const n = onGpu ? 400_000 : 1500;
  const big = weft.ones([n, n]).matmul(weft.ones([n, n]));
  const message = await failsSoon(big.sum().data());
  assert.match(message, /out of memory on a worker.*bytes/s);
  assert.match(message, /computed at .*faults\.test/);
  await addsUp();
  await until("a new group is formed", async () => cluster.workers.length === 2);
  await spreads(cluster, 2);
});

test("an error fails the tensors that depend on it and no others", { skip }, async () => {
  await begin({ devices: 1, ...testWorker, env: { WEFT_CPU_MEMORY: "4000000" } });
  const n = onGpu ? 400_000 : 2000;
  const bad = weft.ones([n, n]).add(1).realize();
  const worse = bad.mul(2).sum();
  const good = weft.ones([3]).add(1);
  assert.match(await failsSoon(worse.data()), /out of memory/);
  assert.deepEqual(await good.array(), [2, 2, 2]);
});

test("when the dispatcher restarts, clients get an error and workers reconnect", { skip }, async () => {
  const first = await process_("server", { port: 0 });
  const { port } = first;
  await process_("worker", { port, ...testWorker });
  await begin(`localhost:${port}`);
  await addsUp();
  first.child.kill("SIGKILL");
  const message = await failsSoon(
    until("the client knows", async () => {
      await weft.tensor([1]).add(1).data();
      return false;
    }),
  );
  assert.match(message, /dispatcher at localhost:\d+ (was lost|closed)|connection to the dispatcher/);
  assert.match(message, /connect again/);
  await process_("server", { port });
  weft.setDevice("cpu");
  await begin(`localhost:${port}`, { timeout: 15 });
  await addsUp();
});

/** The status of a dispatcher when a condition holds. */
async function statusWhen(port: number, condition: (status: ClusterStatus) => boolean): Promise<ClusterStatus> {
  return new Promise((resolve, reject) => {
    const late = setTimeout(() => reject(new Error("the status never came about")), 20_000);
    const stop = watch(
      `localhost:${port}`,
      {},
      (status) => {
        if (!condition(status)) return;
        clearTimeout(late);
        stop();
        resolve(status);
      },
      (reason) => reject(new Error(reason)),
    );
  });
}

test("a client that disappears leaves no tensors on the workers", { skip }, async () => {
  const { port } = await process_("server", { port: 0 });
  await process_("worker", { port, ...testWorker });
  const program = `
    import * as weft from ${JSON.stringify(new URL(import.meta.resolve("@weft/core")).href)};
    import { connect } from ${JSON.stringify(new URL("./index.js", import.meta.url).href)};
    await connect("localhost:${port}");
    const x = weft.ones([1000, 1000]).add(1);
    await x.sum().item();
    x.realize();
    globalThis.keep = x;
    console.log("there");
    setInterval(() => {}, 1000);`;
  const child = spawn(process.execPath, ["--input-type=module", "-e", program], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  started.push(child);
  await once(child.stdout!, "data");
  const held = await statusWhen(port, (s) => (s.workers[0]?.stats?.bytes ?? 0) >= 4e6);
  assert.ok(held.workers[0].stats!.tensors > 0);
  child.kill("SIGKILL");
  const free = await statusWhen(port, (s) => s.clients === 0 && s.workers[0]?.stats?.tensors === 0);
  assert.equal(free.workers[0].stats!.bytes, 0);
  await begin(`localhost:${port}`);
  await addsUp();
});

test("a half-open connection is detected", { skip }, async () => {
  const { port } = await process_("server", { port: 0 });
  await process_("worker", { port, ...testWorker });
  let silent = false;
  const sockets: Socket[] = [];
  const proxy = createServer((near) => {
    const far = connectSocket(port, "127.0.0.1");
    sockets.push(near, far);
    near.on("data", (bytes) => !silent && far.write(bytes));
    far.on("data", (bytes) => !silent && near.write(bytes));
    for (const s of [near, far]) s.on("error", () => {});
  });
  proxy.listen(0, "127.0.0.1");
  await once(proxy, "listening");
  try {
    await begin(`localhost:${(proxy.address() as { port: number }).port}`);
    await addsUp();
    silent = true;
    const message = await failsSoon(weft.tensor([1]).add(1).data());
    assert.match(message, /connection to the dispatcher .* was lost.*connect again/s);
  } finally {
    for (const s of sockets) s.destroy();
    proxy.close();
  }
});

test("garbage and oversized messages close their own connection only", { skip }, async () => {
  const { port } = await process_("server", { port: 0 });
  await process_("worker", { port, ...testWorker });
  const cluster = await begin(`localhost:${port}`);
  await addsUp();
  const garbage = async (to: number): Promise<void> => {
    const socket = connectSocket(to, "127.0.0.1");
    socket.on("error", () => {});
    await once(socket, "connect");
    const closed = new Promise((resolve) => socket.once("close", resolve));
    socket.write(Buffer.alloc(100_000, 0xa5));
    await Promise.race([closed, delay(3000)]);
    socket.destroy();
  };
  const own = securityFrom({}, "localhost", ["token"]);
  await garbage(port);
  await garbage(cluster.workers[0].data.port);
  for (const bytes of [Buffer.from("no message"), encode({ t: "run", program: 1 }), encode({ t: "hello" })]) {
    const { stream, close } = await openStream("localhost", port, "client", own, false);
    stream.on("error", () => {});
    stream.write(bytes);
    const [answer] = (await once(stream, "data")) as [Buffer];
    assert.match(answer.toString(), /refused/);
    close();
  }
  const { stream, close } = await openStream("localhost", port, "client", own, false);
  const failed = once(stream, "error");
  stream.write(Buffer.alloc(40 << 20, 32));
  const [error] = (await failed) as [Error];
  assert.match(error.message, /larger than max|exceed|RESOURCE_EXHAUSTED/i);
  close();
  await addsUp();
});

test("errors for a wrong or missing token, no workers and no dispatcher name the remedy", { skip }, async () => {
  const { port } = await process_("server", { port: 0 }, { WEFT_TOKEN: "the right token of clients" });
  const address = `localhost:${port}`;
  // The token of this user's file is not the dispatcher's.
  assert.match(await failsSoon(connect(address)), /the token is wrong.*WEFT_TOKEN/);
  assert.match(await failsSoon(connect(address, { token: "wrong" })), /the token is wrong/);
  assert.match(await failsSoon(connect(address, { insecure: true })), /a token is needed.*WEFT_TOKEN/);
  assert.match(
    await failsSoon(connect(address, { token: "the right token of clients", timeout: 1 })),
    /has no workers; start one: weft worker/,
  );
  assert.match(
    await failsSoon(connect("localhost:1")),
    /no dispatcher is listening at localhost:1; start a dispatcher: weft server/,
  );
  await assert.rejects(Dispatcher.start({ host: "0.0.0.0", port: 0 }), /TLS certificate, its key and the authority/);
  assert.match(await failsSoon(connect("not an address")), /is not an address/);
  assert.match(await failsSoon(connect({ devices: 0 })), /a count of 1 or more/);
});
