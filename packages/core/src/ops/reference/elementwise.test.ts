import assert from "node:assert/strict";
import { test } from "node:test";
import { type BinaryFn, type DType, isComplex, kindOf, realOf, type UnaryFn } from "../../graph/index.js";
import { assertClose, aval, complexTensor, numbers, runOne, tensor } from "./testkit.js";
import { fromIntegers, integers, type Value } from "./value.js";

const { NaN: nan, POSITIVE_INFINITY: inf } = Number;
const toBool: readonly string[] = ["isnan", "isfinite", "eq", "ne", "lt", "le"];
const toReal: readonly string[] = ["abs", "real", "imag"];

function unary(fn: UnaryFn, x: Value): Value {
  const dtype = toBool.includes(fn) ? "bool" : toReal.includes(fn) ? realOf(x.dtype) : x.dtype;
  return runOne("unary", { fn }, [x], aval(x.shape, dtype));
}
function binary(fn: BinaryFn, x: Value, y: Value, dtype: DType = x.dtype): Value {
  return runOne("binary", { fn }, [x, y], aval(x.shape, toBool.includes(fn) ? "bool" : dtype));
}
const on = (fn: UnaryFn, xs: number[]): number[] => numbers(unary(fn, tensor([xs.length], xs, "float64")));
const onTwo = (fn: BinaryFn, xs: number[], ys: number[]): number[] =>
  numbers(binary(fn, tensor([xs.length], xs, "float64"), tensor([ys.length], ys, "float64")));

test("unary functions of real numbers have their known values", () => {
  const rows: Partial<Record<UnaryFn, [number[], number[]]>> = {
    neg: [
      [1, -2, inf],
      [-1, 2, -inf],
    ],
    abs: [
      [1, -2, -inf],
      [1, 2, inf],
    ],
    sign: [
      [3, -2, 0, nan],
      [1, -1, 0, nan],
    ],
    floor: [
      [1.5, -1.5, -inf],
      [1, -2, -inf],
    ],
    ceil: [
      [1.5, -1.5, inf],
      [2, -1, inf],
    ],
    trunc: [
      [1.5, -1.5, nan],
      [1, -1, nan],
    ],
    round: [
      [0.5, 1.5, 2.5, -0.5, -1.5, 2.4999, 1e20, inf],
      [0, 2, 2, 0, -2, 2, 1e20, inf],
    ],
    sqrt: [
      [4, 2, -1],
      [2, Math.SQRT2, nan],
    ],
    rsqrt: [
      [4, 0.25, 0],
      [0.5, 2, inf],
    ],
    reciprocal: [
      [4, -0.5, 0],
      [0.25, -2, inf],
    ],
    exp: [
      [0, 1, -inf, 1000],
      [1, Math.E, 0, inf],
    ],
    expm1: [
      [1e-12, 0],
      [1e-12 + 5e-25, 0],
    ],
    log: [
      [1, Math.E, 0, -1],
      [0, 1, -inf, nan],
    ],
    log1p: [
      [1e-12, -1],
      [1e-12 - 5e-25, -inf],
    ],
    sin: [
      [Math.PI / 6, inf],
      [0.5, nan],
    ],
    cos: [[Math.PI / 3], [0.5]],
    tan: [[Math.PI / 4], [1]],
    asin: [
      [0.5, 2],
      [Math.PI / 6, nan],
    ],
    acos: [[0.5], [Math.PI / 3]],
    atan: [
      [1, inf],
      [Math.PI / 4, Math.PI / 2],
    ],
    sinh: [[1], [(Math.E - 1 / Math.E) / 2]],
    cosh: [[1], [(Math.E + 1 / Math.E) / 2]],
    tanh: [
      [1, 100],
      [(Math.E ** 2 - 1) / (Math.E ** 2 + 1), 1],
    ],
    isnan: [
      [nan, 1, inf],
      [1, 0, 0],
    ],
    isfinite: [
      [nan, 1, inf, -inf],
      [0, 1, 0, 0],
    ],
    real: [
      [2, -3],
      [2, -3],
    ],
    imag: [
      [2, -3],
      [0, 0],
    ],
    conj: [
      [2, -3],
      [2, -3],
    ],
  };
  for (const [fn, row] of Object.entries(rows)) assertClose(on(fn as UnaryFn, row[0]), row[1], 1e-15);
  assert.ok(Object.is(on("round", [-0.4])[0], -0));
});

