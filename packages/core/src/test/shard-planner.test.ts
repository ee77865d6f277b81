// The planner's choices on rates with one obvious answer, its estimates against what the partitioner moves, and its plans
// against the unsharded results.
import assert from "node:assert/strict";
import { before, describe, test } from "node:test";
import { parseRates, type Rates, ratesAt, sameLinks } from "../cost/index.js";
import { functionOrder, type GraphFn, range } from "../graph/index.js";
import { ReferenceDevice, useDevice } from "../index.js";
import { build } from "../ops/index.js";
import {
  drawPlacement,
  explainPlan,
  Mesh,
  Placement,
  type PlannerOptions,
  partitionFunction,
  planSharding,
  type ShardingPlan,
} from "../shard/index.js";
import { loopGradient, mlpStep, type Program, transformerStep } from "./programs.js";
import { shardedProblems } from "./sharded.js";

/** A round machine: 100 GFLOP/s, 10 GB/s, links of 1 GB/s with a latency of 10 us. */
const machine: Rates = {
  name: "round numbers",
  assumed: true,
  matmul: { float32: [[1, 100e9]] },
  linalg: 1e9,
  bandwidth: [[1, 10e9]],
  simple: 1e10,
  special: 1e9,
  lookup: 1e9,
  random: 1e9,
  kernel: 1e-6,
  call: 1e-5,
  links: sameLinks([{ members: 8, latency: 1e-5, bandwidth: 1e9 }]),
};

const free = (fn: GraphFn): null[] => fn.params.map(() => null);
const planFor = (fn: GraphFn, options: Partial<PlannerOptions> = {}): ShardingPlan =>
  planSharding(fn, { ranks: range(8), rates: machine, params: free(fn), ...options });

function product(m: number, k: number, n: number): GraphFn {
  const a = build.input([m, k], "float32");
  const b = build.input([k, n], "float32");
  return { params: [a, b], outputs: [build.matmul(a, b)] };
}

const localProducts = (fns: readonly GraphFn[]): number[][] =>
  fns.map((fn) => {
    const [node] = functionOrder(fn).filter(({ op }) => op === "matmul");
    return [node.shape[0], node.inputs[0].shape[1], node.shape[1]];
  });

const divided = (p: ShardingPlan, fn: GraphFn) =>
  partitionFunction(fn, { mesh: p.mesh, params: p.params, strategy: p.strategy, results: p.results });

const { links: _, ...machineAlone } = { ...machine, simple: 1e12 };
/** The same machine with shared memory: 10 GB/s for one device, and no more for eight together. */
const shared: Rates = {
  ...machineAlone,
  links: machine.links,
  crowded: { members: 8, rates: { ...machineAlone, bandwidth: [[1, 1.25e9]] } },
};

describe("plans for devices that share their memory", () => {
  const pass = (elements: number): GraphFn => {
    const x = build.input([elements], "float32");
    return { params: [x], outputs: [build.neg(x)] };
  };

  test("a memory-bound op stays on one device, and a product is still sharded", () => {
    assert.equal(planFor(pass(1 << 24)).mesh.size, 8);
    const p = planFor(pass(1 << 24), { rates: shared });
    assert.equal(p.mesh.size, 1);
    // 134 MB at 10 GB/s and 16.8 million signs at a trillion per second.
    assert.ok(Math.abs(p.seconds - (1e-5 + 1e-6 + (8 * 2 ** 24) / 10e9 + 2 ** 24 / 1e12)) < 1e-9, String(p.seconds));
    assert.equal(planFor(product(4096, 1024, 1024), { rates: shared }).mesh.size, 8);
  });

  test("rates are interpolated by the logarithm of the number of devices", () => {
    const at = (devices: number): number => ratesAt(shared, devices).bandwidth[0][1];
    // An eighth for all eight: half for two, a quarter for four, and not less for more than were measured.
    for (const [devices, rate] of [
      [1, 10e9],
      [2, 5e9],
      [4, 2.5e9],
      [8, 1.25e9],
      [16, 1.25e9],
    ])
      assert.ok(Math.abs(at(devices) - rate) < 1, `${devices} devices: ${at(devices)}`);
    assert.ok(Math.abs(ratesAt(shared, 2).matmul.float32![0][1] - 100e9) < 1);
    assert.equal(ratesAt(shared, 2).links, shared.links);
    assert.equal(ratesAt(machine, 8), machine);
  });

  test("a gain smaller than the start skew of the devices stays on one device", () => {
    const gain = planFor(product(256, 256, 256));
    // 336 us on one device against 42 us: sharded. With a latency of a quarter of a millisecond it is not.
    assert.equal(gain.mesh.size, 8);
    const slow = { ...machine, links: sameLinks([{ members: 8, latency: 3e-4, bandwidth: 1e9 }]) };
    assert.equal(planFor(product(256, 256, 256), { rates: slow }).mesh.size, 1);
  });
});

