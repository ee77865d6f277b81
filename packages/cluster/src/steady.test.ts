// Steady-state cost of repeated calls, counted in messages, bytes, plans and buffers, not in seconds.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import * as weft from "@weft/core";
import type { Rates } from "@weft/core/internal/cost";
import { CpuDevice } from "@weft/core/internal/device";
import { build } from "@weft/core/internal/ops";
import { partitionFunction } from "@weft/core/internal/shard";
import type { ClusterBuffer } from "./buffer.js";
import { chooseSharding } from "./choose.js";
import { type Cluster, connect } from "./connect.js";
import type { WorkerInfo, WorkerStats } from "./protocol.js";
import { ratesFor, withoutLinks } from "./rates.js";
import { watch } from "./watch.js";

const skip = CpuDevice.available() ? false : "no C compiler";
const workers = 8;

let cluster: Cluster;
const records: { kind: string; bytes: number }[] = [];
before(async () => {
  if (skip) return;
  // Shard over all workers: whether that is worthwhile is tested with the planner.
  process.env.WEFT_FORCE_SHARD = "1";
  cluster = await connect({ devices: workers, cores: 1, tape: true });
  cluster.device.connection.onTape = (more) => records.push(...(more as typeof records));
});
after(async () => {
  delete process.env.WEFT_FORCE_SHARD;
  if (!skip) await cluster.close();
});

const bufferOf = (t: weft.Tensor): ClusterBuffer => (t.node.value as unknown as { buffer: ClusterBuffer }).buffer;
const issue = (t: weft.Tensor): void => weft.session().realize([t.node]);
const computed = (t: weft.Tensor): Promise<void> => cluster.device.computed(bufferOf(t));
const movedBytes = (): number => records.reduce((sum, r) => sum + (r.kind === "collective" ? r.bytes : 0), 0);

const wave = (shape: number[], seed: number): weft.Tensor => {
  const n = shape.reduce((a, b) => a * b, 1);
  return weft.tensor(Float32Array.from({ length: n }, (_, i) => Math.sin(i * 0.7 + seed) * 0.5)).reshape(shape);
};

/** Allocations of all workers, from the dispatcher's next status. */
function allocations(): Promise<{ fresh: number; reused: number }> {
  return new Promise((resolve, reject) => {
    let first: (number | undefined)[] | null = null;
    const stop = watch(
      cluster.address,
      { token: cluster.local?.token },
      (status) => {
        const stats = status.workers.map((w) => w.stats).filter((s): s is WorkerStats => s?.allocations != null);
        if (stats.length < workers) return;
        // The first status may be old: wait until every worker has reported again.
        const times = stats.map((s) => s.uptimeSeconds);
        first ??= times;
        if (times.some((time, i) => time === first![i])) return;
        stop();
        const sum = (key: "fresh" | "reused"): number => stats.reduce((n, s) => n + s.allocations![key], 0);
        resolve({ fresh: sum("fresh"), reused: sum("reused") });
      },
      (reason) => reject(new Error(reason)),
    );
  });
}

interface Case {
  name: string;
  shapes: number[][];
  run(...args: weft.Tensor[]): weft.Tensor;
  /** Whether buffers are counted too; workers report them once per second. */
  buffers?: boolean;
}

const cases: Case[] = [
  {
    name: "a product",
    shapes: [
      [96, 64],
      [64, 80],
    ],
    run: (a, b) => a.matmul(b),
  },
  {
    name: "two layers",
    shapes: [
      [128, 32],
      [32, 48],
      [48, 32],
    ],
    run: (x, u, v) => weft.relu(weft.relu(x.matmul(u)).matmul(v)),
    buffers: true,
  },
  { name: "a pass over memory", shapes: [[160, 40]], run: (x) => weft.relu(x).mul(2) },
];

