// Whole programs over several devices: values, local work, and bytes moved. Data parallelism, split weights and split loops
// all follow from the placements of the parameters.
import assert from "node:assert/strict";
import { before, describe, test } from "node:test";
import { functionOrder, type GraphFn, type Node } from "../graph/index.js";
import * as weft from "../index.js";
import { ReferenceDevice, type Tensor, useDevice } from "../index.js";
import { evaluate, type Value } from "../ops/index.js";
import { Mesh, type Partitioned, Placement, partitionFunction } from "../shard/index.js";
import { simplify } from "../transform/index.js";
import { loopGradient, mlpStep, type Program, stoppingGradient, transformerStep } from "./programs.js";
import { runSharded, shardedProblems } from "./sharded.js";
import { trace } from "./traced.js";

const opsOf = (fn: GraphFn, op: string): Node[] => functionOrder(fn).filter((node) => node.op === op);

/** Data split along its first dimension, everything else replicated. */
function dataParallel({ fn, data }: Program, mesh: Mesh, axis: string): Placement[] {
  const first = fn.params.length - data;
  return fn.params.map((param, i) =>
    i < first ? Placement.replicated(mesh, param.shape.length) : Placement.split(mesh, param.shape, { 0: axis }),
  );
}

function expectEqual(program: Program, parts: Partitioned, loose = 1): ReturnType<typeof runSharded> {
  const { problems, run } = shardedProblems("program", program.fn, program.args, parts, loose);
  assert.deepEqual(problems, []);
  return run;
}

