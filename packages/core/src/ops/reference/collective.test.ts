import assert from "node:assert/strict";
import { test } from "node:test";
import {
  bareCollective,
  type DType,
  type GraphFn,
  type OpAttrs,
  printGraph,
  type Shape,
  structuralKey,
} from "../../graph/index.js";
import { batchRules } from "../batch.js";
import { build, make } from "../index.js";
import { verify } from "../verify.js";
import { vjpRules } from "../vjp.js";
import { combine, groupMembers } from "./collective.js";
import { evaluate } from "./evaluate.js";
import { numbers, tensor } from "./testkit.js";
import type { CollectiveGroup } from "./value.js";

type Attrs = OpAttrs["collective"];

const attrsOf = (kind: Attrs["kind"], rank: number, shape: Shape, extra: Partial<Attrs> = {}): Attrs => ({
  ...bareCollective,
  kind,
  groups: [[0, 1, 2]],
  rank,
  shape,
  dtype: "float32",
  ...extra,
});

/** One collective as a function, verified. */
function graphOf(attrs: Attrs, shape: Shape, dtype: DType = "float32"): GraphFn {
  const x = build.input(shape, dtype);
  const fn = { params: [x], outputs: [make("collective", [x], attrs)] };
  verify(fn);
  return fn;
}

const run = (attrs: Attrs[], inputs: ReturnType<typeof tensor>[]): number[][] => {
  attrs.forEach((a, i) => {
    graphOf(a, inputs[i].shape);
  });
  return combine(attrs, inputs).map(numbers);
};

test("allReduce reduces by each function", () => {
  const inputs = [tensor([2], [1, 5]), tensor([2], [2, 4]), tensor([2], [3, 6])];
  const by = (fn: Attrs["fn"]): number[][] =>
    run(
      [0, 1, 2].map((rank) => attrsOf("allReduce", rank, [2], { fn })),
      inputs,
    );
  assert.deepEqual(by("sum"), [
    [6, 15],
    [6, 15],
    [6, 15],
  ]);
  assert.deepEqual(by("max")[1], [3, 6]);
  assert.deepEqual(by("min")[2], [1, 4]);
  assert.deepEqual(by("prod")[0], [6, 120]);
});

test("allGather and reduceScatter take uneven and empty parts along any axis", () => {
  const sizes = [2, 0, 1];
  const parts = [tensor([2, 2], [1, 2, 4, 5]), tensor([2, 0], []), tensor([2, 1], [3, 6])];
  const gathered = run(
    [0, 1, 2].map((rank) => attrsOf("allGather", rank, [2, 3], { axis: 1, sizes })),
    parts,
  );
  for (const all of gathered) assert.deepEqual(all, [1, 2, 3, 4, 5, 6]);
  const whole = tensor([2, 3], [1, 2, 3, 4, 5, 6]);
  const scattered = run(
    sizes.map((size, rank) => attrsOf("reduceScatter", rank, [2, size], { axis: 1, sizes })),
    [whole, whole, whole],
  );
  assert.deepEqual(scattered, [[3, 6, 12, 15], [], [9, 18]]);
});

test("allToAll turns rows into columns", () => {
  const sizes = [1, 2, 0];
  const splitSizes = [1, 1, 2];
  const rows = [tensor([1, 4], [0, 1, 2, 3]), tensor([2, 4], [4, 5, 6, 7, 8, 9, 10, 11]), tensor([0, 4], [])];
  const columns = run(
    splitSizes.map((size, rank) => attrsOf("allToAll", rank, [3, size], { axis: 0, sizes, splitAxis: 1, splitSizes })),
    rows,
  );
  assert.deepEqual(columns, [
    [0, 4, 8],
    [1, 5, 9],
    [2, 3, 6, 7, 10, 11],
  ]);
});

test("exchange moves boxes, several between one pair, and leaves zeros elsewhere", () => {
  const groups = [[1, 0]];
  const box = (rank: number, start: number, stop: number) => ({ rank, start: [start], stop: [stop] });
  const attrs = [
    attrsOf("exchange", 1, [4], { groups, sends: [box(0, 0, 1), box(0, 2, 3)], receives: [box(0, 1, 3)] }),
    attrsOf("exchange", 0, [3], {
      groups,
      sends: [box(1, 1, 3), box(0, 0, 1)],
      receives: [box(1, 2, 3), box(1, 0, 1), box(0, 1, 2)],
    }),
  ];
  const results = run(attrs, [tensor([3], [1, 2, 3]), tensor([3], [4, 5, 6])]);
  assert.deepEqual(results, [
    [0, 5, 6, 0],
    [3, 4, 1],
  ]);
  const wrong = [attrs[0], { ...attrs[1], receives: [box(1, 0, 2)] }];
  assert.throws(
    () => combine(wrong, [tensor([3], [1, 2, 3]), tensor([3], [4, 5, 6])]),
    /expects box 0 of rank 1 to be \[2\]/,
  );
});