test("erf agrees with the C library", () => {
  const xs = [0, 1e-10, 0.1, 0.5, 1, 1.5, 2, 3, 4, 5.5, 7, inf];
  const expected = [
    0, 1.1283791670955126e-10, 0.1124629160182849, 0.5204998778130465, 0.8427007929497149, 0.9661051464753108,
    0.9953222650189527, 0.9999779095030014, 0.9999999845827421, 0.9999999999999927, 1, 1,
  ];
  assertClose(on("erf", xs), expected, 1e-15);
  assertClose(
    on(
      "erf",
      xs.map((x) => -x),
    ),
    expected.map((y) => -y),
    1e-15,
  );
  assert.ok(Number.isNaN(on("erf", [nan])[0]));
});

// What NumPy 2 says at 0.5+0.25i, -1.5+2i, 2-0.75i and -0.3-0.4i.
const points = [0.5, 0.25, -1.5, 2, 2, -0.75, -0.3, -0.4];
const complexValues: Partial<Record<UnaryFn, number[]>> = {
  sqrt: [
    0.7276733451126774,
    0.17178037486125622,
    Math.SQRT1_2,
    Math.SQRT2,
    1.4380544037569272,
    -0.2607689938713792,
    0.31622776601683794,
    -0.6324555320336759,
  ],
  exp: [
    1.5974665191199127, 0.4079001700783598, -0.09285491028402633, 0.2028916804701695, 5.4064900990717755,
    -5.036667037017943, 0.6823387667165518, -0.2884882034499186,
  ],
  expm1: [
    0.5974665191199127, 0.4079001700783598, -1.0928549102840264, 0.2028916804701695, 4.4064900990717755,
    -5.036667037017943, -0.31766123328344825, -0.2884882034499186,
  ],
  log: [
    -0.5815754049028404,
    0.4636476090008061,
    0.9162907318741551,
    2.214297435588181,
    0.7589353594543049,
    -0.35877067027057225,
    -Math.LN2,
    -2.214297435588181,
  ],
  log1p: [
    0.41916459520222155, 0.16514867741462683, 0.7234594914681627, 1.8157749899217608, 1.128924599576327,
    -0.24497866312686414, -0.2153914580462272, -0.519146114246523,
  ],
  sin: [
    0.494485780933195, 0.22168816414957482, -3.752771340479298, 0.2565539560904818, 1.1772521793108766,
    0.34220450663488017, -0.31947873074156474, -0.3924066848326388,
  ],
  cos: [
    0.9051501505596068, -0.12110879604381165, 0.26612719531354573, 3.6177750739401375, -0.5387783532487324,
    0.747730488384954, 1.0327878842028413, -0.12138561220787392,
  ],
  tan: [
    0.504500702698564, 0.3124206925025888, -0.0053620609220030565, 1.036920282100185, -0.44550132143674176,
    -1.2534271713346836, -0.26107368184166296, -0.4106334708425564,
  ],
  asin: [
    0.5016088532755008, 0.28139605624529274, -0.6065115181997549, 1.6224941488715938, 1.1710624884483516,
    -1.410578897558334, -0.2806295622918058, -0.4051123371780309,
  ],
  acos: [
    1.0691874735193958, -0.28139605624529274, 2.1773078449946515, -1.6224941488715938, 0.3997338383465451,
    1.410578897558334, 1.8514258890867024, 0.4051123371780309,
  ],
  atan: [
    0.4842544903299662, 0.20058661813123432, -1.311223269671635, 0.3104282830771958, 1.1492038297107037,
    -0.13825013720417587, -0.3373704711117763, -0.3790868723420221,
  ],
  sinh: [
    0.504895714387995, 0.2789791283502615, 0.8860929093625314, 2.139040009980677, 2.65373338938083, -2.564458405835377,
    -0.2804817641764754, -0.4070739913234487,
  ],
  cosh: [
    1.0925708047319176, 0.12892104172809826, -0.9789478196465577, -1.936148329510507, 2.7527567096909453,
    -2.472208631182566, 0.9628205308930272, 0.11858578787353008,
  ],
  tanh: [
    0.4854872810241353, 0.19805544995134955, -1.0641443991765371, -0.08039101531016819, 0.996747399904603,
    -0.03643288937571831, -0.33825474326547145, -0.3811320742724429,
  ],
};

