// The graph language itself: promotion, half types, shapes, structural keys, printing.
import assert from "node:assert/strict";
import { test } from "node:test";
import { build } from "../ops/index.js";
import {
  bfloat16Bits,
  bfloat16Value,
  broadcastShapes,
  type DType,
  dtypes,
  float16Bits,
  float16Value,
  type GraphFn,
  Node,
  printGraph,
  promote,
  storedScalar,
  structuralKey,
} from "./index.js";

/** The upper triangle of the promotion table, in the order of `dtypes`. */
const table: Record<DType, string> = {
  bool: "bool int8 uint8 int16 uint16 int32 uint32 int64 uint64 float16 bfloat16 float32 float64 complex64 complex128",
  int8: "int8 int16 int16 int32 int32 int64 int64 float64 float16 bfloat16 float32 float64 complex64 complex128",
  uint8: "uint8 int16 uint16 int32 uint32 int64 uint64 float16 bfloat16 float32 float64 complex64 complex128",
  int16: "int16 int32 int32 int64 int64 float64 float16 bfloat16 float32 float64 complex64 complex128",
  uint16: "uint16 int32 uint32 int64 uint64 float16 bfloat16 float32 float64 complex64 complex128",
  int32: "int32 int64 int64 float64 float16 bfloat16 float32 float64 complex64 complex128",
  uint32: "uint32 int64 uint64 float16 bfloat16 float32 float64 complex64 complex128",
  int64: "int64 float64 float16 bfloat16 float32 float64 complex64 complex128",
  uint64: "uint64 float16 bfloat16 float32 float64 complex64 complex128",
  float16: "float16 float32 float32 float64 complex64 complex128",
  bfloat16: "bfloat16 float32 float64 complex64 complex128",
  float32: "float32 float64 complex64 complex128",
  float64: "float64 complex128 complex128",
  complex64: "complex64 complex128",
  complex128: "complex128",
};

test("promotion: the whole table, both ways round", () => {
  dtypes.forEach((a, i) => {
    table[a].split(" ").forEach((expected, k) => {
      assert.equal(promote(a, dtypes[i + k]), expected, `${a} with ${dtypes[i + k]}`);
      assert.equal(promote(dtypes[i + k], a), expected, `${dtypes[i + k]} with ${a}`);
    });
  });
});

test("promotion is associative, except that uint64 with a signed integer gives float64", () => {
  for (const a of dtypes)
    for (const b of dtypes)
      for (const c of dtypes) {
        const all = [a, b, c];
        if (all.includes("uint64") && all.some((d) => d.startsWith("int"))) continue;
        assert.equal(promote(promote(a, b), c), promote(a, promote(b, c)), `${a}, ${b}, ${c}`);
      }
});

test("half types round to nearest even and keep every value that they have", () => {
  for (let bits = 0; bits < 65536; bits++) {
    const [f, b] = [float16Value(bits), bfloat16Value(bits)];
    if (!Number.isNaN(f)) assert.equal(float16Bits(f), bits);
    if (!Number.isNaN(b)) assert.equal(bfloat16Bits(b), bits);
  }
  assert.equal(float16Value(float16Bits(2049)), 2048);
  assert.equal(float16Value(float16Bits(2051)), 2052);
  assert.equal(float16Value(float16Bits(65519.9)), 65504);
  assert.equal(float16Value(float16Bits(65520)), Number.POSITIVE_INFINITY);
  assert.equal(float16Value(float16Bits(2 ** -25)), 0);
  assert.equal(bfloat16Value(bfloat16Bits(257)), 256);
  assert.equal(bfloat16Value(bfloat16Bits(259)), 260);
  assert.ok(Number.isNaN(float16Value(float16Bits(Number.NaN))));
  assert.ok(Number.isNaN(bfloat16Value(bfloat16Bits(Number.NaN))));
});