describe("plans", () => {
  test("a large product is split by rows over all devices and moves nothing", () => {
    const fn = product(4096, 4096, 4096);
    const p = planFor(fn);
    assert.equal(p.mesh.size, 8);
    const parts = divided(p, fn);
    assert.equal(parts.moves.length, 0);
    assert.deepEqual(localProducts(parts.functions)[0], [512, 4096, 4096]);
    // 2 * 4096^3 flops at 100 GFLOP/s, and one kernel and one call.
    assert.ok(Math.abs(p.single - (2 * 4096 ** 3) / 100e9 - 1.1e-5) < 1e-9);
    assert.ok(Math.abs(p.seconds - (2 * 4096 ** 3) / 8 / 100e9 - 1.1e-5) < 1e-9);
  });

  test("a long contraction is split, and its small result reduced", () => {
    const fn = product(8, 1 << 20, 8);
    const p = planFor(fn);
    assert.equal(p.mesh.size, 8);
    const parts = divided(p, fn);
    assert.deepEqual(
      parts.moves.map(({ kind, bytes }) => [kind, bytes]),
      [["allReduce", (2 * 7 * 8 * 8 * 4) / 8]],
    );
    assert.deepEqual(localProducts(parts.functions)[0], [8, (1 << 20) / 8, 8]);
    assert.equal(String(p.params[0]), "[-, d]");
    assert.equal(String(p.params[1]), "[d, -]");
  });

  test("a small product is not split, and no plan is more expensive than one device", () => {
    const fn = product(64, 64, 64);
    const p = planFor(fn);
    assert.equal(p.mesh.size, 1);
    assert.equal(p.seconds, p.single);
    for (const size of [1, 16, 100, 300, 1000]) {
      const any = planFor(product(size, size, size));
      assert.ok(any.seconds <= any.single, `${size}: ${any.seconds} against ${any.single}`);
    }
  });

  test("four of eight devices are used where communication of eight costs more than it saves", () => {
    const fn = product(1, 1 << 20, 1);
    const links = sameLinks([
      { members: 2, latency: 1e-5, bandwidth: 1e9 },
      { members: 4, latency: 2e-5, bandwidth: 1e9 },
      { members: 8, latency: 5e-4, bandwidth: 1e9 },
    ]);
    // Rows and columns are too few to split: only the contraction helps.
    const p = planFor(fn, { rates: { ...machine, bandwidth: [[1, 1e10]], links } });
    assert.equal(p.mesh.size, 4);
    assert.deepEqual(p.mesh.ranks, [0, 1, 2, 3]);
    assert.match(explainPlan(p), /4 of 8 devices: with more, communication would cost more than it saves/);
  });

  test("links that are too slow keep a training step on one device", () => {
    const { fn } = mlpStep(256, 64, 64, 10);
    const slow = { ...machine, links: sameLinks([{ members: 8, latency: 1, bandwidth: 1e3 }]) };
    const p = planFor(fn, { rates: slow });
    assert.equal(p.mesh.size, 1);
    assert.match(explainPlan(p), /^One device/);
  });

  test("planning can be disabled", () => {
    const p = planFor(product(4096, 4096, 4096), { enabled: false });
    assert.equal(p.mesh.size, 1);
    assert.equal(p.alternatives.length, 1);
  });

  test("weights too large to replicate are split, data is not", () => {
    const { fn } = mlpStep(16, 1024, 4096, 1000);
    const p = planFor(fn, { donated: fn.params.map((_, i) => i < fn.params.length - 2) });
    assert.equal(p.mesh.size, 8);
    const parts = divided(p, fn);
    // The weights are split along the hidden units on the way in and on the way out: nothing of them moves.
    assert.ok(p.params.slice(0, 3).every((placement) => !placement.isReplicated || placement.dims.length === 1));
    for (const move of parts.moves) assert.ok(move.bytes < 1e6, `${move.kind} ${move.bytes}`);
    assert.deepEqual(parts.results.slice(0, 4).map(String), p.params.slice(0, 4).map(String));
  });

  test("a batch is split where weights are small, and only gradients move", () => {
    const program = mlpStep(8192, 64, 128, 10);
    const { fn } = program;
    const p = planFor(fn, { donated: fn.params.map((_, i) => i < fn.params.length - 2) });
    assert.equal(String(p.mesh), "d=8");
    assert.equal(String(p.params[4]), "[d, -]");
    assert.equal(String(p.params[5]), "[d]");
    const parts = divided(p, fn);
    const kinds = new Set(parts.moves.map(({ kind }) => kind));
    assert.deepEqual([...kinds], ["allReduce"]);
    const weights = 4 * (10 + 10 * 128 + 128 + 128 * 64);
    const received = parts.moves.reduce((n, move) => n + move.bytes, 0);
    assert.equal(received, (2 * 7 * (weights + 4)) / 8);
  });

  test("given placements are respected", () => {
    const fn = product(4096, 4096, 4096);
    const mesh = new Mesh([{ name: "d", size: 8 }], range(8));
    const columns = Placement.split(mesh, [4096, 4096], { 1: "d" });
    const p = planFor(fn, { params: [null, columns] });
    assert.ok(p.params[1].equals(columns));
    const parts = divided(p, fn);
    assert.equal(parts.moves.length, 0);
    assert.deepEqual(localProducts(parts.functions)[0], [4096, 4096, 512]);
  });
});