describe("training steps", () => {
  before(() => void useDevice(new ReferenceDevice()));

  for (const devices of [2, 3, 8]) {
    test(`an MLP with 13 rows over ${devices} devices: one all-reduce of all gradients`, () => {
      const program = mlpStep(13, 6, 10, 3);
      const mesh = Mesh.of({ d: devices });
      const parts = partitionFunction(program.fn, { mesh, params: dataParallel(program, mesh, "d") });
      const run = expectEqual(program, parts, 8);
      assert.deepEqual(
        run.traffic.map(({ kind }) => kind),
        ["allReduce"],
      );
      // The loss is included: 4 bytes. All devices together receive 2 (n - 1) times what is reduced.
      assert.equal(run.bytes, 2 * (devices - 1) * (program.weights + 4));
      // Each device multiplies its own rows only.
      parts.functions.forEach((fn, rank) => {
        const rows = parts.params[parts.params.length - 1].localShape(rank, [13])[0];
        assert.ok(
          opsOf(fn, "matmul").some(({ inputs: [x] }) => x.shape[0] === rows && x.shape[1] === 6),
          `rank ${rank} multiplies ${rows} rows`,
        );
      });
      assert.ok(parts.results.every((placement) => placement.isReplicated));
    });
  }

  test("buckets join small all-reduces and change no number", () => {
    const program = mlpStep(12, 6, 10, 3);
    const mesh = Mesh.of({ d: 4 });
    const params = dataParallel(program, mesh, "d");
    const joined = expectEqual(program, partitionFunction(program.fn, { mesh, params }), 8);
    const apart = expectEqual(program, partitionFunction(program.fn, { mesh, params, bucketBytes: 0 }), 8);
    assert.equal(joined.traffic.length, 1);
    assert.equal(apart.traffic.length, 5);
    assert.equal(joined.bytes, apart.bytes);
    assert.deepEqual(joined.results, apart.results);
  });

  test("a transformer's Adam step over 4 devices moves its gradients once", () => {
    const size = { batch: 6, length: 5, width: 8, heads: 2, layers: 2, feedForward: 12, vocabulary: 11, classes: 3 };
    const program = transformerStep(size);
    const mesh = Mesh.of({ d: 4 });
    const parts = partitionFunction(program.fn, { mesh, params: dataParallel(program, mesh, "d") });
    const run = expectEqual(program, parts, 200);
    assert.deepEqual(
      run.traffic.map(({ kind }) => kind),
      ["allReduce"],
    );
    assert.equal(run.bytes, 2 * 3 * (program.weights + 4));
  });

  test("a transformer on a 2 x 4 mesh: batch by heads", () => {
    const size = { batch: 4, length: 3, width: 8, heads: 4, layers: 1, feedForward: 8, vocabulary: 7, classes: 3 };
    const program = transformerStep(size);
    const mesh = Mesh.of({ batch: 2, model: 4 });
    const params = dataParallel(program, mesh, "batch").map((placement, i) => {
      const { shape } = program.fn.params[i];
      // Wide weights are split along their rows.
      return shape.length === 2 && shape[0] % 4 === 0 && shape[0] >= 8 && placement.isReplicated
        ? Placement.split(mesh, shape, { 0: "model" })
        : placement;
    });
    assert.ok(params.filter((placement) => placement.splitAxes.includes("model")).length >= 12);
    const parts = partitionFunction(program.fn, { mesh, params });
    const run = expectEqual(program, parts, 200);
    assert.ok(run.bytes > 0);
  });

  test("the gradient of a loop over 11 examples: the loops stay apart, their sums meet once", () => {
    const program = loopGradient(11, 3, 4);
    for (const devices of [2, 3, 8]) {
      const mesh = Mesh.of({ d: devices });
      const parts = partitionFunction(program.fn, { mesh, params: dataParallel(program, mesh, "d") });
      const run = expectEqual(program, parts, 20);
      assert.deepEqual(
        run.traffic.map(({ kind }) => kind),
        ["allReduce"],
      );
      assert.equal(run.bytes, 2 * (devices - 1) * (3 * 3 + 1) * 4);
      parts.functions.forEach((fn, rank) => {
        const rows = parts.params[1].localShape(rank, [11, 3])[0];
        const loops = opsOf(fn, "scan");
        assert.equal(loops.length, 2);
        for (const loop of loops) assert.ok(loop.inputs.some(({ shape }) => shape[0] === rows));
      });
      assert.equal(String(parts.results[2]), String(parts.params[1]));
    }
  });

  test("loops that stop and branches run on each device's own examples", () => {
    const program = stoppingGradient(11, 3);
    for (const devices of [2, 3, 8]) {
      const mesh = Mesh.of({ d: devices });
      const parts = partitionFunction(program.fn, { mesh, params: dataParallel(program, mesh, "d") });
      const run = expectEqual(program, parts, 20);
      // Loss and gradients of the weights are summed; the reverse loop needs the number of steps of each example.
      assert.equal(run.bytes, 2 * (devices - 1) * (3 * 3 + 1) * 4 + (devices - 1) * 11 * 4);
    }
  });

  test("nothing is split, nothing moves", () => {
    const program = mlpStep(8, 4, 4, 2);
    const mesh = Mesh.of({ d: 4 });
    const params = program.fn.params.map(({ shape }) => Placement.replicated(mesh, shape.length));
    const run = expectEqual(program, partitionFunction(program.fn, { mesh, params }), 4);
    assert.deepEqual(run.traffic, []);
  });
});

/** A function of tensors as a graph. */
function graph(fn: (...x: Tensor[]) => Tensor | Tensor[], ...shapes: number[][]): { fn: GraphFn; args: Value[] } {
  const inputs = shapes.map((shape, i) => weft.randn(shape, { seed: i }));
  const traced = trace((...x) => [fn(...x)].flat(), inputs);
  return { fn: simplify(traced.fn), args: traced.args };
}

