// Tensors of a killed worker are recomputed on the remaining workers, from recorded calls and retained uploads. Uses
// real processes and SIGKILL, and tests the limits of lineage.
import assert from "node:assert/strict";
import { afterEach, test } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import * as weft from "@weft/core";
import { h200 } from "@weft/core/internal/cost";
import { arena } from "@weft/core/internal/device";
import type { TensorValue } from "@weft/core/internal/runtime";
import { ClusterBuffer } from "./buffer.js";
import { chooseSharding } from "./choose.js";
import { type Cluster, connect } from "./connect.js";
import { Lineage, type LineageHooks } from "./lineage.js";
import { type ClusterStatus, watch } from "./watch.js";
import { skip, testWorker } from "./workers.testkit.js";

process.env.WEFT_FORCE_SHARD = "1";
const open: Cluster[] = [];
const settings = ["WEFT_RECOMPUTE", "WEFT_RECOMPUTE_BYTES", "WEFT_RECOMPUTE_CALLS", "WEFT_RECOMPUTE_SECONDS"];

afterEach(async () => {
  for (const name of settings) delete process.env[name];
  for (const cluster of open.splice(0)) await cluster.close();
  weft.setDevice("cpu");
});

async function begin(devices: number, env: Record<string, string> = {}): Promise<Cluster> {
  Object.assign(process.env, env);
  const cluster = await connect({ devices, ...testWorker });
  open.push(cluster);
  return cluster;
}

/** Plans with GPU rates, which prefer replicated computation over communication. */
const planAsGpus = ({ device }: Cluster): void => {
  device.executables.chooser = (fn, options) => chooseSharding(fn, { ...options, rates: h200 });
};
const planners: Record<string, (cluster: Cluster) => void> = { "its own rates": () => {}, "a GPU's rates": planAsGpus };

const bufferOf = (x: weft.Tensor): ClusterBuffer => (x.node.value as TensorValue).buffer as ClusterBuffer;

/** Every worker holds distinct rows, so each one's death loses something. */
function assertSplit(cluster: Cluster, ...tensors: weft.Tensor[]): void {
  for (const x of tensors) {
    const parts = cluster.device.describe(bufferOf(x));
    assert.deepEqual(
      parts.map(({ worker }) => worker).sort(),
      cluster.workers.map(({ id }) => id).sort(),
      "everybody has a part",
    );
    const bounds = parts.map(({ start, stop }) => [start[0], stop[0]]).sort(([a], [b]) => a - b);
    bounds.forEach(([from, to], i) => {
      assert.ok(from < to && from === (i === 0 ? 0 : bounds[i - 1][1]), `rows ${JSON.stringify(bounds)}`);
    });
  }
}

/** Kills a worker and waits until its process has ended. */
const killOne = (cluster: Cluster): void => void process.kill(cluster.workers[0].process.pid, "SIGKILL");

async function untilLeft(cluster: Cluster, count: number): Promise<void> {
  for (let i = 0; cluster.workers.length !== count; i++) {
    if (i > 1000) assert.fail(`${cluster.workers.length} workers are left, not ${count}`);
    await delay(10);
  }
}

const wave = (shape: number[], seed: number): weft.Tensor => {
  const n = shape.reduce((a, b) => a * b, 1);
  const data = Float32Array.from({ length: n }, (_, i) => Math.sin(i * 0.7 + seed));
  return weft.tensor(data, { shape });
};

function assertNear(got: weft.Data, expected: weft.Data): void {
  assert.equal(got.length, expected.length);
  for (let i = 0; i < expected.length; i++)
    if (!(Math.abs(Number(got[i]) - Number(expected[i])) <= 1e-4 * (1 + Math.abs(Number(expected[i])))))
      assert.fail(`element ${i} is ${got[i]}, not ${expected[i]}`);
}

/** The same computation on one local device. */
function alone<T>(cluster: Cluster, work: () => T): T {
  weft.setDevice("cpu");
  try {
    return work();
  } finally {
    weft.useDevice(cluster.device);
  }
}