test("constants are what their dtype stores", () => {
  const rows: [number, DType, number][] = [
    [0.1, "float32", Math.fround(0.1)],
    [0.1, "float64", 0.1],
    [2049, "float16", 2048],
    [2.9, "int32", 2],
    [-2.9, "int64", -2],
    [300, "uint8", 255],
    [-1, "uint8", 0],
    [Number.NaN, "int32", 0],
    [0.25, "bool", 1],
  ];
  for (const [value, dtype, stored] of rows) assert.equal(storedScalar(value, dtype), stored, `${value} as ${dtype}`);
  assert.deepEqual(storedScalar({ re: 0.1, im: 1 }, "complex64"), { re: Math.fround(0.1), im: 1 });
});

test("shapes broadcast from the last axis", () => {
  assert.deepEqual(broadcastShapes([2, 1, 3], [4, 1]), [2, 4, 3]);
  assert.deepEqual(broadcastShapes([], [2]), [2]);
  assert.deepEqual(broadcastShapes([0], [1]), [0]);
  assert.equal(broadcastShapes([2], [3]), null);
  assert.equal(broadcastShapes([0], [2]), null);
});

const x = (): Node => build.input([2], "float32");
function fn(make: (a: Node, b: Node) => Node): GraphFn {
  const params = [x(), x()];
  return { params, outputs: [make(params[0], params[1])] };
}

test("structural keys: equal for equal structure, whatever the nodes are", () => {
  const sum = () => fn((a, b) => build.scale(build.add(a, b), 2));
  assert.equal(structuralKey(sum()), structuralKey(sum()));
  const others = [
    fn((a, b) => build.scale(build.add(b, a), 2)),
    fn((a, b) => build.scale(build.sub(a, b), 2)),
    fn((a, b) => build.scale(build.add(a, b), 3)),
    fn((a, b) => build.scale(build.add(a, b), Number.NaN)),
    fn((a, b) => build.scale(build.add(a, b), -0)),
    fn((a, b) => build.scale(build.add(a, b), 0)),
    fn((a, b) => build.scale(build.add(a, b), Number.POSITIVE_INFINITY)),
    fn((a) => build.scale(build.add(a, a), 2)),
    fn((a, b) => build.reshape(build.scale(build.add(a, b), 2), [2, 1])),
  ];
  const keys = new Set([sum(), ...others].map(structuralKey));
  assert.equal(keys.size, others.length + 1);
});

test("structural keys: names, rules and the numbers of barriers do not count, which barriers are the same does", () => {
  const barriers = (...tags: number[]) =>
    fn((a, b) => build.add(build.make("barrier", [a], { tag: tags[0] }), build.make("barrier", [b], { tag: tags[1] })));
  assert.equal(structuralKey(barriers(1, 2)), structuralKey(barriers(8, 5)));
  assert.notEqual(structuralKey(barriers(1, 1)), structuralKey(barriers(1, 2)));
  const named = (name: string) => fn((a, b) => build.add(build.make("alias", [a], { name }), b));
  assert.equal(structuralKey(named("weights")), structuralKey(named("")));
});

test("graphs print one line per node", () => {
  const text = printGraph(fn((a, b) => build.sum(build.mul(a, b), [0])));
  assert.equal(
    text,
    [
      "(a0: float32[2], a1: float32[2]) {",
      "  %0 = binary(a0, a1; mul) : float32[2]",
      "  %1 = reduce(%0; sum axes=[0]) : float32[]",
      "  return %1",
      "}",
    ].join("\n"),
  );
});

test("nodes are readonly, and a node of one op is a node", () => {
  const x: Node = new Node("input", [], { shape: [2], dtype: "float32", name: "x" }, { shape: [2], dtype: "float32" });
  // Never called: the compiler checks it.
  const write = (node: Node): void => {
    // @ts-expect-error inputs is readonly.
    node.inputs = [];
    // @ts-expect-error attrs is readonly.
    node.attrs = { fn: "exp" };
    // @ts-expect-error value is readonly.
    node.value = null;
    // @ts-expect-error scope is readonly.
    node.scope = null;
  };
  assert.equal(typeof write, "function");
  assert.equal(x.op, "input");
});
