import assert from "node:assert/strict";
import { test } from "node:test";
import {
  type Aval,
  binaryFns,
  type DType,
  type GraphFn,
  Node,
  type OpAttrs,
  type OpName,
  type Shape,
  unaryFns,
} from "../graph/index.js";
import { build, evaluate, fromReals, make, verify } from "./index.js";

const input = (shape: Shape, dtype: DType = "float32"): Node => build.input(shape, dtype);

/** A node made past the shape rules, with whatever it claims to be. */
const forged = <K extends OpName>(op: K, inputs: Node[], attrs: OpAttrs[K], avals: Aval | Aval[]): Node =>
  new Node(op, inputs, attrs, avals);

const f32 = (...shape: number[]): Aval => ({ shape, dtype: "float32" });

/** The function of the given parameters; what is not among them is not closed over. */
const fn = (params: Node[], ...outputs: Node[]): GraphFn => ({ params, outputs });

/** One forged node over parameters must be refused, by name and with the reason. */
function refuses<K extends OpName>(
  op: K,
  operands: Node[],
  attrs: OpAttrs[K],
  claimed: Aval | Aval[],
  reason: RegExp,
): void {
  const bad = forged(op, operands, attrs, claimed);
  const outputs = Array.isArray(claimed) ? claimed.map((a, index) => forged("pick", [bad], { index }, a)) : [bad];
  assert.throws(
    () => verify(fn([...new Set(operands)], ...outputs)),
    (error: Error) => {
      assert.equal(error.name, "InternalError");
      assert.ok(error.message.includes(`%${bad.id} = ${op}(`), error.message);
      assert.match(error.message, reason);
      return true;
    },
  );
}

test("well-formed graphs of every op pass", () => {
  const x = input([2, 3]);
  const square = input([2, 2]);
  const keys = input([4, 2], "int32");
  const indices = input([2], "int32");
  const int = input([3], "int32");
  const params = [x, square, keys, indices, int];
  const right = input([2, 1]);
  const linear: Node[] = [
    make("cholesky", [square], {}),
    make("det", [square], {}),
    make("solve", [square, right], {}),
    make("triangularSolve", [square, right], { lower: true, adjoint: false, unit: false }),
    ...(["eigh", "qr", "svd"] as const).flatMap((op) => build.picks(make(op, [op === "eigh" ? square : x], {}))),
  ];
  const state = input([3]);
  const row = input([3]);
  const scan = make("scan", [input([3]), x], {
    body: fn([state, row], build.add(state, row), state),
    consts: 0,
    carries: 1,
    length: 2,
    reverse: false,
  });
  const [a] = [input([2, 3])];
  const custom = make("custom", [x], { body: fn([a], build.neg(a)), rule: { name: "negate", backward: () => [null] } });
  const outputs = [
    build.constant({ re: 1, im: 2 }, "complex64"),
    build.iota([2, 2], 1, "int64"),
    make("random", [keys], { kind: "normal", shape: [5], dtype: "float64" }),
    make("random", [keys], { kind: "bits", shape: [], dtype: "int32" }),
    make("alias", [make("barrier", [x], { tag: 1 })], { name: "x" }),
    build.unary("exp", x),
    build.toComplex(x, x),
    build.where(build.lt(x, x), x, x),
    build.cast(int, "bfloat16"),
    build.reshape(x, [6]),
    build.transpose(x),
    build.expandTo(x, [4, 2, 3]),
    build.slice(x, [0, 1], [2, 3], [1, 2]),
    build.pad(x, [1, 0], [0, 1]),
    build.flip(x, [1]),
    build.concat([x, x], 0),
    build.reduce("max", x, [0, 1]),
    make("argreduce", [x], { fn: "argmax", axis: 1 }),
    build.cumsum(x, 0),
    build.matmul(square, x),
    build.gather(x, indices, 1, 0),
    build.gather(x, indices, 1, 1),
    build.scatterAdd(x, indices, input([2]), 1, 1),
    make("argsort", [x], { descending: true }),
    ...linear,
    ...build.picks(scan),
    ...build.picks(custom),
    x,
  ];
  const extra = [right, scan.inputs[0], outputs[22].inputs[2]];
  verify(fn([...params, ...extra], ...outputs));
});