test("unary functions of complex numbers agree with NumPy", () => {
  for (const [fn, expected] of Object.entries(complexValues))
    assertClose(numbers(unary(fn as UnaryFn, complexTensor([4], points))), expected, 3e-15);
  const z = complexTensor([2], [3, -4, 0, 0]);
  assert.deepEqual(numbers(unary("abs", z)), [5, 0]);
  assertClose(numbers(unary("sign", z)), [0.6, -0.8, 0, 0], 1e-15);
  assert.deepEqual(numbers(unary("conj", z)), [3, 4, 0, -0]);
  assert.deepEqual(numbers(unary("real", z)), [3, 0]);
  assert.deepEqual(numbers(unary("imag", z)), [-4, 0]);
  assertClose(numbers(unary("reciprocal", complexTensor([1], [3, -4]))), [0.12, 0.16], 1e-16);
  assertClose(numbers(unary("rsqrt", complexTensor([1], [3, -4]))), [0.4, 0.2], 1e-15);
  assert.deepEqual(numbers(unary("isnan", complexTensor([2], [0, nan, 1, inf]))), [1, 0]);
  assert.deepEqual(numbers(unary("isfinite", complexTensor([2], [0, 1, 1, inf]))), [1, 0]);
});

test("complex branch cuts keep the side that the sign of zero names", () => {
  assertClose(numbers(unary("sqrt", complexTensor([2], [-4, 0, -4, -0]))), [0, 2, 0, -2], 0);
  assertClose(numbers(unary("log", complexTensor([2], [-1, 0, -1, -0]))), [0, Math.PI, 0, -Math.PI], 0);
  const above = numbers(unary("asin", complexTensor([2], [2, 0, 2, -0])));
  assertClose(above, [Math.PI / 2, Math.acosh(2), Math.PI / 2, -Math.acosh(2)], 1e-15);
});

test("complex functions neither overflow nor lose small numbers on the way", () => {
  assertClose(numbers(unary("tanh", complexTensor([1], [800, 1]))), [1, 0], 0);
  assertClose(numbers(unary("exp", complexTensor([1], [1000, 0]))), [inf, 0], 0);
  assertClose(
    numbers(binary("div", complexTensor([1], [1e300, 1e300]), complexTensor([1], [1e300, 1e300]))),
    [1, 0],
    0,
  );
  const tiny = numbers(unary("expm1", complexTensor([1], [1e-20, 1e-20])));
  assert.ok(Math.abs(tiny[0] / 1e-20 - 1) < 1e-15 && Math.abs(tiny[1] / 1e-20 - 1) < 1e-15);
});

test("functions that have no meaning for a dtype are refused, never guessed", () => {
  const z = complexTensor([1], [1, 2]);
  for (const fn of ["floor", "erf", "not"] as const) assert.throws(() => unary(fn, z), /not defined on complex128/);
  for (const fn of ["max", "min", "mod", "lt", "le", "atan2", "and"] as const)
    assert.throws(() => binary(fn, z, z), /not defined on complex128/);
  assert.throws(
    () => binary("div", tensor([1], [1], "int32"), tensor([1], [2], "int32")),
    /div is not defined on int32/,
  );
  assert.throws(() => binary("and", tensor([1], [1]), tensor([1], [1])), /and is not defined on float32/);
});

