// Attention as one custom op, sharded over devices: every device runs the same op on its examples and heads, results equal
// the unsharded ones, and no data is exchanged. Attention with dropout is not split where the dropout mask would differ.
import assert from "node:assert/strict";
import { test } from "node:test";
import { h200 } from "../cost/index.js";
import { type AttentionKernel, functionOrder, type GraphFn, isOp, type Node, numel } from "../graph/index.js";
import { build, evaluate, factorsOf, fromReals, type Value, verify } from "../ops/index.js";
import { attentionNode, backward, inlineCustom } from "../transform/index.js";
import { gatherValue, runLockstep, scatterValue } from "./lockstep.js";
import { Mesh } from "./mesh.js";
import { partitionFunction } from "./partition.js";
import { Placement } from "./placement.js";
import { planSharding } from "./planner.js";

const [batch, heads, length, size] = [5, 4, 6, 3];
const base: AttentionKernel = {
  kind: "attention",
  gradient: false,
  packed: false,
  scale: 0.5,
  mask: "none",
  dropout: 0,
};

function valueOf({ shape, dtype }: Node, seed: number): Value {
  const numbers = Array.from({ length: numel(shape) }, (_, i) => Math.sin(i * 1.7 + seed));
  if (dtype === "int32")
    return fromReals(
      dtype,
      shape,
      numbers.map((x) => Math.round(x * 1e6)),
    );
  return fromReals(dtype, shape, dtype === "bool" ? numbers.map((x) => Number(x > -0.5)) : numbers);
}

/** The op and its gradients, from queries, keys, values, a cotangent and the extra operands of the kernel. */
function both(kernel: AttentionKernel, keys: number[] = []): GraphFn {
  const tokens = [batch, length, heads, size];
  const operands = kernel.packed
    ? [build.input([batch, length, 3, heads, size], "float32")]
    : [1, 2, 3].map(() => build.input(tokens, "float32"));
  const extra: Node[] = [];
  if (kernel.mask !== "none")
    extra.push(build.input([batch, heads, length, length], kernel.mask === "bool" ? "bool" : "float32"));
  if (kernel.dropout > 0) extra.push(build.input([...keys, 2], "int32"));
  const cotangent = build.input(tokens, "float32");
  const result = build.pick(attentionNode([...operands, ...extra], kernel), 0);
  const grads = backward([result], [cotangent], operands) as Node[];
  return { params: [...operands, ...extra, cotangent], outputs: [result, ...grads] };
}

const customs = (fn: GraphFn): Node<"custom">[] => functionOrder(fn).filter((node) => isOp(node, "custom"));
const hasCollectives = (fn: GraphFn): boolean => functionOrder(fn).some((node) => isOp(node, "collective"));

/** Dimension of each operand that belongs to the factor, where it is not the default. */
function assertSplit(fn: GraphFn, mesh: Mesh, cut: (param: Node, i: number) => Record<number, string>): void {
  const args = fn.params.map(valueOf);
  const expected = evaluate(fn, args);
  const params = fn.params.map((param, i) => Placement.split(mesh, param.shape, cut(param, i)));
  const parts = partitionFunction(fn, { mesh, params });
  assert.deepEqual(parts.moves, [], "nothing is exchanged");
  for (const part of parts.functions) {
    verify(part);
    assert.deepEqual(
      customs(part).map(({ attrs }) => attrs.rule.name),
      ["attention", "attentionGradient"],
    );
    assert.ok(!hasCollectives(part));
    assert.deepEqual(customs(inlineCustom(part)), []);
    // The decomposition that a device without the kernel uses gives the same result.
    const own = part.params.map(valueOf);
    const kept = evaluate(part, own);
    evaluate(inlineCustom(part), own).forEach((value, i) => {
      assert.deepEqual(value, kept[i]);
    });
  }
  const placed = args.map((value, i) => scatterValue(value, params[i]));
  const { results } = runLockstep(
    parts.functions,
    mesh.ranks.map((_, rank) => placed.map((list) => list[rank])),
    mesh.ranks,
  );
  expected.forEach((value, i) => {
    const got = gatherValue(
      results.map((list) => list[i]),
      parts.results[i],
      value.shape,
    );
    assert.ok(!parts.results[i].isReplicated, `result ${i} is split`);
    value.data.forEach((x, at) => {
      assert.ok(Math.abs(Number(got.data[at]) - Number(x)) < 1e-5, `result ${i}, element ${at}`);
    });
  });
}

