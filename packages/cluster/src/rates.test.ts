// Rates that the planner uses: those of the slowest worker, and assumptions from the hardware that a worker reports.
import assert from "node:assert/strict";
import { test } from "node:test";
import { h200, type Rates } from "@weft/core/internal/cost";
import { type CollectiveKind, collectiveKinds } from "@weft/core/internal/graph";
import { build } from "@weft/core/internal/ops";
import { assumedRates } from "./assumed-rates.js";
import { chooseSharding } from "./choose.js";
import { groupLinks } from "./network-rates.js";
import type { PreflightCollective } from "./preflight.js";
import type { WorkerInfo } from "./protocol.js";
import { ratesFor } from "./rates.js";

const worker = (facts: Partial<WorkerInfo>): WorkerInfo =>
  ({ device: "any", threads: 1, rates: null, accelerator: null, ...facts }) as WorkerInfo;

const base = assumedRates(worker({ threads: 4 }));
const measured = (name: string, change: Partial<Rates> = {}): Rates => ({ ...base, name, assumed: false, ...change });

const gpus = {
  h200: { capability: "9.0", multiprocessors: 132, clockHz: 1.98e9, memoryBandwidth: 4.8e12 },
  a100: { capability: "8.0", multiprocessors: 108, clockHz: 1.41e9, memoryBandwidth: 2.039e12 },
  t4: { capability: "7.5", multiprocessors: 40, clockHz: 1.59e9, memoryBandwidth: 0.32e12 },
};

test("a cluster is planned with the slowest worker's rates, whichever joined first", () => {
  const fast = worker({ rates: measured("fast", { simple: 8e9, kernel: 1e-6, bandwidth: [[1e6, 20e9]] }) });
  const slow = worker({ rates: measured("slow", { simple: 1e9, kernel: 5e-6, bandwidth: [[1e7, 3e9]] }) });
  for (const workers of [
    [fast, slow],
    [slow, fast],
  ]) {
    const rates = ratesFor(workers);
    assert.equal(rates.simple, 1e9);
    assert.equal(rates.kernel, 5e-6);
    assert.deepEqual(
      rates.bandwidth.map(([, y]) => y),
      [3e9, 3e9],
    );
    assert.equal(rates.assumed, false);
    assert.match(rates.name, /slowest of .*(fast|slow); (fast|slow)/);
  }
  assert.equal(ratesFor([fast, fast]).name, "fast");
});

test("each property comes from the worker that is slowest in it, also with all workers busy and for links", () => {
  const { name: _, ...own } = measured("crowd");
  const link = (latency: number, bandwidth: number): Rates["links"] =>
    Object.fromEntries(Object.keys(base.links).map((kind) => [kind, [{ members: 2, latency, bandwidth }]])) as never;
  const a = measured("a", { special: 1e9, linalg: 9e9, links: link(1e-6, 1e9) });
  const b = measured("b", {
    special: 2e9,
    linalg: 3e9,
    links: link(9e-6, 5e9),
    crowded: { members: 4, rates: { ...own, name: "crowd", special: 0.5e9 } },
  });
  // Tables of products hold seconds, not rates: the larger value is the slower one.
  const table = (seconds: number): Rates["products"] => {
    const all = Array.from({ length: 8 }, () => seconds);
    return { float32: { sizes: [8, 64], nn: all, tn: all, nt: all, ns: all } };
  };
  const rates = ratesFor([
    worker({ rates: { ...a, products: table(1e-6) } }),
    worker({ rates: { ...b, products: table(4e-6) } }),
  ]);
  assert.deepEqual(rates.products, table(4e-6));
  assert.deepEqual([rates.special, rates.linalg], [1e9, 3e9]);
  assert.deepEqual(rates.links.allReduce, [{ members: 2, latency: 9e-6, bandwidth: 1e9 }]);
  assert.equal(rates.crowded?.rates.special, 0.5e9);
});

test("a worker that was not measured makes the rates assumed and can slow them down", () => {
  const fast = worker({ rates: measured("fast", { simple: 900e9 }) });
  const rates = ratesFor([fast, worker({ threads: 1 })]);
  assert.equal(rates.assumed, true);
  assert.match(rates.name, /assumed/);
  assert.equal(rates.simple, assumedRates(worker({ threads: 1 })).simple);
});

test("rates of GPU workers that were not measured follow from the hardware that they report", () => {
  const [big, middle, small] = [gpus.h200, gpus.a100, gpus.t4].map((accelerator) =>
    ratesFor([worker({ accelerator })]),
  );
  // Vendor peaks: 989, 312 and 65 teraflop/s of float16; 4.8, 2.0 and 0.32 TB/s of memory.
  const half = (rates: Rates): number => rates.matmul.float16!.at(-1)![1];
  for (const [rates, peak] of [
    [middle, 312],
    [small, 65],
  ] as const)
    assert.ok(Math.abs((half(rates) / half(big)) * (989 / peak) - 1) < 0.1);
  const memory = (rates: Rates): number => rates.bandwidth.at(-1)![1];
  assert.ok(Math.abs(memory(small) / memory(big) - 0.32 / 4.8) < 1e-9);
  assert.deepEqual({ ...big, name: "", call: 0 }, { ...h200, name: "", call: 0 });
  for (const rates of [big, middle, small]) assert.ok(rates.assumed && /assumed/.test(rates.name), rates.name);
  // Without NVLink data moves over PCI Express.
  assert.ok(small.links.allReduce[0].bandwidth < 20e9);
});

test("a GPU whose driver reports no clocks is not taken for a large one", () => {
  const accelerator = { capability: "8.6", multiprocessors: 28, clockHz: null, memoryBandwidth: null };
  const rates = assumedRates(worker({ accelerator }));
  assert.ok(rates.bandwidth.at(-1)![1] < h200.bandwidth.at(-1)![1] / 5);
  assert.ok(rates.simple < h200.simple / 4);
});

test("the explanation of a plan says that its rates are assumed", () => {
  const x = build.input([512, 512], "float32");
  const fn = { params: [x], outputs: [build.matmul(x, x)] };
  const rates = ratesFor([worker({ accelerator: gpus.t4 }), worker({ accelerator: gpus.t4 })]);
  const choice = chooseSharding(fn, { devices: 2, rates, params: [null], donated: [false], enabled: true });
  assert.match(choice.explain!([], { seconds: 1, single: 1 }), /predicted for GPU workers of 40 .*\(assumed\)/);
});

test("links of a group follow from two sizes of every collective, whatever the noise", () => {
  const row = (bytes: number, seconds: number) => (kind: CollectiveKind) => ({ kind, members: 4, bytes, seconds });
  const from = (...rows: ((kind: CollectiveKind) => PreflightCollective)[]) =>
    groupLinks({ collectives: collectiveKinds.flatMap((kind) => rows.map((make) => make(kind))) }).allToAll[0];
  // 1 ms, and 10 MB per second.
  const exact = from(row(50_000, 0.006), row(200_000, 0.021));
  assert.ok(Math.abs(exact.latency - 0.001) < 1e-9 && Math.abs(exact.bandwidth / 1e7 - 1) < 1e-9);
  // A larger message that is slower than its size explains, and one that is faster than the smaller one.
  for (const link of [from(row(50_000, 0.001), row(200_000, 0.021)), from(row(50_000, 0.03), row(200_000, 0.021))]) {
    assert.ok(link.latency >= 0 && link.bandwidth > 0 && Number.isFinite(link.bandwidth));
    assert.ok(Math.abs(link.latency + 200_000 / link.bandwidth - 0.021) < 1e-9);
  }
});