test("the evaluator calls its group, also inside loops, and throws without one", () => {
  const carry = build.input([2], "float32");
  const x = build.input([2], "float32");
  const total = make("collective", [build.add(carry, x)], attrsOf("allReduce", 1, [2]));
  const loop = make("scan", [build.input([2], "float32"), build.input([3, 2], "float32")], {
    body: { params: [carry, x], outputs: [total] },
    consts: 0,
    carries: 1,
    length: 3,
    reverse: false,
  });
  const fn = { params: loop.inputs as never, outputs: [build.pick(loop, 0)] };
  let calls = 0;
  const doubling: CollectiveGroup = {
    collective(attrs, input, output) {
      assert.equal(attrs.kind, "allReduce");
      calls++;
      const from = new Float32Array(input.buffer, input.byteOffset, input.byteLength / 4);
      new Float32Array(output.buffer, output.byteOffset, output.byteLength / 4).set(from.map((v) => 2 * v));
    },
  };
  const args = [tensor([2], [1, 2]), tensor([3, 2], [1, 1, 1, 1, 1, 1])];
  assert.deepEqual(numbers(evaluate(fn, args, doubling)[0]), [22, 30]);
  assert.equal(calls, 3);
  assert.throws(() => evaluate(fn, args), /allReduce #0 runs on a device that is in no group/);
});

test("the verifier rejects invalid collectives", () => {
  const bad = (attrs: Attrs, shape: Shape, reason: RegExp, dtype: DType = "float32"): void =>
    assert.throws(() => graphOf(attrs, shape, dtype), reason);
  bad(attrsOf("allReduce", 3, [2]), [2], /rank 3 is in none of the groups/);
  bad(attrsOf("allReduce", 0, [2], { groups: [[0, 1], [1]] }), [2], /overlap/);
  bad(attrsOf("allReduce", 0, [3]), [2], /its result is float32\[3\] and should be float32\[2\]/);
  bad(attrsOf("allReduce", 0, [2], { fn: "max", dtype: "complex64" }), [2], /max is not defined/, "complex64");
  bad(attrsOf("allGather", 0, [4], { sizes: [2, 2] }), [2], /sizes \[2,2\] are not those of 3 members/);
  bad(attrsOf("allGather", 0, [4], { sizes: [1, 2, 1] }), [2], /has not 1 along axis 0/);
  bad(attrsOf("reduceScatter", 0, [1], { sizes: [1, 2, 2] }), [4], /is not cut into \[1,2,2\]/);
  bad(attrsOf("allToAll", 0, [4, 1], { axis: 1, splitAxis: 1 }), [2, 2], /axes \[1,1\] repeat/);
  bad(attrsOf("exchange", 0, [2], { sends: [{ rank: 7, start: [0], stop: [1] }] }), [2], /rank 7, which is not/);
  bad(attrsOf("exchange", 0, [2], { receives: [{ rank: 1, start: [1], stop: [3] }] }), [2], /not a box of \[2\]/);
});

test("keys and printed graphs distinguish collectives", () => {
  const a = graphOf(attrsOf("allReduce", 0, [2]), [2]);
  assert.equal(structuralKey(a), structuralKey(graphOf(attrsOf("allReduce", 0, [2]), [2])));
  for (const other of [
    attrsOf("allReduce", 0, [2], { fn: "max" }),
    attrsOf("allReduce", 0, [2], { sequence: 1 }),
    attrsOf("allReduce", 1, [2]),
  ])
    assert.notEqual(structuralKey(a), structuralKey(graphOf(other, [2])));
  const gather = attrsOf("allGather", 4, [5], {
    groups: [
      [0, 2],
      [1, 4],
    ],
    sizes: [3, 2],
    sequence: 7,
  });
  assert.match(
    printGraph(graphOf(gather, [2])),
    /collective\(a0; allGather axis=0 sizes=\[3,2\] of \[1,4\] #7\) : float32\[5\]/,
  );
  assert.deepEqual(groupMembers(gather), [1, 4]);
});

test("gradients and vmap of collectives throw clear errors", () => {
  assert.throws(() => vjpRules.collective({} as never, [], []), /differentiate the function first/);
  assert.throws(() => batchRules.collective({} as never), /map the function first/);
});