const headAxis = (param: Node): number => (param.shape.length === 5 ? 3 : param.shape[1] === heads ? 1 : 2);

for (const [name, kernel, keys] of [
  ["plain", base, []],
  ["packed", { ...base, packed: true }, []],
  ["a mask of bools", { ...base, mask: "bool" }, []],
  ["added numbers", { ...base, mask: "float" }, []],
  ["dropout with a key an example", { ...base, dropout: 0.4 }, [batch]],
] as [string, AttentionKernel, number[]][])
  test(`attention split over devices: ${name}`, () => {
    const fn = both(kernel, keys);
    assertSplit(fn, Mesh.of({ d: 2 }), () => ({ 0: "d" }));
    assertSplit(fn, Mesh.of({ d: 3 }), () => ({ 0: "d" }));
    if (kernel.dropout > 0) return;
    assertSplit(fn, Mesh.of({ d: 3 }), (param) => ({ [headAxis(param)]: "d" }));
    assertSplit(fn, Mesh.of({ batch: 2, model: 2 }), (param) => ({ 0: "batch", [headAxis(param)]: "model" }));
  });

test("only independent dimensions may be split", () => {
  const [plain] = customs(both(base));
  assert.deepEqual(
    factorsOf(plain).factors.map((factor) => factor.size),
    [batch, heads],
  );
  const [each] = customs(both({ ...base, dropout: 0.4 }, [batch]));
  assert.deepEqual(
    factorsOf(each).factors.map((factor) => factor.size),
    [batch],
  );
  const [all] = customs(both({ ...base, dropout: 0.4 }));
  assert.deepEqual(factorsOf(all).factors, []);
});

test("a custom function that claims to be attention and is not is rejected", () => {
  const fn = both({ ...base, mask: "float" });
  verify(fn);
  const [node] = customs(fn);
  const forged = (kernel: Partial<AttentionKernel>): GraphFn => {
    const made = build.make("custom", node.inputs, { ...node.attrs, kernel: { ...node.attrs.kernel!, ...kernel } });
    return { params: fn.params, outputs: [build.pick(made, 0)] };
  };
  assert.throws(() => verify(forged({ packed: true })), /are no queries|operands/);
  assert.throws(() => verify(forged({ mask: "none" })), /it has 4 operands and 2 results, not 3 and 2/);
  assert.throws(() => verify(forged({ mask: "bool" })), /should have the shape/);
  assert.throws(() => verify(forged({ scale: Number.NaN })), /its scale is NaN/);
  const [q, k] = [build.input([2, 4, 1, 8], "float32"), build.input([2, 9, 1, 8], "float32")];
  const short = build.input([2, 3, 1, 8], "float32");
  const wrong = attentionNode([q, k, k], base);
  const lies = build.make("custom", [q, k, k, short].slice(0, 3), {
    ...wrong.attrs,
    kernel: { ...base, gradient: true },
  });
  assert.throws(() => verify({ params: [q, k], outputs: [build.pick(lies, 0)] }), /operands/);
});

test("the planner splits GPU attention by examples and estimates its cost", () => {
  const tokens = [64, 512, 8, 64];
  const [q, k, v] = [1, 2, 3].map(() => build.input(tokens, "float32"));
  const fn: GraphFn = { params: [q, k, v], outputs: [build.pick(attentionNode([q, k, v], base), 0)] };
  const made = planSharding(fn, { ranks: [0, 1, 2, 3], rates: h200, params: [null, null, null] });
  assert.equal(made.mesh.size, 4);
  assert.ok(made.single / made.seconds > 2, `${made.single / made.seconds}`);
  // Four FLOPs per pair of query and key and per element of a head.
  const least = (4 * 64 * 512 * 512 * 8 * 64) / 1e15;
  assert.ok(made.single > least, `${made.single} s for ${least}`);
});