test("the reference evaluates every graph that the verifier accepts", () => {
  const dtypes = ["bool", "int32", "float32", "complex64"] as const;
  const accepted = (f: GraphFn): boolean => {
    try {
      verify(f);
      return true;
    } catch {
      return false;
    }
  };
  const value = (dtype: DType) => fromReals(dtype, [1], [1]);
  const counts: Partial<Record<DType, number>> = {};
  const count = (dtype: DType): void => void (counts[dtype] = (counts[dtype] ?? 0) + 1);
  for (const dtype of dtypes) {
    for (const name of unaryFns) {
      const x = input([1], dtype);
      const f = fn([x], build.unary(name, x));
      if (!accepted(f)) continue;
      count(dtype);
      assert.doesNotThrow(() => evaluate(f, [value(dtype)]), `${name} of ${dtype}`);
    }
    for (const name of binaryFns) {
      const x = input([1], dtype);
      const f = fn([x], build.binary(name, x, x));
      if (!accepted(f)) continue;
      count(dtype);
      assert.doesNotThrow(() => evaluate(f, [value(dtype)]), `${name} of ${dtype}`);
    }
  }
  // Of 49: floats lack logic; complex numbers order, rounding, erf and logic too; integers what is not exact.
  assert.deepEqual(counts, { bool: 27, int32: 30, float32: 52, complex64: 34 });
});

test("operands: count, equal shapes, equal dtypes, dtypes with a meaning", () => {
  const x = input([2]);
  const z = input([2], "complex64");
  const n = input([2], "int32");
  const flag = input([2], "bool");
  refuses("unary", [x, x], { fn: "neg" }, f32(2), /2 operands and takes 1/);
  refuses("binary", [x], { fn: "add" }, f32(2), /1 operands and takes 2/);
  refuses("binary", [x, input([3])], { fn: "add" }, f32(2), /shapes \[2\] and \[3\]/);
  refuses("binary", [x, n], { fn: "add" }, f32(2), /dtypes float32 and int32/);
  refuses("binary", [n, n], { fn: "div" }, { shape: [2], dtype: "int32" }, /div is not defined on int32/);
  refuses("binary", [z, z], { fn: "lt" }, { shape: [2], dtype: "bool" }, /lt is not defined on complex64/);
  refuses("binary", [z, z], { fn: "max" }, { shape: [2], dtype: "complex64" }, /max is not defined on complex64/);
  refuses("binary", [x, x], { fn: "and" }, f32(2), /and is not defined on float32/);
  refuses("unary", [n], { fn: "exp" }, { shape: [2], dtype: "int32" }, /exp is not defined on int32/);
  refuses("unary", [z], { fn: "floor" }, { shape: [2], dtype: "complex64" }, /floor is not defined/);
  refuses("unary", [flag], { fn: "neg" }, { shape: [2], dtype: "bool" }, /neg is not defined on bool/);
  refuses("where", [x, x, x], {}, f32(2), /condition is float32/);
  refuses("where", [input([3], "bool"), x, x], {}, f32(2), /shapes \[3\] and \[2\]/);
  refuses("where", [flag, x, n], {}, f32(2), /dtypes float32 and int32/);
  refuses("concat", [], { axis: 0 }, f32(2), /no operands|nothing is concatenated/);
});

test("constants, iota and random", () => {
  refuses("const", [], { value: { re: 1, im: 0 }, dtype: "float32" }, f32(), /not a value of float32/);
  refuses("const", [], { value: 0.5, dtype: "int32" }, { shape: [], dtype: "int32" }, /0\.5 is not a value of int32/);
  refuses("const", [], { value: 2, dtype: "bool" }, { shape: [], dtype: "bool" }, /2 is not a value of bool/);
  refuses("iota", [], { shape: [2], axis: 1, dtype: "float32" }, f32(2), /axis 1 is not one of \[2\]/);
  const keys = input([2], "int32");
  refuses(
    "random",
    [input([2])],
    { kind: "uniform", shape: [1], dtype: "float32" },
    f32(1),
    /float32 and should be int32/,
  );
  refuses("random", [input([3], "int32")], { kind: "uniform", shape: [1], dtype: "float32" }, f32(1), /keys are/);
  const bool1 = { shape: [1], dtype: "bool" as const };
  refuses("random", [keys], { kind: "dropoutMask", shape: [1], dtype: "bool" }, bool1, /a threshold of undefined/);
  refuses(
    "random",
    [keys],
    { kind: "dropoutMask", shape: [1], dtype: "bool", threshold: 65536 },
    bool1,
    /a threshold of/,
  );
  refuses("random", [keys], { kind: "bits", shape: [1], dtype: "float32" }, f32(1), /random bits is not defined/);
  refuses("random", [keys], { kind: "normal", shape: [-1], dtype: "float32" }, f32(1), /impossible dimension/);
});