for (const { name, shapes, run, buffers = false } of cases) {
  test(`${name} over ${workers} workers: repeated calls are one message and neither reshard, plan nor allocate`, {
    skip,
  }, async () => {
    weft.useDevice(cluster.device);
    const { counts, connection } = cluster.device;
    // Computed on the workers and sharded by rows, where the program would not place all of them.
    const double = weft.jit((t: weft.Tensor) => t.mul(2));
    const args = shapes.map((shape, i) => double(wave(shape, i)));
    for (const t of args) issue(t);
    const f = weft.jit(run);
    // The first call plans, the second reshards recurring arguments, the third is steady.
    let expected: ArrayLike<number> = [];
    for (let i = 0; i < 3; i++) {
      const c = f(...args);
      expected = (await c.data()) as ArrayLike<number>;
      c.dispose();
    }
    const memory = buffers ? await allocations() : null;
    records.length = 0;
    const was = { ...counts, messages: connection.sent.messages };
    const calls = 24;
    for (let i = 0; i < calls; i++) {
      const c = f(...args);
      issue(c);
      if (i === calls - 1) await computed(c);
      c.dispose();
    }
    assert.equal(counts.runs - was.runs, calls);
    assert.equal(counts.sharded - was.sharded, calls, "every call runs on several workers");
    assert.equal(counts.plans - was.plans, 0, "programs planned");
    assert.equal(counts.reshards - was.reshards, 0, "arguments moved");
    assert.equal(connection.sent.messages - was.messages, 1, "messages: results are freed with the next call");
    // Awaited one by one, a call is also one message: the last result is freed with it.
    for (let i = 0; i < 3; i++) {
      const c = f(...args);
      issue(c);
      await computed(c);
      c.dispose();
    }
    assert.equal(connection.sent.messages - was.messages, 1 + 3);
    assert.equal(counts.runs - was.runs, calls + 3);
    if (memory !== null) {
      const after = await allocations();
      assert.equal(after.fresh - memory.fresh, 0, "buffers from the system");
      assert.equal(after.reused - memory.reused, (calls + 3) * workers, "buffers used again");
    }
    assert.equal(movedBytes(), 0, "bytes between workers");
    assert.equal(records.length > 0, true);

    const c = f(...args);
    const values = (await c.data()) as ArrayLike<number>;
    weft.setDevice("cpu");
    const alone = run(...shapes.map((shape, i) => wave(shape, i).mul(2))).dataSync() as ArrayLike<number>;
    weft.useDevice(cluster.device);
    for (let i = 0; i < alone.length; i++) {
      assert.ok(Math.abs(values[i] - alone[i]) < 1e-3, `element ${i} is ${values[i]}, not ${alone[i]}`);
      assert.equal(values[i], expected[i]);
    }
    for (const t of [...args, c]) t.dispose();
  });
}

test("a tensor that two programs need in two placements keeps both copies", { skip }, async () => {
  weft.useDevice(cluster.device);
  const { counts } = cluster.device;
  const w = weft.jit((t: weft.Tensor) => t.mul(1))(wave([64, 64], 3));
  const x = wave([96, 64], 1);
  const left = weft.jit((a: weft.Tensor, b: weft.Tensor) => a.matmul(b));
  const right = weft.jit((a: weft.Tensor, b: weft.Tensor) => b.matmul(a.T).sum(1));
  const both = async (): Promise<void> => {
    await left(x, w).data();
    await right(x, w).data();
  };
  for (let i = 0; i < 3; i++) await both();
  const before = counts.reshards;
  for (let i = 0; i < 4; i++) await both();
  assert.equal(counts.reshards, before);
});

test("with very slow links the planner chooses a plan without communication", () => {
  const dims = [1024, 1024, 1024];
  const x = build.input([1024, 1024], "float32");
  const weights = dims.slice(1).map((out, i) => build.input([dims[i], out], "float32"));
  const zero = build.full([1024, 1024], 0, "float32");
  const y = weights.reduce((h, w) => build.binary("max", build.matmul(h, w), zero), x);
  const fn = { params: [x, ...weights], outputs: [y] };
  const worker = { device: "cpu", threads: 1, rates: null, accelerator: null } as unknown as WorkerInfo;
  const assumed = ratesFor(Array.from({ length: workers }, () => worker));
  // As measured: with curves by message size, and so fast that communication is free.
  const curve: [number, number][] = [[1e6, 1e15]];
  const links = Object.entries(assumed.links).map(([kind, list]) => [
    kind,
    list.map((link) => ({ ...link, bandwidth: 1e15, latency: 0, curve })),
  ]);
  const rates: Rates = { ...assumed, links: Object.fromEntries(links) as Rates["links"] };
  const params = fn.params.map(() => null);
  const options = { devices: workers, params, donated: [], enabled: true };
  delete process.env.WEFT_FORCE_SHARD;
  const still = chooseSharding(fn, { ...options, rates: withoutLinks(rates) });
  assert.equal(still.mesh.size, workers);
  assert.equal(partitionFunction(fn, still).moves.length, 0);
  assert.ok(still.seconds >= chooseSharding(fn, { ...options, rates }).seconds);
});