const size = 200;
const steps = 10;
const rows = (x: weft.Tensor): weft.Tensor => weft.shard(x, { 0: "d" });
/** One call of a chain that needs all workers; its first argument and its result are sharded by rows. */
const step = weft.jit((x: weft.Tensor, w: weft.Tensor) => {
  const y = rows(x);
  return rows(y.matmul(w).mul(0.1).tanh().add(y.sum(0).mul(1e-3)));
});
const chain = (count: number, from = wave([size, size], 2), w = wave([size, size], 1)): weft.Tensor => {
  let y = from;
  for (let i = 0; i < count; i++) y = step(y, w);
  return y;
};

const statusOf = (cluster: Cluster, when: (status: ClusterStatus) => boolean): Promise<ClusterStatus> =>
  new Promise((resolve, reject) => {
    const stop = watch(
      cluster.address,
      { token: cluster.local!.token },
      (status) => {
        if (!when(status)) return;
        stop();
        resolve(status);
      },
      (reason) => reject(new Error(reason)),
    );
  });

for (const devices of [2, 3]) {
  test(`killing one of ${devices} workers during a chain of calls does not change the result`, { skip }, async () => {
    const cluster = await begin(devices);
    const expected = alone(cluster, () => chain(steps + 1).dataSync());
    const half = chain(steps / 2);
    await half.data();
    assertSplit(cluster, half);
    const before = cluster.device.counts.runs;
    // Stopped first, so that it is killed in the middle of a call while the others wait for it.
    const { pid } = cluster.workers[0].process;
    process.kill(pid, "SIGSTOP");
    const y = chain(steps / 2, half);
    const last = step(y, wave([size, size], 1));
    const work = last.data();
    await delay(200);
    process.kill(pid, "SIGKILL");
    assertNear(await work, expected);
    await untilLeft(cluster, devices - 1);
    const { counts } = cluster.device;
    assert.ok(counts.recomputed > 0, "nothing was recomputed");
    // The last result and the chain that leads to it are recomputed, nothing else.
    assert.equal(counts.recomputed, steps + 1);
    assert.equal(counts.runs - before, steps / 2 + 1 + steps + 1, "recomputed calls");
    const status = await statusOf(cluster, ({ recomputed }) => recomputed > 0);
    assert.equal(status.recomputed, counts.recomputed);
    // Later calls reuse it.
    const { recomputed } = counts;
    const next = alone(cluster, () => chain(steps + 2).dataSync());
    assertNear(await step(last, wave([size, size], 1)).data(), next);
    assert.equal(counts.recomputed, recomputed);
  });
}

test("killing two workers one after the other does not change the result", { skip }, async () => {
  const cluster = await begin(3);
  const expected = alone(cluster, () => chain(40).dataSync());
  const next = alone(cluster, () => chain(41).dataSync());
  for (const left of [2, 1]) {
    const y = chain(40);
    const work = y.data();
    assertSplit(cluster, y);
    await delay(60);
    killOne(cluster);
    assertNear(await work, expected);
    await untilLeft(cluster, left);
    // Fast workers may have finished: then the lost rows had not been needed yet.
    assertNear(await step(y, wave([size, size], 1)).data(), next);
    assert.ok(cluster.device.counts.recomputed >= 40 * (3 - left), `${cluster.device.counts.recomputed} recomputed`);
  }
});

test("a stopped worker is worked around, and its late results are ignored when it continues", { skip }, async () => {
  const cluster = await begin(2);
  const expected = alone(cluster, () => chain(steps).dataSync());
  const half = chain(steps / 2);
  await half.data();
  assertSplit(cluster, half);
  const { pid } = cluster.workers[1].process;
  process.kill(pid, "SIGSTOP");
  try {
    // The stopped worker has not read this upload when it is freed.
    const w = wave([size, size], 1);
    const rest = chain(steps / 2, half, w);
    w.dispose();
    assertNear(await rest.data(), expected);
    assert.ok(cluster.device.counts.recomputed > 0);
  } finally {
    process.kill(pid, "SIGCONT");
  }
  await untilLeft(cluster, 2);
  const before = cluster.device.counts.sharded;
  assertNear(await chain(steps / 2, half).data(), expected);
  assert.ok(cluster.device.counts.sharded > before, "both workers are used again");
});