describe("single patterns", () => {
  before(() => void useDevice(new ReferenceDevice()));
  const mesh = Mesh.of({ d: 4 });

  test("columns then rows: two products, one all-reduce of the result", () => {
    const { fn, args } = graph((x, a, b) => weft.matmul(weft.tanh(weft.matmul(x, a)), b), [6, 8], [8, 12], [12, 5]);
    const params = [
      Placement.replicated(mesh, 2),
      Placement.split(mesh, [8, 12], { 1: "d" }),
      Placement.split(mesh, [12, 5], { 0: "d" }),
    ];
    const parts = partitionFunction(fn, { mesh, params });
    const { problems, run } = shardedProblems("columns then rows", fn, args, parts, 4);
    assert.deepEqual(problems, []);
    assert.deepEqual(run.traffic, [{ kind: "allReduce", bytes: 2 * 3 * 6 * 5 * 4 }]);
  });

  test("a sum that is pending passes through linear ops, and is scattered where it is cut again", () => {
    const { fn, args } = graph((x, a) => weft.matmul(x, a).mul(0.5).transpose().neg(), [8, 6], [6, 4]);
    const params = [Placement.split(mesh, [8, 6], { 1: "d" }), Placement.split(mesh, [6, 4], { 0: "d" })];
    const waiting = partitionFunction(fn, { mesh, params, results: [Placement.split(mesh, [4, 8], { 1: "d" })] });
    const { problems, run } = shardedProblems("scattered", fn, args, waiting, 4);
    assert.deepEqual(problems, []);
    assert.deepEqual(run.traffic, [{ kind: "reduceScatter", bytes: 3 * 4 * 8 * 4 }]);
  });

  test("13001 rows over 8 devices", () => {
    const eight = Mesh.of({ d: 8 });
    const { fn, args } = graph((x, a) => weft.matmul(x, a).relu().sum(1), [13001, 3], [3, 2]);
    const params = [Placement.split(eight, [13001, 3], { 0: "d" }), Placement.replicated(eight, 2)];
    const parts = partitionFunction(fn, { mesh: eight, params });
    const { problems, run } = shardedProblems("13001", fn, args, parts, 4);
    assert.deepEqual(problems, []);
    assert.deepEqual(run.traffic, []);
    assert.deepEqual(
      parts.functions.map(({ outputs: [y] }) => y.shape[0]),
      [1626, 1625, 1625, 1625, 1625, 1625, 1625, 1625],
    );
  });

  test("slices and padding along the cut axis move nothing", () => {
    const { fn, args } = graph((x) => weft.pad(x.slice([1], [9]), [[2, 3]]), [10]);
    const parts = partitionFunction(fn, { mesh, params: [Placement.split(mesh, [10], { 0: "d" })] });
    const { problems, run } = shardedProblems("window", fn, args, parts);
    assert.deepEqual(problems, []);
    assert.deepEqual(run.traffic, []);
    assert.equal(String(parts.results[0]), "[d(0 4 7 9 13)]");
  });

  test("a table of rows on several devices answers lookups with one all-reduce", () => {
    const table = weft.randn([10, 3], { seed: 1 });
    const ids = weft.randint(-3, 14, [7], { seed: 2 });
    const traced = trace((t, i) => [weft.take(t, i, 0)], [table, ids]);
    const fn = simplify(traced.fn);
    const params = [Placement.split(mesh, [10, 3], { 0: "d" }), Placement.replicated(mesh, 1)];
    const { problems, run } = shardedProblems("lookup", fn, traced.args, partitionFunction(fn, { mesh, params }));
    assert.deepEqual(problems, []);
    assert.deepEqual(run.traffic, [{ kind: "allReduce", bytes: 2 * 3 * 7 * 3 * 4 }]);
  });

  test("random numbers do not depend on how they are split", () => {
    const key = weft.key(7);
    for (const devices of [2, 3, 8]) {
      const line = Mesh.of({ d: devices });
      const traced = trace(
        (x) => [weft.randn([7, 5], { key }).mul(x), weft.rand([7, 5], { key }), weft.dropoutMask([7, 5], 0.4, key)],
        [weft.ones([7, 5])],
      );
      const fn = simplify(traced.fn);
      const params = fn.params.map(({ shape }) =>
        shape.length === 2 ? Placement.split(line, shape, { 0: "d" }) : Placement.replicated(line, shape.length),
      );
      const strategy = (node: Node) => (node.op === "random" ? { split: { d: 1 }, carry: [] } : null);
      const parts = partitionFunction(fn, { mesh: line, params, strategy });
      for (const { functions: list } of [parts])
        list.forEach((f, rank) => {
          const width = Placement.split(line, [7, 5], { 1: "d" }).localShape(rank, [7, 5])[1];
          for (const draw of opsOf(f, "random")) assert.deepEqual(draw.shape, [7, width]);
        });
      const run = runSharded(fn, traced.args, parts);
      const whole = evaluate(fn, traced.args);
      run.results.forEach((result, i) => {
        assert.deepEqual(result.data, Array.from(whole[i].data as Float32Array));
      });
    }
  });
});
