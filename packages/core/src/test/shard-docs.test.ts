// Checks docs/sharding.md: every figure and drawing of its worked example is recomputed here.
import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { h200, type Rates, sameLinks } from "../cost/index.js";
import { type GraphFn, range } from "../graph/index.js";
import { build } from "../ops/index.js";
import {
  drawPlacement,
  explainPlan,
  Mesh,
  Placement,
  partitionFunction,
  planSharding,
  type ShardingPlan,
  simulate,
  simulateCounts,
  simulatedTable,
} from "../shard/index.js";

const page = fileURLToPath(new URL("../../../../docs/sharding.md", import.meta.url));
const needsPage = existsSync(join(page)) ? {} : { skip: "no repository here" };
const text = existsSync(page) ? readFileSync(page, "utf8") : "";

const holds = (part: string): void => assert.ok(text.includes(part), `docs/sharding.md should have\n${part}`);

const machine: Rates = {
  name: "a machine of round numbers",
  assumed: true,
  matmul: { float32: [[1, 100e9]] },
  linalg: 1e9,
  bandwidth: [[1, 10e9]],
  simple: 10e9,
  special: 1e9,
  lookup: 1e9,
  random: 1e9,
  kernel: 1e-6,
  call: 10e-6,
  links: sameLinks([{ members: 8, latency: 10e-6, bandwidth: 1e9 }]),
};

/** relu(x a) b. */
function block(batch: number, width: number, hidden: number): GraphFn {
  const x = build.input([batch, width], "float32");
  const a = build.input([width, hidden], "float32");
  const b = build.input([hidden, width], "float32");
  const product = build.matmul(x, a);
  return { params: [x, a, b], outputs: [build.matmul(build.binary("max", product, build.fullLike(product, 0)), b)] };
}

const planOf = (fn: GraphFn): ShardingPlan =>
  planSharding(fn, { ranks: range(8), rates: machine, params: fn.params.map(() => null) });
const partsOf = (fn: GraphFn, p: ShardingPlan) =>
  partitionFunction(fn, { mesh: p.mesh, params: p.params, strategy: p.strategy, results: p.results });

test("the example with a large batch is as documented", needsPage, () => {
  const fn = block(4096, 1024, 4096);
  const p = planOf(fn);
  holds(explainPlan(p));
  // By hand: two products of 2 * 4096 * 1024 * 4096 operations, an eighth each.
  const products = (2 * 2 * 4096 * 1024 * 4096) / 8 / 100e9;
  assert.ok(Math.abs(p.seconds - products) < 0.05 * products);
  assert.equal(partsOf(fn, p).moves.length, 0);
});

test("the example with a small batch is as documented", needsPage, () => {
  const fn = block(4, 1024, 4096);
  const p = planOf(fn);
  const parts = partsOf(fn, p);
  holds(explainPlan(p, parts.moves));
  // By hand: the weights are read once, an eighth on each device, at 10 GB/s; then 4 x 1024 numbers are reduced.
  const reading = (2 * 1024 * 4096 * 4) / 8 / 10e9;
  const together = 10e-6 + (2 * 7 * 4 * 1024 * 4) / 8 / 1e9;
  assert.ok(Math.abs(p.seconds - reading - together) < 0.05 * p.seconds);
  assert.deepEqual(
    parts.moves.map(({ kind, bytes }) => [kind, bytes]),
    [["allReduce", 28672]],
  );
});

test("a tiny layer stays on one device", needsPage, () => {
  holds(explainPlan(planOf(block(4, 64, 64))));
});

test("placements are drawn as documented", needsPage, () => {
  const grid = Mesh.of({ batch: 2, model: 4 });
  holds(drawPlacement(Placement.split(grid, [13, 8], { 0: "batch", 1: "model" }), [13, 8]));
  holds(drawPlacement(Placement.split(grid, [13, 8], { 1: "batch" }), [13, 8]));
});

test("the simulated table is as documented", needsPage, () => {
  const a = build.input([16384, 16384], "float32");
  const b = build.input([16384, 16384], "float32");
  const rows = simulateCounts("16384 x 16384", { params: [a, b], outputs: [build.matmul(a, b)] }, [1, 2, 4, 8], h200);
  const table = simulatedTable(rows, h200);
  for (const line of table.split("\n")) assert.match(line, /^simulated {2}/);
  holds(table);
});

test("the simulation agrees with the estimated cost without overlap, and overlap hides communication", () => {
  for (const fn of [block(4096, 1024, 4096), block(4, 1024, 4096)]) {
    const p = planOf(fn);
    const { seconds, ranks, collectives } = simulate(partsOf(fn, p), machine, { overlap: false });
    assert.ok(Math.abs(seconds - p.seconds) < 0.02 * p.seconds, `${seconds} and ${p.seconds}`);
    assert.equal(ranks.length, 8);
    const talking = collectives.reduce((n, c) => n + c.seconds, 0);
    for (const { exposed } of ranks) assert.ok(Math.abs(exposed - talking) < 1e-9);
  }
  // Two independent chains: while the first one's sum is reduced, the second one is computed.
  const x = build.input([64, 1 << 16], "float32");
  const w = build.input([1 << 16, 64], "float32");
  const z = build.input([2048, 2048], "float32");
  const fn = { params: [x, w, z], outputs: [build.matmul(x, w), build.matmul(z, z)] };
  const mesh = Mesh.of({ d: 2 });
  const params = [
    Placement.split(mesh, x.shape, { 1: "d" }),
    Placement.split(mesh, w.shape, { 0: "d" }),
    Placement.replicated(mesh, 2),
  ];
  const slow = { ...machine, links: sameLinks([{ members: 2, latency: 0.01, bandwidth: 1e9 }]) };
  const parts = partitionFunction(fn, { mesh, params });
  const serial = simulate(parts, slow, { overlap: false });
  const overlapped = simulate(parts, slow, { overlap: true });
  assert.ok(Math.abs(serial.seconds - overlapped.seconds - serial.collectives[0].seconds) < 1e-9);
});