describe("plans compute the same numbers", () => {
  before(() => void useDevice(new ReferenceDevice()));
  /** Machines on which different strategies win. */
  const machines: [string, Partial<Rates>][] = [
    ["cheap links", { call: 0, kernel: 0, links: sameLinks([{ members: 8, latency: 1e-12, bandwidth: 1e15 }]) }],
    [
      "latency",
      {
        matmul: { float32: [[1, 1e6]] },
        simple: 1e6,
        links: sameLinks([{ members: 8, latency: 1e-6, bandwidth: 1e12 }]),
      },
    ],
    [
      "bandwidth",
      { matmul: { float32: [[1, 1e6]] }, simple: 1e6, links: sameLinks([{ members: 8, latency: 0, bandwidth: 1e8 }]) },
    ],
  ];
  const size = { batch: 4, length: 3, width: 8, heads: 2, layers: 1, feedForward: 8, vocabulary: 7, classes: 3 };
  const programs: [string, () => Program, number][] = [
    ["an MLP step", () => mlpStep(13, 6, 10, 3), 8],
    ["a transformer step", () => transformerStep(size), 200],
    ["the gradient of a loop", () => loopGradient(11, 3, 4), 20],
  ];
  for (const [name, make, loose] of programs) {
    for (const devices of [3, 8]) {
      test(`${name} on ${devices} devices`, () => {
        const program = make();
        for (const [label, rates] of machines) {
          const donated = program.fn.params.map((_, i) => i < program.fn.params.length - program.data);
          const p = planFor(program.fn, { ranks: range(devices), rates: { ...machine, ...rates }, donated });
          assert.ok(p.mesh.size > 1, `${label} gave one device`);
          const parts = divided(p, program.fn);
          const { problems } = shardedProblems(`${name}, ${label}`, program.fn, program.args, parts, loose);
          assert.deepEqual(problems, []);
        }
      });
    }
  }
});

