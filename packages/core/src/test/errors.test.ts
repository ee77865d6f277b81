// Errors are thrown at the call that is wrong; they name the function, the shapes or dtypes, and the remedy.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import * as weft from "../index.js";
import { DTypeError, ReferenceDevice, ShapeError, useDevice, WeftError } from "../index.js";
import { assertClose } from "./compare.js";

useDevice(new ReferenceDevice());
const z = (...shape: number[]) => weft.zeros(shape);
const i32 = (...shape: number[]) => weft.zeros(shape, { dtype: "int32" });
const complex = weft.zeros([2, 2], { dtype: "complex64" });

type Kind = typeof WeftError;

/** What is called, the error it throws, and what the message must say. */
const rows: [string, () => unknown, Kind, RegExp][] = [
  // Thrown at once: a comparison with a promise that nobody awaits is false and takes the wrong branch.
  ...(["item", "data", "array"] as const).map((name): [string, () => unknown, Kind, RegExp] => [
    `${name} in jit`,
    () => weft.jit((x: weft.Tensor) => (Number(x[name]()) > 0 ? x : x.neg()))(z(1)),
    WeftError,
    /^a tensor that exists only inside a traced function/,
  ]),
  [
    "add",
    () => z(2, 3).add(z(4)),
    ShapeError,
    /^add: shapes \[2, 3\] and \[4\] do not broadcast; sizes must be equal or 1/,
  ],
  ["where", () => weft.where(z(2), z(3), 1), ShapeError, /^where: shapes \[2\] and \[3\]/],
  [
    "operand",
    () => z(2).add([1, 2] as never),
    WeftError,
    /^add: expected a tensor or a number, got an array \(wrap it in weft.tensor\)/,
  ],
  [
    "operand object",
    () => z(2).add({ re: 1 } as never),
    WeftError,
    /^add: expected a tensor or a number, got an object with keys re/,
  ],
  [
    "operand undefined",
    () => z(2).mul(undefined as never),
    WeftError,
    /^mul: expected a tensor or a number, got undefined/,
  ],
  ["less", () => complex.less(1), DTypeError, /^less: complex numbers have no order; compare abs\(x\) or real\(x\)/],
  ["maximum", () => complex.maximum(1), DTypeError, /^maximum: not defined for complex64/],
  ["floor", () => complex.floor(), DTypeError, /^floor: not defined for complex64/],
  ["erf", () => complex.erf(), DTypeError, /^erf: not defined for complex64/],
  ["neg", () => z(2).equal(0).neg(), DTypeError, /^neg: not defined for bool; use logicalNot/],
  [
    "bitwiseAnd",
    () => z(2).bitwiseAnd(1),
    DTypeError,
    /^bitwiseAnd: needs integers or bool, got float32; use logicalAnd/,
  ],
  ["complex", () => weft.complex(complex, 1), DTypeError, /^complex: takes two real tensors/],
  ["cast", () => z(2).cast("float8" as never), DTypeError, /^cast: unknown dtype float8; known: bool, int8, uint8/],
  [
    "axis",
    () => z(2, 3).sum(2),
    ShapeError,
    /^sum: axis 2 is out of range for a tensor of rank 2; axes go from -2 to 1/,
  ],
  [
    "axis of a scalar",
    () => z().sum(0),
    ShapeError,
    /^sum: axis 0 is out of range for a tensor of rank 0; a scalar has no axes/,
  ],
  ["fractional axis", () => z(2, 3).max(0.5), ShapeError, /^max: axis 0.5 is out of range/],
  ["axis twice", () => z(2, 3).mean([0, -2]), ShapeError, /^mean: axes \[0, -2\] name one axis twice/],
  [
    "max of nothing",
    () => z(0, 3).max(0),
    ShapeError,
    /^max: the max of no elements does not exist \(shape \[0, 3\]\)/,
  ],
  ["argmax of nothing", () => z(0).argmax(), ShapeError, /^argmax: the argmax of no elements/],
  ["max of complex", () => complex.max(), DTypeError, /^max: complex numbers have no order; use abs\(x\) or real\(x\)/],
  [
    "reshape",
    () => z(2, 3).reshape([4]),
    ShapeError,
    /^reshape: \[2, 3\] \(6 elements\) cannot become \[4\] \(4 elements\)/,
  ],
  ["reshape with -1", () => z(2, 3).reshape([4, -1]), ShapeError, /a multiple of 4 elements/],
  ["reshape with two -1", () => z(2, 3).reshape([-1, -1]), ShapeError, /at most one size may be -1/],
  ["permute", () => z(2, 3).permute([0, 0]), ShapeError, /^permute: \[0, 0\] does not name each of the 2 axes once/],
  [
    "expand",
    () => z(2, 3).expand([2, 4]),
    ShapeError,
    /^expand: \[2, 3\] does not grow to \[2, 4\]; only sizes of 1 grow/,
  ],
  ["squeeze", () => z(2, 1).squeeze(0), ShapeError, /^squeeze: axis 0 of \[2, 1\] has size 2, not 1/],
  ["flatten", () => z(2, 3, 4).flatten(2, 1), ShapeError, /^flatten: axis 2 comes after axis 1/],
  [
    "pad",
    () => z(2).pad([[-1, 0]]),
    ShapeError,
    /^pad: \[2\] needs one \[before, after\] of whole numbers >= 0 per axis/,
  ],
  [
    "concat",
    () => weft.concat([z(2, 3), z(2, 4)]),
    ShapeError,
    /^concat: \[2, 3\], \[2, 4\] differ in more than axis 0; use stack/,
  ],
  ["concat of nothing", () => weft.concat([]), ShapeError, /^concat: needs at least one tensor/],
  ["stack", () => weft.stack([z(2), z(3)]), ShapeError, /^stack: shapes \[2\] and \[3\] differ/],
  [
    "split",
    () => z(5).split(2),
    ShapeError,
    /^split: 5 elements along axis 0 do not divide into 2 equal pieces; give their sizes/,
  ],
  ["split sizes", () => z(5).split([-1, 6]), ShapeError, /^split: sizes -1 \+ 6 do not add up to 5/],
  [
    "tile",
    () => z(5).tile([-1]),
    ShapeError,
    /^tile \(repeats\): a shape is an array of non-negative integers, got \[-1\]/,
  ],
  ["roll", () => z(5).roll(0.5), ShapeError, /^roll: the shift must be a whole number/],
  ["slice", () => z(5).slice([0], [5], [-1]), ShapeError, /^slice: steps are whole numbers >= 1, got \[-1\]; use flip/],
  ["slice rank", () => z(5, 2).slice([0], [5]), ShapeError, /^slice: give one start and one stop per axis of \[5, 2\]/],
  ["slice position", () => z(5).slice([0.5], [2]), ShapeError, /^slice: positions are whole numbers/],
  ["index", () => z(5).index(5), ShapeError, /^index: 5 is out of range for axis 0 of size 5/],
  ["index rank", () => z(5).index(0, 0), ShapeError, /^index: 2 entries for a tensor of rank 1/],
  ["index text", () => z(5).index("a:b"), WeftError, /^index: "a:b" is not a slice; write "start:stop"/],
  ["index step", () => z(5).index("::0"), WeftError, /^index: the step of "::0" must not be 0/],
  ["index ellipsis", () => z(5, 5).index("...", "..."), WeftError, /^index: "..." may appear once/],
  [
    "index by a mask of another shape",
    () => z(5).index(z(4).equal(0)),
    ShapeError,
    /^index: a mask \[4\] for the axes \[5\] of \[5\]/,
  ],
  [
    "index by floats",
    () => z(5).take(z(2)),
    DTypeError,
    /^take: indices are integers, got float32; use cast\("int32"\)/,
  ],
  [
    "gather",
    () => z(3, 4).gather(i32(2, 4)),
    ShapeError,
    /^gather: indices \[2, 4\] must match \[3, 4\] in every axis but 1/,
  ],
  [
    "scatterAdd",
    () => z(3, 4).scatterAdd(i32(3, 2), z(3, 3)),
    ShapeError,
    /^scatterAdd: updates \[3, 3\] and indices \[3, 2\]/,
  ],
  [
    "indexAdd",
    () => weft.indexAdd(z(3, 4), i32(2), z(2, 3)),
    ShapeError,
    /^indexAdd: updates have shape \[2, 3\], expected \[2, 4\]/,
  ],
  ["topk", () => z(3).topk(4), ShapeError, /^topk: k = 4 is out of range for axis 0 of size 3/],
  ["sort", () => complex.sort(), DTypeError, /^sort: complex numbers have no order/],
  [
    "matmul",
    () => z(2, 3).matmul(z(4, 5)),
    ShapeError,
    /^matmul: \[2, 3\] by \[4, 5\]: the last axis of the first \(3\) and the second-last of the second \(4\) must be equal; transpose\(\)/,
  ],
  ["matmul scalar", () => z().matmul(z(2)), ShapeError, /scalars have no matrix product; use mul/],
  ["matmul batch", () => z(2, 2, 2).matmul(z(3, 2, 2)), ShapeError, /the leading axes do not broadcast/],
  ["einsum", () => weft.einsum("ij,jk->ik", z(2, 3)), WeftError, /^einsum: "ij,jk->ik" does not describe 1 operands/],
  [
    "einsum rank",
    () => weft.einsum("ijk->i", z(2, 3)),
    ShapeError,
    /^einsum: "ijk" names 3 axes of a tensor of shape \[2, 3\]/,
  ],
  [
    "einsum size",
    () => weft.einsum("ij,jk->ik", z(2, 3), z(4, 5)),
    ShapeError,
    /^einsum: "j" is 3 in one operand of "ij,jk->ik" and 4 in another/,
  ],
  ["einsum result", () => weft.einsum("ij->iz", z(2, 3)), WeftError, /the result "iz" of "ij->iz" names z/],
  [
    "tensordot",
    () => weft.tensordot(z(2, 3), z(2, 3), 1),
    ShapeError,
    /^tensordot: axes \[1\] of \[2, 3\] do not pair with \[0\] of \[2, 3\]/,
  ],
  ["conv1d", () => weft.conv1d(z(3, 4), z(1, 3, 2)), ShapeError, /^conv1d: needs input \[batch, channels, length\]/],
  [
    "conv2d channels",
    () => weft.conv2d(z(1, 4, 5, 5), z(2, 3, 3, 3)),
    ShapeError,
    /^conv2d: 4 input channels in 1 groups need weights \[out, 4, ...\]/,
  ],
  [
    "conv1d size",
    () => weft.conv1d(z(1, 1, 2), z(1, 1, 3)),
    ShapeError,
    /^conv1d: kernel \[3\] \(dilation 1\) is larger than the padded input \[2\]/,
  ],
  [
    "conv1d stride",
    () => weft.conv1d(z(1, 1, 4), z(1, 1, 3), { stride: 0 }),
    ShapeError,
    /^conv1d: stride needs 1 whole number >= 1, got \[0\]/,
  ],
  [
    "conv1d bias",
    () => weft.conv1d(z(1, 1, 4), z(2, 1, 3), { bias: z(3) }),
    ShapeError,
    /^conv1d: the bias needs shape \[2\]/,
  ],
  ["softmax", () => complex.softmax(), DTypeError, /^softmax: not defined for complex/],
  [
    "crossEntropy",
    () => weft.crossEntropy(z(4, 3), i32(3)),
    ShapeError,
    /^crossEntropy: logits \[4, 3\] need class numbers \[4\] or probabilities \[4, 3\], got \[3\]/,
  ],
  [
    "crossEntropy dtype",
    () => weft.crossEntropy(z(4, 3), z(4)),
    DTypeError,
    /^crossEntropy: class numbers are integers, got float32/,
  ],
  ["eigh", () => weft.eigh(z(2, 3)), ShapeError, /^eigh: needs square matrices in the last two axes, got \[2, 3\]/],
  ["inv", () => z(3).inv(), ShapeError, /^inv: needs square matrices in the last two axes, got \[3\]/],
  ["qr", () => weft.qr(z(3)), ShapeError, /^qr: needs matrices in the last two axes, got \[3\]/],
  [
    "solve",
    () => weft.solve(z(3, 3), z(2, 2)),
    ShapeError,
    /^solve: \[3, 3\] and right-hand side \[2, 2\] do not fit; it needs 3 rows/,
  ],
  ["adjoint", () => z(3).adjoint(), ShapeError, /^adjoint: needs matrices/],
  ["diag", () => weft.diag(z()), ShapeError, /^diag: needs a vector/],
  ["norm", () => z(3).norm(0, { order: 3 as never }), WeftError, /^norm: order 3 is not known; use 1, 2 or "max"/],
  [
    "expm",
    () => weft.expm(z(2, 2), { squarings: 1.5 }),
    WeftError,
    /^expm: squarings must be a whole number from 0 to 64, got 1.5/,
  ],
  [
    "matrixPower",
    () => weft.matrixPower(z(2, 2), 0.5),
    WeftError,
    /^matrixPower: the exponent must be a whole number, got 0.5/,
  ],
  [
    "ragged",
    () => weft.tensor([[1, 2], [3]]),
    ShapeError,
    /^tensor: the nested arrays are ragged; expected 2 elements at depth 1, got 1/,
  ],
  ["ragged depth", () => weft.tensor([1, [2]]), ShapeError, /^tensor: the nested arrays have different depths/],
  [
    "tensor element",
    () => weft.tensor([1, "2"] as never),
    WeftError,
    /^tensor: elements are numbers, booleans or \{ re, im \}, got 2/,
  ],
  [
    "tensor shape",
    () => weft.tensor([1, 2, 3], { shape: [2, 2] }),
    ShapeError,
    /^tensor: 3 elements do not fill shape \[2, 2\]/,
  ],
  [
    "tensor typed",
    () => weft.tensor(Float32Array.of(1, 2, 3), { shape: [2] }),
    ShapeError,
    /^tensor: 3 elements do not fill shape \[2\]/,
  ],
  [
    "tensor pairs",
    () => weft.tensor(Float32Array.of(1, 2, 3), { dtype: "complex64" }),
    ShapeError,
    /^tensor: 3 numbers are not pairs/,
  ],
  [
    "tensor range",
    () => weft.tensor([300], { dtype: "uint8" }),
    DTypeError,
    /^tensor: element \[0\] is 300, which does not fit into uint8; use a wider dtype/,
  ],
  [
    "tensor NaN",
    () => weft.tensor([Number.NaN], { dtype: "int32" }),
    DTypeError,
    /^tensor: element \[0\] is NaN, which is not a whole number and does not fit into int32/,
  ],
  [
    "tensor int64",
    () => weft.tensor([Number.POSITIVE_INFINITY], { dtype: "int64" }),
    DTypeError,
    /^tensor: element \[0\] is Infinity, which is not a whole number and does not fit into int64/,
  ],
  [
    "tensor complex",
    () => weft.tensor([{ re: 1, im: 1 }], { dtype: "float32" }),
    DTypeError,
    /element \[0\] is a complex number, which does not fit into float32/,
  ],
  ["full", () => weft.full([2], -1, { dtype: "uint8" }), DTypeError, /the value is -1, which does not fit into uint8/],
  [
    "full complex",
    () => weft.full([2], { re: 1, im: 2 }, { dtype: "float64" }),
    DTypeError,
    /^full: a complex number does not fit into float64/,
  ],
  [
    "shape",
    () => weft.zeros([2, -1]),
    ShapeError,
    /^zeros: a shape is an array of non-negative integers, got \[2, -1\]/,
  ],
  [
    "huge shape",
    () => weft.zeros([2 ** 30, 2 ** 30]),
    ShapeError,
    /^zeros: shape \[1073741824, 1073741824\] has 1.15e\+18 elements/,
  ],
  ["arange", () => weft.arange(0, 3, 0), WeftError, /^arange: .*step must not be 0/],
  ["linspace", () => weft.linspace(0, 1, -1), WeftError, /^linspace: count must be a whole number below 2.31, got -1/],
  ["eye", () => weft.eye(-1), ShapeError, /^eye: a shape is/],
  ["rand", () => weft.rand([2], { dtype: "int32" }), DTypeError, /^rand: makes float tensors, not int32; use randint/],
  [
    "randint",
    () => weft.randint(3, 3, [2]),
    WeftError,
    /^randint: needs whole numbers low < high within int32, got 3 and 3/,
  ],
  ["bernoulli", () => weft.bernoulli(1.5, [2]), WeftError, /^bernoulli: probability 1.5 is not in \[0, 1\]/],
  ["key", () => weft.key(0.5), WeftError, /^key: the seed must be a whole number, got 0.5/],
  [
    "random key",
    () => weft.rand([2], { key: z(2) }),
    WeftError,
    /a key is an int32 tensor of shape \[2\]; make one with weft.key/,
  ],
  ["splitKey", () => weft.splitKey(z(2)), WeftError, /^splitKey: a key is an int32 tensor/],
  ["item", () => z(2).itemSync(), ShapeError, /^item: needs one element, got shape \[2\]; use array\(\) or data\(\)/],
  [
    "item complex",
    () => weft.full([], { re: 1, im: 2 }).itemSync(),
    DTypeError,
    /^item: a complex64 element is two numbers; use real\(\), imag\(\)/,
  ],
  [
    "tree",
    () => weft.treeMap((x) => x, [z(2)], [z(2), z(3)]),
    WeftError,
    /^treeMap: the trees differ: 1 tensors {0: \*} and 2/,
  ],
];

