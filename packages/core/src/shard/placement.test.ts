import assert from "node:assert/strict";
import { test } from "node:test";
import { type GraphFn, numel, range } from "../graph/index.js";
import { fromReals, type Value, verify } from "../ops/index.js";
import { gatherValue, runLockstep, scatterValue } from "./lockstep.js";
import { evenBounds, Mesh } from "./mesh.js";
import { reshard } from "./partition.js";
import { Placement } from "./placement.js";
import { planReshard } from "./reshard.js";

const grid = Mesh.of({ batch: 2, model: 4 });
const line = Mesh.of({ d: 8 });

test("a mesh maps ranks to grid coordinates", () => {
  assert.deepEqual(grid.coordinates(6), { batch: 1, model: 2 });
  assert.deepEqual(grid.groups(["model"]), [
    [0, 1, 2, 3],
    [4, 5, 6, 7],
  ]);
  assert.deepEqual(grid.groups(["batch"]), [
    [0, 4],
    [1, 5],
    [2, 6],
    [3, 7],
  ]);
  assert.deepEqual(grid.groups(["model", "batch"]), [[0, 4, 1, 5, 2, 6, 3, 7]]);
  assert.equal(String(grid), "batch=2 x model=4");
  assert.throws(() => Mesh.of({ a: 0 }), /axis "a" has 0 devices/);
  assert.throws(() => grid.axis("rows"), /no mesh axis "rows"; the mesh has "batch", "model"/);
  assert.throws(() => Mesh.of({ a: 2 }, [1, 1]), /2 different ranks/);
});

test("13001 rows over 8 devices, and more devices than rows", () => {
  assert.deepEqual(evenBounds(13001, 8), [0, 1626, 3251, 4876, 6501, 8126, 9751, 11376, 13001]);
  const placement = Placement.split(line, [13001, 4], { 0: "d" });
  assert.deepEqual(
    line.ranks.map((rank) => placement.localShape(rank, [13001, 4])[0]),
    [1626, 1625, 1625, 1625, 1625, 1625, 1625, 1625],
  );
  const few = Placement.split(line, [3], { 0: "d" });
  assert.deepEqual(
    line.ranks.map((rank) => few.localShape(rank, [3])[0]),
    [1, 1, 1, 0, 0, 0, 0, 0],
  );
  assert.equal(placement.largestShare([13001, 4]), 6504);
});

test("placements print, reject invalid arguments, and round-trip through JSON", () => {
  const split = Placement.split(grid, [6, 8], { 0: "batch", 1: "model" });
  assert.equal(String(split), "[batch, model]");
  const uneven = new Placement(grid, [{ axes: ["batch"], bounds: [0, 5, 6] }, null], { axes: ["model"], fn: "sum" });
  assert.equal(String(uneven), "[batch(0 5 6), -] +sum over model");
  assert.ok(Placement.fromJSON(JSON.parse(JSON.stringify(uneven))).equals(uneven));
  assert.throws(() => Placement.split(grid, [6, 8], { 0: "batch", 1: "batch" }), /used twice/);
  assert.throws(() => Placement.split(grid, [6], { 2: "batch" }), /no dimension 2/);
  assert.throws(() => new Placement(grid, [{ axes: ["batch"], bounds: [0, 4, 3] }]), /not the boundaries/);
});

/** Kind of each move, and the most bytes that one device receives. */
const moves = (from: Placement, to: Placement, shape: number[]): [string, number][] =>
  planReshard(from, to, shape, "float32").map(({ kind, bytes }) => [kind, bytes]);

test("resharding chooses the collective and counts its bytes", () => {
  const shape = [64, 32];
  const whole = Placement.replicated(line, 2);
  const rows = Placement.split(line, shape, { 0: "d" });
  const columns = Placement.split(line, shape, { 1: "d" });
  const pending = whole.withPending({ axes: ["d"], fn: "sum" });
  const bytes = 64 * 32 * 4;
  assert.deepEqual(moves(whole, rows, shape), [["slice", 0]]);
  assert.deepEqual(moves(rows, whole, shape), [["allGather", (bytes * 7) / 8]]);
  assert.deepEqual(moves(rows, columns, shape), [["allToAll", (bytes / 8) * (7 / 8)]]);
  assert.deepEqual(moves(pending, whole, shape), [["allReduce", (2 * bytes * 7) / 8]]);
  assert.deepEqual(moves(pending, rows, shape), [["reduceScatter", (bytes * 7) / 8]]);
  assert.deepEqual(moves(whole, pending, shape), [["zeros", 0]]);
  const other = new Placement(line, [{ axes: ["d"], bounds: [0, 9, 16, 24, 32, 40, 48, 56, 64] }, null]);
  assert.deepEqual(moves(rows, other, shape), [["exchange", 32 * 4]]);
  assert.deepEqual(moves(rows, rows, shape), []);
});

