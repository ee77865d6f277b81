import assert from "node:assert/strict";
import { test } from "node:test";
import { type Aval, type GraphFn, Node, type OpAttrs, type OpName, type Scalar } from "../../graph/index.js";
import { evaluate } from "./index.js";
import { aval, complexTensor, numbers, param, runOne, tensor } from "./testkit.js";

/** Nodes are written out by hand here; their generic type is of no interest. */
const node = <K extends OpName>(op: K, inputs: Node[], attrs: OpAttrs[K], avals: Aval | Aval[]): Node =>
  new Node(op, inputs, attrs, avals);
const add = (a: Node, b: Node): Node => node("binary", [a, b], { fn: "add" }, aval(a.shape, a.dtype));
const mul = (a: Node, b: Node): Node => node("binary", [a, b], { fn: "mul" }, aval(a.shape, a.dtype));
const constant = (value: Scalar): Node => node("const", [], { value, dtype: "float32" }, aval([]));

test("constants and iota", () => {
  const complexOne = runOne("const", { value: { re: 1, im: 2 }, dtype: "complex64" }, [], aval([], "complex64"));
  assert.deepEqual(numbers(complexOne), [1, 2]);
  assert.deepEqual(numbers(runOne("const", { value: 0.1, dtype: "float32" }, [], aval([]))), [Math.fround(0.1)]);
  const rows = runOne("iota", { shape: [2, 3], axis: 0, dtype: "int64" }, [], aval([2, 3], "int64"));
  assert.deepEqual(numbers(rows), [0, 0, 0, 1, 1, 1]);
  const columns = runOne("iota", { shape: [2, 3], axis: 1, dtype: "complex64" }, [], aval([2, 3], "complex64"));
  assert.deepEqual(numbers(columns), [0, 0, 1, 0, 2, 0, 0, 0, 1, 0, 2, 0]);
});

test("identities pass values on", () => {
  const x = param([2]);
  const y = node("barrier", [node("alias", [x], { name: "w" }, aval([2]))], { tag: 2 }, aval([2]));
  const [out] = evaluate({ params: [x], outputs: [y] }, [tensor([2], [1, 2])]);
  assert.deepEqual(numbers(out), [1, 2]);
});

/** Body: (rate, state, x) -> (state * rate + x, state). */
function recurrence(length: number, reverse: boolean): GraphFn {
  const [rate, state, x] = [param([]), param([]), param([])];
  const body: GraphFn = { params: [rate, state, x], outputs: [add(mul(state, rate), x), state] };
  const outer = [param([]), param([]), param([length])];
  const attrs = { body, consts: 1, carries: 1, length, reverse };
  const loop = node("scan", outer, attrs, [aval([]), aval([length])]);
  return {
    params: outer,
    outputs: [0, 1].map((index) => node("pick", [loop], { index }, aval(index ? [length] : []))),
  };
}

test("scan carries state and stacks the results of the steps", () => {
  const args = [tensor([], [2]), tensor([], [1]), tensor([3], [10, 20, 30])];
  const [last, states] = evaluate(recurrence(3, false), args);
  assert.deepEqual(numbers(last), [((1 * 2 + 10) * 2 + 20) * 2 + 30]);
  assert.deepEqual(numbers(states), [1, 12, 44]);
  const [lastBack, statesBack] = evaluate(recurrence(3, true), args);
  assert.deepEqual(numbers(lastBack), [((1 * 2 + 30) * 2 + 20) * 2 + 10]);
  assert.deepEqual(numbers(statesBack), [84, 32, 1]);
  const [unmoved, none] = evaluate(recurrence(0, false), [args[0], args[1], tensor([0], [])]);
  assert.deepEqual(numbers(unmoved), [1]);
  assert.deepEqual([none.shape, none.data.length], [[0], 0]);
});

test("custom evaluates its body, with one result or several", () => {
  const [a, b] = [param([], "complex128"), param([], "complex128")];
  const rule = { name: "sumAndProduct", id: 1, backward: () => [null, null] };
  const outer = [param([], "complex128"), param([], "complex128")];
  const args = [complexTensor([], [1, 1]), complexTensor([], [0, 2])];
  const single = node(
    "custom",
    outer,
    { body: { params: [a, b], outputs: [mul(a, b)] }, rule },
    aval([], "complex128"),
  );
  assert.deepEqual(numbers(evaluate({ params: outer, outputs: [single] }, args)[0]), [-2, 2]);
  const both = node("custom", outer, { body: { params: [a, b], outputs: [add(a, b), mul(a, b)] }, rule }, [
    aval([], "complex128"),
    aval([], "complex128"),
  ]);
  const outputs = [1, 0].map((index) => node("pick", [both], { index }, aval([], "complex128")));
  assert.deepEqual(evaluate({ params: outer, outputs }, args).map(numbers), [
    [-2, 2],
    [1, 3],
  ]);
});

test("graphs deeper than the stack, and outputs that are parameters or repeat", () => {
  const x = param([]);
  const one = constant(1);
  let y: Node = x;
  for (let i = 0; i < 100_000; i++) y = add(y, one);
  const [deep, same, again] = evaluate({ params: [x], outputs: [y, x, y] }, [tensor([], [5])]);
  assert.deepEqual([numbers(deep), numbers(same), numbers(again)], [[100_005], [5], [100_005]]);
});

test("a parameter may be any node; what lies below it is not evaluated", () => {
  const leaf = node("data", [], { shape: [], dtype: "float32" }, aval([]));
  const inner = add(leaf, leaf);
  const fn: GraphFn = { params: [inner], outputs: [mul(inner, inner)] };
  assert.deepEqual(numbers(evaluate(fn, [tensor([], [3])])[0]), [9]);
});

test("missing or mistyped values are internal errors", () => {
  const x = param([2]);
  assert.throws(() => evaluate({ params: [], outputs: [x] }, []), /input %\d+ is supplied from outside/);
  const held = node("data", [], { shape: [], dtype: "float32" }, aval([]));
  assert.throws(() => evaluate({ params: [], outputs: [held] }, []), /data %\d+ is supplied from outside/);
  assert.throws(() => evaluate({ params: [x], outputs: [x] }, []), /1 parameters was given 0/);
  assert.throws(() => evaluate({ params: [x], outputs: [x] }, [tensor([3], [1, 2, 3])]), /should be float32\[2\]/);
});