test("movement: axes, bounds, sizes", () => {
  const x = input([2, 3]);
  refuses("cast", [x], { dtype: "float8" as DType }, f32(2, 3), /float8 is no dtype/);
  refuses("reshape", [x], { shape: [5] }, f32(5), /\[2, 3\] does not fill \[5\]/);
  refuses("reshape", [x], { shape: [-2, -3] }, f32(6), /impossible dimension/);
  refuses("permute", [x], { axes: [0, 0] }, f32(2, 2), /repeat/);
  refuses("permute", [x], { axes: [0] }, f32(2), /not all of/);
  refuses("permute", [x], { axes: [0, 2] }, f32(2, 2), /axis 2/);
  refuses("expand", [x], { shape: [4, 3] }, f32(4, 3), /does not grow/);
  refuses("expand", [x], { shape: [1, 2, 3] }, f32(1, 2, 3), /does not grow/);
  const slice = (start: number[], stop: number[], step: number[], reason: RegExp) =>
    refuses("slice", [x], { start, stop, step }, f32(1, 1), reason);
  slice([0], [1], [1], /start has 1 entries/);
  slice([0, 0], [2, 4], [1, 1], /0 to 4 by 1 is not within axis 1/);
  slice([2, 0], [1, 1], [1, 1], /2 to 1 by 1 is not within axis 0/);
  slice([0, 0], [1, 1], [1, 0], /by 0 is not within/);
  slice([-1, 0], [1, 1], [1, 1], /not a whole number/);
  refuses("pad", [x], { low: [-1, 0], high: [0, 0] }, f32(1, 3), /not a whole number/);
  refuses("pad", [x], { low: [0], high: [0, 0] }, f32(2, 3), /1 entries/);
  refuses("flip", [x], { axes: [1, 1] }, f32(2, 3), /repeat/);
  refuses("concat", [x, input([3, 3])], { axis: 1 }, f32(2, 6), /do not fit along axis 1/);
  refuses("concat", [x, input([2, 3], "int32")], { axis: 0 }, f32(4, 3), /dtypes/);
  refuses("concat", [x, x], { axis: 2 }, f32(4, 3), /axis 2/);
});

test("reductions and indexing", () => {
  const x = input([2, 3]);
  const z = input([2], "complex64");
  const at = input([2], "int32");
  refuses("reduce", [x], { fn: "sum", axes: [1, 0] }, f32(), /do not ascend/);
  refuses("reduce", [x], { fn: "sum", axes: [0, 0] }, f32(3), /repeat/);
  refuses("reduce", [x], { fn: "sum", axes: [2] }, f32(2), /axis 2/);
  refuses("reduce", [z], { fn: "max", axes: [0] }, { shape: [], dtype: "complex64" }, /max is not defined/);
  refuses("argreduce", [x], { fn: "argmax", axis: -1 }, { shape: [2], dtype: "int32" }, /axis -1/);
  refuses("argreduce", [input([0])], { fn: "argmax", axis: 0 }, { shape: [], dtype: "int32" }, /is empty/);
  refuses("cumsum", [x], { axis: 2, reverse: false }, f32(2, 3), /axis 2/);
  refuses("argsort", [input([])], { descending: false }, { shape: [], dtype: "int32" }, /no order/);
  refuses(
    "argsort",
    [x],
    { descending: false, count: 4 },
    { shape: [2, 4], dtype: "int32" },
    /4 of 3 elements from 0 on/,
  );
  refuses("gather", [x, input([2])], { axis: 0, batch: 0 }, f32(2, 3), /float32 and should be int32/);
  refuses("gather", [x, input([2], "int64")], { axis: 0, batch: 0 }, f32(2, 3), /int64 and should be int32/);
  refuses("gather", [x, at], { axis: 2, batch: 0 }, f32(2, 3), /axis 2/);
  refuses("gather", [x, at], { axis: 0, batch: 1 }, f32(2), /batch 1 must be at most the axis 0/);
  refuses("gather", [x, input([3], "int32")], { axis: 1, batch: 1 }, f32(2), /first 1 dimensions/);
  refuses(
    "scatterAdd",
    [x, at, input([2])],
    { axis: 1, batch: 0 },
    f32(2, 3),
    /updates are \[2\] and should be \[2, 2\]/,
  );
  refuses("scatterAdd", [x, at, input([2], "int32")], { axis: 1, batch: 1 }, f32(2, 3), /dtypes/);
});