test("a recovery that takes longer than its limit is an error that names the limit", { skip }, async () => {
  const cluster = await begin(2, { WEFT_RECOMPUTE_SECONDS: "1" });
  const half = chain(2);
  await half.data();
  assertSplit(cluster, half);
  const { pid } = cluster.workers[1].process;
  // The worker on which everything is recomputed does nothing, and nobody knows yet.
  process.kill(pid, "SIGSTOP");
  try {
    const late = chain(1, half).data();
    late.catch(() => {});
    await delay(100);
    killOne(cluster);
    await assert.rejects(late, /not recomputed within 1 s \(WEFT_RECOMPUTE_SECONDS\)/);
  } finally {
    process.kill(pid, "SIGCONT");
  }
});

for (const joined of [true, false])
  test(`calls of a program that a stopped worker has not compiled are repeated without it (${joined ? "old" : "new"} group)`, {
    skip,
    timeout: 120_000,
  }, async () => {
    const cluster = await begin(3);
    const x = rows(wave([300, 200], 3));
    const expected = alone(cluster, () => wave([300, 200], 3).sum().itemSync());
    const near = (total: number, factor: number): void =>
      assert.ok(Math.abs(total - factor * expected) < 1e-3 * Math.abs(expected), `${total}, not ${factor * expected}`);
    await x.data();
    assertSplit(cluster, x);
    if (joined) near(await x.sum().item(), 1);
    const since = (begun: number): number => (performance.now() - begun) / 1e3;
    // What a new program takes on this machine now.
    const before = performance.now();
    await rows(x.mul(7)).data();
    const usual = since(before);
    const { pid } = cluster.workers[1].process;
    process.kill(pid, "SIGSTOP");
    try {
      const begun = performance.now();
      near(await x.sum().mul(3).item(), 3);
      const seconds = since(begun);
      // It is suspended after 4 s. The others would need 5 s more to notice in a collective that it is stopped.
      assert.ok(seconds > 2 && seconds < 7.5 + 4 * usual, `${seconds} s, a new program ${usual} s`);
    } finally {
      process.kill(pid, "SIGCONT");
    }
    // It continues with what it was sent, and must not wait for a group that the others have left.
    await untilLeft(cluster, 3);
    near(await x.sum().mul(2).item(), 2);
  });

for (const [rates, setPlanner] of Object.entries(planners))
  test(`tensors lost while idle are recomputed on use, and uploads are sent again (${rates})`, { skip }, async () => {
    const cluster = await begin(2);
    setPlanner(cluster);
    const x = wave([300, 200], 3).realize();
    const y = rows(rows(x).mul(2)).realize();
    const z = rows(y.add(1)).realize();
    await z.data();
    assertSplit(cluster, x, y, z);
    y.dispose();
    killOne(cluster);
    await untilLeft(cluster, 1);
    // z needs y, which was disposed; y needs x, whose shards died with the worker.
    const total = await z.sum().item();
    const expected = alone(cluster, () => wave([300, 200], 3).mul(2).add(1).sum().itemSync());
    assert.ok(Math.abs(total - expected) < 1e-3 * Math.abs(expected), `${total}, not ${expected}`);
    assert.equal(cluster.device.counts.recomputed, 2);
    assertNear(
      await x.data(),
      alone(cluster, () => wave([300, 200], 3).dataSync()),
    );
  });

test("staging buffers that a killed worker never read are released", { skip }, async () => {
  const cluster = await begin(2, { WEFT_RECOMPUTE: "0" });
  await wave([64, 64], 1).add(1).data();
  const before = arena.used();
  const { pid } = cluster.workers[0].process;
  process.kill(pid, "SIGSTOP");
  const x = wave([512, 512], 8);
  const y = rows(rows(x).add(1)).realize();
  assertSplit(cluster, x, y);
  assert.ok(arena.used() >= before + 4 * 512 * 512);
  process.kill(pid, "SIGKILL");
  await assert.rejects(y.data(), /shards are lost/);
  await untilLeft(cluster, 1);
  await weft.tensor([1]).add(1).data();
  // A killed process closes its connections before it ends; the client polls its state.
  for (const end = Date.now() + 5000; arena.used() !== before && Date.now() < end; ) await delay(10);
  assert.equal(arena.used(), before);
});