describe("thrown at the call", () => {
  for (const [name, call, kind, message] of rows)
    test(name, () => {
      assert.throws(call, (error: Error) => {
        assert.ok(error instanceof kind, `${error.name}: ${error.message}`);
        assert.ok(error instanceof WeftError);
        assert.match(error.message, message);
        return true;
      });
    });
});

test("a tree that contains itself is rejected", () => {
  const tree: unknown[] = [];
  tree.push(tree);
  assert.throws(() => weft.treeLeaves(tree), /nested more than 200 levels deep, or contains itself/);
});

test("numbers that an integer tensor cannot hold widen it instead of wrapping", () => {
  const x = weft.tensor([5, 250], { dtype: "uint8" });
  assert.equal(x.add(-1).dtype, "int32");
  assertClose(x.add(-1), [4, 249].map(Number));
  assert.equal(x.add(6).dtype, "uint8");
  assertClose(x.less(-1), [0, 0]);
  assertClose(x.equal(300), [0, 0]);
  assert.equal(x.add(0.5).dtype, "float32");
  assert.equal(weft.tensor([1], { dtype: "int32" }).add(2 ** 40).dtype, "int64");
  assert.equal(weft.tensor([1], { dtype: "int32" }).mul(Number.POSITIVE_INFINITY).dtype, "float32");
});

test("int64 keeps all its digits", () => {
  const big = 9007199254740993n;
  const x = weft.tensor([big, -1n]);
  assert.equal(x.dtype, "int64");
  assert.deepEqual(x.arraySync(), [big, -1n]);
  assert.deepEqual(x.add(x).arraySync(), [2n * big, -2n]);
  assert.deepEqual(weft.tensor(BigInt64Array.of(big)).sub(1).arraySync(), [big - 1n]);
});

test("calls after an error work", () => {
  for (let i = 0; i < 3; i++) {
    assert.throws(() => weft.jit((x: weft.Tensor) => x.matmul(z(7, 7)))(z(2, 2)), ShapeError);
    assert.throws(() => weft.vmap((x: weft.Tensor) => x.add(z(9)))(z(2, 2)), ShapeError);
    assert.throws(() => weft.grad((x: weft.Tensor) => x.sum(3))(z(2, 2)), ShapeError);
  }
  // Nothing believes that it is still being traced.
  let x = weft.zeros([2]);
  for (let i = 0; i < 1000; i++) x = x.add(1);
  assert.ok(x.node.depth < 500, `${x.node.depth} nodes are pending`);
  assertClose(x, [1000, 1000]);
});