test("binary functions of real numbers have their known values", () => {
  const rows: Partial<Record<BinaryFn, [number[], number[], number[]]>> = {
    add: [
      [1, inf],
      [2, -inf],
      [3, nan],
    ],
    sub: [[1], [2], [-1]],
    mul: [
      [3, 0],
      [-2, inf],
      [-6, nan],
    ],
    div: [
      [1, 1, 0],
      [4, 0, 0],
      [0.25, inf, nan],
    ],
    pow: [
      [-2, -2, -2, 2, 0, nan, 1, -1, 4],
      [3, 2, 0.5, -1, 0, 0, nan, inf, 0.5],
      [-8, 4, nan, 0.5, 1, 1, 1, 1, 2],
    ],
    mod: [
      [7, -7, 7, -7, 5.5, 1, -1],
      [3, 3, -3, -3, 2, 0, inf],
      [1, 2, -2, -1, 1.5, nan, inf],
    ],
    max: [
      [1, nan, 1, -inf],
      [2, 1, nan, inf],
      [2, nan, nan, inf],
    ],
    min: [
      [1, nan, 1, -inf],
      [2, 1, nan, inf],
      [1, nan, nan, -inf],
    ],
    atan2: [
      [1, -1, 0, 0],
      [1, -1, -1, 1],
      [Math.PI / 4, (-3 * Math.PI) / 4, Math.PI, 0],
    ],
    eq: [
      [1, nan, 0],
      [1, nan, -0],
      [1, 0, 1],
    ],
    ne: [
      [1, nan, 0],
      [1, nan, -0],
      [0, 1, 0],
    ],
    lt: [
      [1, 2, nan],
      [2, 2, 1],
      [1, 0, 0],
    ],
    le: [
      [1, 2, nan],
      [2, 2, 1],
      [1, 1, 0],
    ],
  };
  for (const [fn, row] of Object.entries(rows)) assertClose(onTwo(fn as BinaryFn, row[0], row[1]), row[2], 1e-15);
});

test("binary functions of complex numbers have their known values", () => {
  const a = complexTensor([2], [1, 2, 0, 1]);
  const b = complexTensor([2], [3, -4, 0, 1]);
  assert.deepEqual(numbers(binary("add", a, b)), [4, -2, 0, 2]);
  assert.deepEqual(numbers(binary("sub", a, b)), [-2, 6, 0, 0]);
  assert.deepEqual(numbers(binary("mul", a, b)), [11, 2, -1, 0]);
  assertClose(numbers(binary("div", a, b)), [-0.2, 0.4, 1, 0], 1e-16);
  assert.deepEqual(numbers(binary("eq", a, b)), [0, 1]);
  assert.deepEqual(numbers(binary("ne", a, b)), [1, 0]);
  const squared = binary("pow", a, complexTensor([2], [2, 0, -1, 0]));
  assert.deepEqual(numbers(squared), [-3, 4, 0, -1]);
  const power = binary("pow", complexTensor([1], [0, 1]), complexTensor([1], [0, 1]));
  assertClose(numbers(power), [Math.exp(-Math.PI / 2), 0], 1e-15);
  const zeros = binary("pow", complexTensor([2], [0, 0, 0, 0]), complexTensor([2], [0, 0, 2, 1]));
  assert.deepEqual(numbers(zeros), [1, 0, 0, 0]);
  const pair = binary("complex", tensor([2], [1, 2]), tensor([2], [3, 4]), "complex64");
  assert.deepEqual([...(pair.data as Float32Array)], [1, 3, 2, 4]);
});

test("integers compute exactly and wrap around", () => {
  const int32 = (xs: number[]) => tensor([xs.length], xs, "int32");
  assert.deepEqual(numbers(binary("mul", int32([123456789]), int32([987654321]))), [-67153019]);
  assert.deepEqual(numbers(binary("add", int32([2 ** 31 - 1]), int32([1]))), [-(2 ** 31)]);
  assert.deepEqual(numbers(binary("mod", int32([7, -7, 7, -7, 5]), int32([3, 3, -3, -3, 0]))), [1, 2, -2, -1, 0]);
  assert.deepEqual(numbers(binary("pow", int32([3, -2, 2, 2, 0]), int32([4, 3, 31, -1, 0]))), [
    81,
    -8,
    -(2 ** 31),
    0,
    1,
  ]);
  assert.deepEqual(numbers(binary("xor", int32([12]), int32([10]))), [6]);
  assert.deepEqual(numbers(unary("not", int32([0, 5]))), [-1, -6]);
  assert.deepEqual(numbers(unary("neg", int32([-(2 ** 31)]))), [-(2 ** 31)]);
  assert.deepEqual(numbers(binary("sub", tensor([1], [3], "uint8"), tensor([1], [5], "uint8"))), [254]);
  const large = fromIntegers("int64", [2], [2n ** 62n + 1n, 2n ** 53n + 1n]);
  assert.deepEqual(integers(binary("add", large, large)), [-(2n ** 63n) + 2n, 2n ** 54n + 2n]);
  assert.deepEqual(integers(binary("mul", large, large)), [-(2n ** 63n) + 1n, 2n ** 54n + 1n]);
  assert.deepEqual(
    numbers(binary("lt", fromIntegers("int64", [1], [2n ** 53n]), fromIntegers("int64", [1], [2n ** 53n + 1n]))),
    [1],
  );
});