test("on a grid each axis is resharded independently", () => {
  const shape = [64, 32];
  const rows = Placement.split(grid, shape, { 0: ["batch", "model"] });
  const coarse = Placement.split(grid, shape, { 0: "batch" });
  assert.deepEqual(moves(rows, coarse, shape), [["allGather", 24 * 32 * 4]]);
  assert.deepEqual(moves(coarse, rows, shape), [["slice", 0]]);
  const waits = coarse.withPending({ axes: ["model"], fn: "sum" });
  assert.deepEqual(moves(waits, rows, shape), [["reduceScatter", 3 * 8 * 32 * 4]]);
  const crossed = Placement.split(grid, shape, { 0: "batch", 1: "model" });
  assert.deepEqual(moves(waits, crossed, shape), [["reduceScatter", 3 * 32 * 8 * 4]]);
});

/** A random placement: a dimension or a pending sum for each mesh axis, with random boundaries. */
function anyPlacement(mesh: Mesh, shape: readonly number[], draw: (n: number) => number): Placement {
  const axes = shape.map((): string[] => []);
  const waits: string[] = [];
  for (const { name } of mesh.axes) {
    const choice = draw(shape.length + 2);
    if (choice < shape.length) axes[choice].push(name);
    else if (choice === shape.length) waits.push(name);
  }
  const dims = shape.map((size, i) => {
    if (axes[i].length === 0) return null;
    const parts = mesh.sizeOf(axes[i]);
    const inner = range(parts - 1)
      .map(() => draw(size + 1))
      .sort((a, b) => a - b);
    return { axes: axes[i], bounds: draw(2) === 0 ? evenBounds(size, parts) : [0, ...inner, size] };
  });
  return new Placement(mesh, dims, waits.length === 0 ? null : { axes: waits, fn: "sum" });
}

test("resharding between random placements keeps the values and moves no more bytes than announced", () => {
  let state = 1;
  const draw = (n: number): number => {
    state = (Math.imul(state, 1103515245) + 12345) >>> 0;
    return (state >>> 8) % n;
  };
  const meshes = [Mesh.of({ d: 3 }), line, grid, Mesh.of({ a: 2, b: 2, c: 2 }), Mesh.of({ d: 4 }, [5, 2, 7, 0])];
  for (let trial = 0; trial < 300; trial++) {
    const mesh = meshes[draw(meshes.length)];
    // Sometimes to another mesh.
    const target = draw(4) === 0 ? meshes[draw(meshes.length)] : mesh;
    const shape = [draw(6) + 1, draw(9), draw(3) + 1];
    const from = anyPlacement(mesh, shape, draw);
    const to = target === mesh ? anyPlacement(mesh, shape, draw) : anyPlacement(target, shape, draw).withPending(null);
    const value: Value = fromReals("float32", shape, range(numel(shape)));
    const { functions, moves: steps } = reshard(from, to, shape, "float32");
    const ranks = [...functions.keys()];
    const start = scatterValue(value, from);
    const none = fromReals("float32", [0, 0, 0], []);
    const list = ranks.map((rank) => functions.get(rank) as GraphFn);
    list.forEach(verify);
    const run = runLockstep(
      list,
      ranks.map((rank) => [mesh.has(rank) ? start[mesh.ranks.indexOf(rank)] : none]),
      ranks,
    );
    const results = target.ranks.map((rank) => run.results[ranks.indexOf(rank)][0]);
    assert.deepEqual(gatherValue(results, to, shape).data, value.data, `${from} to ${to} of [${shape}]`);
    const moved = run.traffic.reduce((n, { bytes }) => n + bytes, 0);
    const announced = steps.reduce((n, { total }) => n + total, 0);
    assert.ok(Math.abs(moved - announced) < 1e-6, `${from} to ${to} of [${shape}]: ${moved} bytes, not ${announced}`);
  }
});