describe("explanations and drawings", () => {
  test("explain() names the choice, the costs and the machine", () => {
    const text = explainPlan(planFor(product(4096, 4096, 4096)));
    assert.match(
      text,
      /^8 devices \(d=8\), split along dimension 0 of a0 \[4096, 4096\]: 172 ms against 1.37 s on one, 8.00x/,
    );
    assert.match(text, /predicted for round numbers/);
    assert.match(text, /d=1 +1.37 s +1.37 s +0 +0 B +one device/);
  });

  test("a grid, replicas, empty devices and pending sums are drawn", () => {
    const grid = Mesh.of({ batch: 2, model: 4 });
    assert.equal(
      drawPlacement(Placement.split(grid, [6, 8], { 0: "batch" }), [6, 8]),
      [
        "[6, 8] as [batch, -] on 8 devices (batch=2 x model=4)",
        "       0..7",
        "     +------+",
        "0..2 | 0-3  |",
        "     +------+",
        "3..5 | 4-7  |",
        "     +------+",
      ].join("\n"),
    );
    const few = drawPlacement(Placement.split(Mesh.of({ d: 4 }), [2], { 0: "d" }), [2]);
    assert.match(few, /nothing on 2, 3/);
    const waits = Placement.split(grid, [4], { 0: "model" }).withPending({ axes: ["batch"], fn: "sum" });
    assert.match(drawPlacement(waits, [4]), /each device of batch holds a part of a sum/);
  });

  test("rates from a file are validated", () => {
    assert.deepEqual(parseRates(JSON.parse(JSON.stringify(machine))), machine);
    assert.throws(() => parseRates({ ...machine, simple: 0 }), /"simple" is 0/);
    assert.throws(() => parseRates({ ...machine, bandwidth: [] }), /curve "bandwidth" has no points/);
    assert.throws(() => parseRates({ ...machine, links: {} }), /link of allReduce is missing/);
    assert.throws(() => parseRates(null), /no object/);
  });
});

test("a slow machine chooses the same plan as a fast one", (context) => {
  const size = { batch: 8, length: 16, width: 32, heads: 2, layers: 1, feedForward: 64, vocabulary: 100, classes: 4 };
  const { fn } = transformerStep(size);
  const outcome = (): string[] =>
    planFor(fn).alternatives.map(({ name, mesh, seconds }) => `${name} ${mesh} ${seconds}`);
  const fast = outcome();
  let now = 0;
  context.mock.method(performance, "now", () => (now += 1e4));
  assert.deepEqual(outcome(), fast);
  assert.ok(
    fast.some((line) => line.includes("searched wider")),
    fast.join("\n"),
  );
});

describe("plans for thousands of devices", () => {
  test("a transformer over 1,024 devices takes seconds, and hardly more than linear time", () => {
    const size = { length: 16, width: 64, heads: 4, layers: 2, feedForward: 128, vocabulary: 50, classes: 2 };
    const { fn } = transformerStep({ batch: 2048, ...size });
    const fast = { ...machine, links: sameLinks([{ members: 4096, latency: 1e-6, bandwidth: 1e11 }]) };
    /** Processor seconds of one plan: other processes do not count. */
    const seconds = (devices: number): number => {
      const before = process.cpuUsage();
      const { mesh } = planSharding(fn, { ranks: range(devices), rates: fast, params: free(fn) });
      assert.equal(mesh.size, devices);
      const { user, system } = process.cpuUsage(before);
      return (user + system) / 1e6;
    };
    seconds(16);
    const few = seconds(64);
    const many = seconds(1024);
    assert.ok(many < 16 * few + 2, `${few} s for 64 devices, ${many} s for 1,024`);
  });

  test("keys of meshes and placements do not grow with the number of devices, and tell them apart", () => {
    const mesh = Mesh.of({ batch: 64, model: 64 });
    const placed = Placement.split(mesh, [1 << 20, 8192], { 0: "batch", 1: "model" });
    assert.ok(placed.key.length < 200, placed.key);
    const keys = [
      Mesh.of({ d: 4 }),
      Mesh.of({ d: 4 }, [0, 1, 2, 4]),
      Mesh.of({ d: 4 }, [3, 2, 1, 0]),
      Mesh.of({ d: 4 }, [0, 2, 1, 3]),
      new Mesh([{ name: "d", size: 4 }], [0, 1, 2, 3], [1, 1, 2, 2]),
      new Mesh([{ name: "d", size: 4 }], [0, 1, 2, 3], [2, 2, 1, 1]),
      new Mesh([{ name: "d", size: 4 }], [0, 1, 2, 3], [1, 2, 2, 2]),
    ].map(({ key }) => key);
    assert.equal(new Set(keys).size, keys.length);
    const bounds = [
      [0, 2, 4, 6, 8],
      [0, 2, 4, 5, 8],
      [0, 1, 4, 6, 8],
      [0, 0, 4, 8, 8],
      [0, 4, 4, 4, 8],
      [0, 2, 2, 6, 8],
    ];
    const line = Mesh.of({ d: 4 });
    const placements = bounds.map((list) => new Placement(line, [{ axes: ["d"], bounds: list }]).key);
    assert.equal(new Set(placements).size, placements.length);
  });
});