test("bool is logic", () => {
  const a = tensor([4], [0, 0, 1, 1], "bool");
  const b = tensor([4], [0, 1, 0, 1], "bool");
  assert.deepEqual(numbers(binary("and", a, b)), [0, 0, 0, 1]);
  assert.deepEqual(numbers(binary("or", a, b)), [0, 1, 1, 1]);
  assert.deepEqual(numbers(binary("xor", a, b)), [0, 1, 1, 0]);
  assert.deepEqual(numbers(unary("not", a)), [1, 1, 0, 0]);
  assert.deepEqual(numbers(binary("add", a, b)), [0, 1, 1, 1]);
});

test("float32 rounds once, from the double result", () => {
  const third = binary("div", tensor([1], [1]), tensor([1], [3]));
  assert.equal(third.data[0], Math.fround(1 / 3));
  const half = binary("add", tensor([1], [2048], "float16"), tensor([1], [1], "float16"));
  assert.deepEqual(numbers(half), [2048]);
  assert.deepEqual(numbers(unary("exp", tensor([1], [12], "float16"))), [inf]);
  assert.deepEqual(numbers(unary("sqrt", tensor([1], [2], "bfloat16"))), [1.4140625]);
});

test("where picks bits, NaN on the other side does not leak", () => {
  const condition = tensor([3], [1, 0, 1], "bool");
  const picked = runOne("where", {}, [condition, tensor([3], [1, nan, 3]), tensor([3], [nan, 5, nan])], aval([3]));
  assert.deepEqual(numbers(picked), [1, 5, 3]);
  const z = complexTensor([3], [1, 2, 3, 4, 5, 6]);
  const w = complexTensor([3], [-1, -2, -3, -4, -5, -6]);
  assert.deepEqual(numbers(runOne("where", {}, [condition, z, w], aval([3], "complex128"))), [1, 2, -3, -4, 5, 6]);
});

test("cast truncates, saturates, wraps and drops imaginary parts as documented", () => {
  const cast = (x: Value, dtype: DType): number[] => numbers(runOne("cast", { dtype }, [x], aval(x.shape, dtype)));
  const x = tensor([6], [1.9, -1.9, nan, inf, -inf, 300], "float64");
  assert.deepEqual(cast(x, "int32"), [1, -1, 0, 2 ** 31 - 1, -(2 ** 31), 300]);
  assert.deepEqual(cast(x, "uint8"), [1, 0, 0, 255, 0, 255]);
  assert.deepEqual(cast(x, "bool"), [1, 1, 1, 1, 1, 1]);
  assert.deepEqual(cast(tensor([2], [300, -1], "int32"), "uint8"), [44, 255]);
  assert.deepEqual(cast(tensor([2], [300, -1], "int32"), "complex64"), [300, 0, -1, 0]);
  assert.deepEqual(cast(complexTensor([2], [1, 2, 0, 3]), "float32"), [1, 0]);
  assert.deepEqual(cast(complexTensor([3], [1, 2, 0, 3, 0, 0]), "bool"), [1, 1, 0]);
  assert.deepEqual(cast(tensor([1], [1 + 2 ** -9], "float64"), "bfloat16"), [1]);
  const big = runOne("cast", { dtype: "int64" }, [tensor([2], [1e30, -5.5], "float64")], aval([2], "int64"));
  assert.deepEqual(integers(big), [2n ** 63n - 1n, -5n]);
});

test("scalars and empty tensors pass through every kind of function", () => {
  for (const dtype of ["float32", "complex64", "int32"] as const) {
    assert.deepEqual(binary("add", tensor([0, 3], [], dtype), tensor([0, 3], [], dtype)).data.length, 0);
    const scalar = binary("add", tensor([], [2], dtype), tensor([], [3], dtype));
    assert.deepEqual(numbers(scalar), isComplex(dtype) ? [5, 0] : [5]);
    assert.equal(kindOf(scalar.dtype), kindOf(dtype));
  }
});