test("a training loop with donated state continues with one worker fewer", { skip }, async () => {
  const cluster = await begin(2);
  const train = weft.jit(
    (given: weft.Tensor, x: weft.Tensor) => {
      const w = rows(given);
      const loss = (v: weft.Tensor): weft.Tensor => rows(x).matmul(v).tanh().square().mean();
      return rows(w.sub(weft.grad(loss)(w).mul(0.1)));
    },
    { donate: [0] },
  );
  const loop = (count: number, w: weft.Tensor, x: weft.Tensor): weft.Tensor => {
    let v = w;
    for (let i = 0; i < count; i++) v = train(v, x);
    return v;
  };
  const expected = alone(cluster, () => loop(20, wave([64, 48], 4), wave([256, 64], 5)).dataSync());
  const x = wave([256, 64], 5);
  let w = loop(10, wave([64, 48], 4), x);
  await w.data();
  assertSplit(cluster, w, x);
  killOne(cluster);
  await untilLeft(cluster, 1);
  w = loop(10, w, x);
  assertNear(await w.data(), expected);
  assert.equal(cluster.device.counts.recomputed, 10, "the earlier, donated states");
});

for (const [rates, setPlanner] of Object.entries(planners))
  test(`if the inputs are not retained there is one clear error, and other tensors still work (${rates})`, {
    skip,
  }, async () => {
    for (const [env, why] of [
      [{ WEFT_RECOMPUTE: "0" }, /WEFT_RECOMPUTE=0/],
      [{ WEFT_RECOMPUTE_BYTES: "0" }, /not retained \(WEFT_RECOMPUTE_BYTES\)|no longer remembered/],
      [{ WEFT_RECOMPUTE_CALLS: "3" }, /more than 3 calls|no longer remembered \(WEFT_RECOMPUTE_CALLS/],
    ] as const) {
      const cluster = await begin(2, env);
      setPlanner(cluster);
      const root = wave([256, 256], 6);
      const y = chain(8, root, wave([256, 256], 7));
      await y.data();
      assertSplit(cluster, root, y);
      killOne(cluster);
      await untilLeft(cluster, 1);
      for (const attempt of [() => y.data(), () => y.add(1).data()])
        await assert.rejects(attempt, (error: Error) => {
          assert.match(error.message, /worker w\d+ .* ended; its shards are lost: recompute them/);
          assert.match(error.message, why);
          return true;
        });
      assert.equal(cluster.device.counts.recomputed, 0);
      assert.deepEqual(await weft.tensor([1, 2]).add(1).array(), [2, 3]);
      await cluster.close();
      open.pop();
      for (const name of settings) delete process.env[name];
    }
  });

/** Lineage with stub hooks, without a cluster. */
function bench(limits: { bytes?: number; calls?: number } = {}): { lineage: Lineage; unstaged: number[] } {
  const unstaged: number[] = [];
  const hooks: LineageHooks = {
    isDead: () => true,
    isFailed: () => false,
    reset: (it) => it.reset(),
    scratchLike: ({ bytes }) => new ClusterBuffer(bytes),
    free: () => {},
    releaseStaging: ({ address }) => void unstaged.push(address),
  };
  return { lineage: new Lineage(hooks, { enabled: true, bytes: 100, calls: 4, seconds: 60, ...limits }), unstaged };
}

test("retained arrays and freed tensors are bounded, and freed ones are evicted first", () => {
  const { lineage, unstaged } = bench();
  const buffers = Array.from({ length: 4 }, () => new ClusterBuffer(30));
  const keep = (i: number): boolean => lineage.retain(buffers[i], { address: i + 1, bytes: null });
  assert.ok(keep(0) && keep(1) && keep(2));
  assert.equal(lineage.retainedBytes, 90);
  buffers[1].freed = true;
  lineage.freed(buffers[1]);
  assert.ok(keep(3));
  assert.deepEqual(unstaged, [2]);
  assert.equal(lineage.retainedBytes, 90);
  assert.equal(lineage.retain(new ClusterBuffer(101), { address: 9, bytes: null }), false);
  const made = Array.from({ length: 10 }, () => new ClusterBuffer(1));
  for (const it of made) {
    lineage.record({ recompute: () => {}, inputs: [], outputs: [it], members: new Map(), seconds: 0 });
    it.freed = true;
    lineage.freed(it);
  }
  assert.equal(made.filter((it) => it.origin !== null).length, 4);
  lineage.clear();
  assert.equal(lineage.retainedBytes, 0);
  assert.deepEqual(unstaged.sort(), [1, 2, 3, 4]);
});
