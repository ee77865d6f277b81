// Work counts of the kernels of CPU programs against counts by hand; cost estimates are based on them. Nothing is compiled.
import assert from "node:assert/strict";
import { test } from "node:test";
import type { KernelWork } from "../../cost/index.js";
import { bareCollective, type GraphFn, type Node } from "../../graph/index.js";
import { build, make } from "../../ops/index.js";
import { CpuDevice } from "./index.js";

const input = (...shape: number[]): Node => build.input(shape, "float32");
const works = (params: Node[], ...outputs: Node[]): KernelWork[] => {
  const fn: GraphFn = { params, outputs };
  return CpuDevice.kernelsOf(fn).map(({ work }) => work!);
};
const bytes = ({ touches }: KernelWork): number[] => touches.map((touch) => touch.bytes).sort((a, b) => a - b);

test("a fused kernel counts every operation once per element, and its memory once", () => {
  const [x, y] = [input(4096), input(4096)];
  const [work, ...rest] = works([x, y], build.add(build.unary("exp", x), build.div(x, y)));
  assert.equal(rest.length, 0);
  // Two loads and a store at half an operation each, and the addition.
  assert.deepEqual(work.ops, { simple: 4096 * 2.5, exp: 4096, divide: 4096 });
  assert.deepEqual(bytes(work), [16384, 16384, 16384]);
  assert.deepEqual(work.touches.map(({ place }) => place).sort(), ["b[0]", "b[1]", "b[2]"]);
  assert.equal(work.rows, 0);
});

test("a row that is read in two passes is counted twice, its special functions once", () => {
  const x = input(64, 32);
  const most = build.unreduce(build.reduce("max", x, [1]), x.shape, [1]);
  const raised = build.unary("exp", build.sub(x, most));
  const sum = build.unreduce(build.sum(raised, [1]), x.shape, [1]);
  const [work, ...rest] = works([x], build.div(raised, sum));
  assert.equal(rest.length, 0);
  assert.equal(work.ops.exp, 64 * 32);
  assert.deepEqual(bytes(work), [64 * 32 * 4, 64 * 32 * 4]);
  // Rows of whole vectors cost nothing by themselves, others do: one pass each for the maximum, the sum and the result.
  assert.equal(work.rows, 0);
  const odd = input(64, 10);
  const [ragged] = works([odd], build.sum(odd, [1]));
  assert.equal(ragged.rows, 64);
});

test("products say how their operands lie, and an epilogue adds its arithmetic", () => {
  const [a, b, bias] = [input(256, 64), input(64, 32), input(32)];
  const shape = { dtype: "float32", batch: 1, m: 256, n: 32, k: 64, left: false, right: false, spread: false };
  const [plain] = works([a, b], build.matmul(a, b));
  assert.deepEqual(plain.product, shape);
  assert.deepEqual(bytes(plain), [64 * 32 * 4, 256 * 32 * 4, 256 * 64 * 4]);
  const turned = input(32, 64);
  const [right] = works([a, turned], build.matmul(a, build.transpose(turned)));
  assert.deepEqual(right.product, { ...shape, right: true });
  const lying = input(64, 256);
  const [left] = works([lying, b], build.matmul(build.transpose(lying), b));
  assert.deepEqual(left.product, { ...shape, left: true });
  const [biased, ...rest] = works([a, b, bias], build.add(build.matmul(a, b), build.expandTo(bias, [256, 32])));
  assert.equal(rest.length, 0);
  assert.deepEqual(biased.product, shape);
  assert.ok((biased.ops.simple ?? 0) >= 256 * 32);
  // The product's own memory is the result's: counted once.
  assert.equal(biased.touches.length, 4);
});

test("rows of one head lie apart", () => {
  const [scores, values] = [input(2, 4, 16, 16), input(2, 16, 4, 96)];
  const head = build.permute(build.sliceAxis(values, 3, 64, 96), [0, 2, 1, 3]);
  const [work] = works([scores, values], build.matmul(scores, head));
  assert.deepEqual(work.product, {
    dtype: "float32",
    batch: 8,
    m: 16,
    n: 32,
    k: 16,
    left: false,
    right: false,
    spread: true,
  });
  assert.equal(work.touches[1].run, 32 * 4);
});

test("sums down columns are narrow, lookups and random numbers are counted by themselves", () => {
  const x = input(1024, 64);
  const [columns] = works([x], build.sum(x, [0]));
  assert.equal(columns.touches[0].run, 32 * 4);
  const indices = build.input([512], "int32");
  const table = input(4096);
  const [lookup] = works([table, indices], build.gather(table, indices, 0, 0));
  assert.equal(lookup.ops.lookup, 512);
  const key = build.input([2], "int32");
  const [random] = works([key], make("random", [key], { kind: "normal", shape: [1000], dtype: "float32" }));
  assert.equal(random.ops.normal, 1000);
  const updates = input(512, 8);
  const zeros = build.full([100, 8], 0, "float32");
  const [scatter] = works([indices, updates], build.scatterAdd(zeros, indices, updates, 0, 0));
  assert.deepEqual(scatter.ops, { lookup: 512, simple: 2 * 512 * 8 });
});

test("what a collective receives is known", () => {
  const operand = input(1000);
  const attrs = {
    ...bareCollective,
    kind: "allReduce",
    groups: [[0, 1, 2, 3]],
    rank: 0,
    shape: [1000],
    dtype: "float32",
  } as const;
  const moved = make("collective", [operand], attrs as never);
  const all = works([operand], moved);
  const [work] = all.filter(({ collective }) => collective !== undefined);
  assert.deepEqual(work.collective, { kind: "allReduce", members: 4, bytes: (2 * 3 * 4000) / 4 });
});
