// Devices of several speeds: shards as large as devices are fast, results equal to those of one device, and slow devices left
// out where that is faster.
import assert from "node:assert/strict";
import { test } from "node:test";
import { h200, type Rates, sameLinks } from "../cost/index.js";
import type { GraphFn } from "../graph/index.js";
import { build } from "../ops/index.js";
import { Mesh } from "./mesh.js";
import { partitionFunction } from "./partition.js";
import { Placement } from "./placement.js";
import { planSharding } from "./planner.js";

const links = (latency: number, bandwidth: number): Rates["links"] => sameLinks([{ members: 8, latency, bandwidth }]);
const rates: Rates = {
  ...h200,
  name: "for a test",
  call: 1e-6,
  kernel: 1e-7,
  matmul: { float32: [[1, 1e9]] },
  bandwidth: [[1, 1e12]],
  links: links(1e-7, 1e12),
};

function rowsTimesWeights(rows: number, inner: number, columns: number): GraphFn {
  const [x, w] = [build.input([rows, inner], "float32"), build.input([inner, columns], "float32")];
  return { params: [x, w], outputs: [build.matmul(x, w)] };
}

test("boundaries follow the speeds, and meshes of other speeds are other meshes", () => {
  const mesh = new Mesh([{ name: "d", size: 3 }], [0, 1, 2], [2, 1, 1]);
  assert.deepEqual(mesh.bounds(100, ["d"]), [0, 50, 75, 100]);
  assert.deepEqual(mesh.bounds(2, ["d"]), [0, 1, 2, 2]);
  assert.deepEqual(mesh.bounds(0, ["d"]), [0, 0, 0, 0]);
  assert.notEqual(mesh.key, Mesh.of({ d: 3 }).key);
  assert.equal(new Mesh([{ name: "d", size: 3 }], [0, 1, 2], [3, 3, 3]).key, Mesh.of({ d: 3 }).key);
  assert.throws(() => new Mesh([{ name: "d", size: 2 }], [0, 1], [1]), /2 devices need 2 speeds/);
  // A part of a grid is as fast as its slowest device.
  const grid = new Mesh(Mesh.of({ a: 2, b: 2 }).axes, [0, 1, 2, 3], [4, 2, 1, 3]);
  assert.deepEqual(grid.partSpeeds(["a"]), [2, 1]);
  assert.deepEqual(grid.partSpeeds(["b"]), [1, 2]);
  const placed = Placement.split(mesh, [100, 3], { 0: "d" });
  assert.equal(Placement.fromJSON(JSON.parse(JSON.stringify(placed))).key, placed.key);
});

test("a fast device gets a larger shard, and the predicted time is that of all speeds together", () => {
  const fn = rowsTimesWeights(600, 64, 64);
  const plan = (speeds: number[]) =>
    planSharding(fn, { ranks: speeds.map((_, i) => i), rates, speeds, params: [null, null] });
  const even = plan([1, 1, 1]);
  const uneven = plan([1, 4, 1]);
  const { functions, params } = partitionFunction(fn, uneven);
  assert.equal(params[0].mesh.size, 3);
  const rowsOf = new Map(uneven.mesh.ranks.map((rank, i) => [rank, functions[i].params[0].shape[0]]));
  assert.deepEqual([rowsOf.get(0), rowsOf.get(1), rowsOf.get(2)], [100, 400, 100]);
  assert.ok(Math.abs(even.seconds / uneven.seconds - 2) < 0.1, `${even.seconds} ${uneven.seconds}`);
  assert.ok(Math.abs(uneven.single / (even.single / 4) - 1) < 0.1);
});

test("a slow device is left out where its share is not worth the communication", () => {
  // Weights are split, and the sum over devices costs more with every member.
  const fn = rowsTimesWeights(8, 4096, 8);
  const slow = {
    ...rates,
    links: sameLinks([2, 3, 4].map((members) => ({ members, latency: members < 4 ? 1e-6 : 2e-4, bandwidth: 1e12 }))),
  };
  const options = { ranks: [0, 1, 2, 3], rates: slow, params: [null, null] };
  const plan = planSharding(fn, { ...options, speeds: [10, 10, 1, 10] });
  assert.deepEqual([...plan.mesh.ranks].sort(), [0, 1, 3]);
});