test("matrices", () => {
  const a = input([2, 3]);
  refuses("matmul", [a, a], {}, f32(2, 3), /cannot be multiplied/);
  refuses("matmul", [a, input([3])], {}, f32(2), /expected a matrix/);
  refuses("matmul", [input([2, 2, 3]), input([3, 3, 2])], {}, f32(2, 2, 2), /cannot be multiplied/);
  refuses("matmul", [a, input([3, 2], "float64")], {}, f32(2, 2), /dtypes/);
  for (const op of ["cholesky", "det"] as const) refuses(op, [a], {}, f32(2, 3), /square matrix/);
  refuses("eigh", [a], {}, [f32(2), f32(2, 3)], /square matrix/);
  const half = input([2, 2], "float16");
  refuses("det", [half], {}, { shape: [], dtype: "float16" }, /linear algebra is not defined on float16/);
  refuses("qr", [input([2, 2], "int32")], {}, [f32(2, 2), f32(2, 2)], /not defined on int32/);
  refuses("svd", [input([3])], {}, [f32(3), f32(3), f32(3)], /expected a matrix/);
  const square = input([2, 2]);
  refuses("solve", [square, input([3, 1])], {}, f32(3, 1), /does not fit the right sides/);
  const form = { lower: true, adjoint: false, unit: false };
  refuses("triangularSolve", [square, input([2])], form, f32(2), /expected a matrix/);
  refuses("triangularSolve", [square, input([2, 1], "float64")], form, f32(2, 1), /dtypes/);
});

test("results must agree with the shape rule", () => {
  const x = input([2, 3]);
  refuses("unary", [x], { fn: "neg" }, f32(3, 2), /its op gives float32\[2, 3\]/);
  refuses("binary", [x, x], { fn: "eq" }, f32(2, 3), /its op gives bool\[2, 3\]/);
  refuses("unary", [input([1], "complex64")], { fn: "abs" }, { shape: [1], dtype: "complex64" }, /gives float32\[1\]/);
  refuses("qr", [x], {}, [f32(2, 2)], /its op gives float32\[2, 2\], float32\[2, 3\]/);
  const rewritten = build.add(x, x);
  Object.assign(rewritten, { inputs: [input([4]), input([4])] });
  assert.throws(() => verify(fn([...rewritten.inputs], rewritten)), /its op gives float32\[4\]/);
});

test("multiple results must be picked, single ones must not", () => {
  const x = input([2, 2]);
  const tuple = make("qr", [x], {});
  refuses("pick", [x], { index: 0 }, f32(2, 2), /nothing to pick/);
  const past = forged("pick", [tuple], { index: 2 }, f32(2, 2));
  assert.throws(() => verify(fn([x], past)), /result 2 of 2 is picked/);
  const direct = forged("unary", [tuple], { fn: "neg" }, f32(2, 2));
  assert.throws(() => verify(fn([x], direct)), /operand %\d+ \(qr\) has several results/);
  assert.throws(() => verify(fn([x], tuple)), /several results and is an output/);
  assert.throws(() => verify(fn([tuple], x)), /a parameter has one result/);
  assert.throws(() => verify(fn([x, x], x)), /parameter twice/);
});

test("leaves must be parameters or constants", () => {
  const x = input([2]);
  const stranger = input([2]);
  assert.throws(() => verify(fn([x], build.add(x, stranger))), new RegExp(`%${stranger.id} = input.*not a parameter`));
  const held = make("data", [], { shape: [2], dtype: "float32" });
  assert.throws(() => verify(fn([x], build.add(x, held))), /data\(\).*not a parameter/);
  verify(fn([held], build.neg(held)));
  const inner = build.neg(stranger);
  verify(fn([inner], build.neg(inner)));
});

test("cycles are found, however long", () => {
  const x = input([2]);
  const first = build.add(x, x);
  let last = first;
  for (let i = 0; i < 10_000; i++) last = build.neg(last);
  verify(fn([x], last));
  Object.assign(first, { inputs: [x, last] });
  assert.throws(() => verify(fn([x], last)), /depends on itself/);
  const self = build.add(x, x);
  Object.assign(self, { inputs: [self, x] });
  assert.throws(() => verify(fn([x], self)), /depends on itself/);
});

test("the body of a scan must fit its operands and carries", () => {
  const carry = input([2]);
  const xs = input([4, 3]);
  const state = input([2]);
  const row = input([3]);
  const body = fn([state, row], build.neg(state), row);
  const good = { body, consts: 0, carries: 1, length: 4, reverse: false };
  const results = [f32(2), f32(4, 3)];
  refuses("scan", [carry, xs], { ...good, length: 5 }, results, /operand 1 is \[4, 3\] for 5 steps/);
  refuses("scan", [carry, xs], { ...good, length: -1 }, results, /length -1/);
  refuses("scan", [carry, xs], { ...good, carries: 3 }, results, /0 constants and 3 carries are more than its 2/);
  refuses("scan", [carry], good, results, /2 parameters for 1 operands/);
  refuses(
    "scan",
    [input([3]), xs],
    good,
    results,
    /parameter 0 of its body is float32\[2\] and should be float32\[3\]/,
  );
  refuses("scan", [carry, input([4, 3], "float64")], good, results, /parameter 1 of its body is float32\[3\]/);
  const growing = fn([state, row], row, row);
  refuses("scan", [carry, xs], { ...good, body: growing }, results, /carry 0 of its body is float32\[3\]/);
  refuses("scan", [carry, xs], { ...good, body: fn([state, row]) }, results, /0 results for 1 carries/);
  refuses("scan", [carry, xs], good, [f32(2), f32(3)], /its op gives float32\[2\], float32\[4, 3\]/);
  refuses("scan", [carry, xs], { ...good, stop: "while" }, results, /its predicate, is not bool/);
  refuses("scan", [carry, xs], { ...good, stop: "count" }, results, /its number of steps, is not int32/);
  const flag = input([], "bool");
  const loop = { body: fn([flag], flag), consts: 0, carries: 1, length: 4, reverse: false, stop: "while" as const };
  const bool = [{ shape: [], dtype: "bool" as const }];
  refuses("scan", [input([], "bool")], { ...loop, reverse: true }, bool, /predicate runs forward/);
  refuses("scan", [input([], "bool")], { ...loop, length: 2 ** 31 }, bool, /length 2147483648 is more than/);
});

test("bodies are verified too, at any depth", () => {
  const rule = { name: "f", id: 2, backward: () => [null] };
  const bad = (): GraphFn => {
    const p = input([2]);
    return fn([p], forged("unary", [p], { fn: "neg" }, f32(3)));
  };
  let body = bad();
  for (let depth = 0; depth < 3; depth++) {
    const p = input([2]);
    const call = forged("custom", [p], { body, rule }, [f32(depth === 0 ? 3 : 2)]);
    const result = forged("pick", [call], { index: 0 }, f32(depth === 0 ? 3 : 2));
    body = fn([p], depth === 0 ? build.slice(result, [0], [2]) : result);
  }
  assert.throws(
    () => verify(body),
    /unary.*in the body of custom %\d+, in the body of custom %\d+, in the body of custom/,
  );
  const leaking = input([2]);
  const p = input([2]);
  const outer = make("custom", [leaking], { body: fn([p], build.add(p, leaking)), rule });
  assert.throws(
    () => verify(fn([leaking], ...build.picks(outer))),
    /in the body of custom %\d+: it is not a parameter/,
  );
  const wrong = input([3]);
  const operand = input([2]);
  const call = forged("custom", [operand], { body: fn([wrong], wrong), rule }, [f32(3)]);
  assert.throws(() => verify(fn([operand], forged("pick", [call], { index: 0 }, f32(3)))), /parameter 0 of its body/);
});
