// Transposed reads on the emulated GPU: through tiles in shared memory, for every element size, sizes that are no multiple of
// a tile, several operands, and permutations of more axes. The oracle is the reference device.
import assert from "node:assert/strict";
import { before, test } from "node:test";
import * as weft from "../../../index.js";
import { agree, data, device, prepareEmulator, skip } from "./testkit.js";

before(prepareEmulator);

const dtypes = [
  "bool",
  "uint8",
  "int32",
  "int64",
  "float16",
  "bfloat16",
  "float32",
  "float64",
  "complex64",
  "complex128",
] as const;
const plain = (t: weft.Tensor): weft.Tensor =>
  t.dtype.startsWith("complex") ? weft.real(t).add(weft.imag(t).mul(3)) : t;

for (const dtype of dtypes)
  test(`transposed copies of ${dtype}`, { skip }, () => {
    for (const [rows, columns] of [
      [64, 64],
      [67, 129],
      [16, 200],
      [33, 31],
      [1, 40],
      [3, 50],
    ]) {
      const make = (): weft.Tensor => {
        const x = data([rows, columns], 1, 100)
          .cast(dtype === "bool" ? "int32" : dtype)
          .cast(dtype);
        const f = weft.jit((t: weft.Tensor) => {
          const other = t.dtype === "bool" ? weft.logicalNot(t.transpose()) : t.transpose().add(t.transpose());
          return other;
        });
        return plain(f(x));
      };
      agree(make, 1e-6);
    }
  });

test("several operands, one of them not transposed, and permutations of more axes", { skip }, () => {
  agree(() => {
    const f = weft.jit((a: weft.Tensor, b: weft.Tensor, c: weft.Tensor) =>
      a.transpose().mul(b).add(c.transpose().exp()),
    );
    return f(data([70, 130], 1), data([130, 70], 2), data([70, 130], 3));
  });
  agree(() => weft.jit((t: weft.Tensor) => t.transpose(0, 2).mul(2))(data([40, 3, 50], 1)));
  agree(() => weft.jit((t: weft.Tensor) => t.transpose(1, 2).mul(2))(data([5, 40, 33], 1)));
  agree(() => weft.jit((t: weft.Tensor) => t.permute([2, 0, 3, 1]).add(1))(data([4, 17, 18, 19], 1)));
  agree(() => weft.jit((t: weft.Tensor) => t.transpose().index("3:60", "5:40").mul(2))(data([48, 70], 1)));
  agree(() => weft.jit((t: weft.Tensor) => weft.concat([t.transpose(), t.transpose().mul(2)], 1))(data([48, 70], 1)));
});

test("a transposed read is a tile, a plain one is not", { skip }, () => {
  const source = (f: (t: weft.Tensor) => weft.Tensor): string => {
    const gpu = device();
    weft.setDevice(gpu);
    weft.session().forgetCompiled();
    const compile = gpu.compile.bind(gpu);
    const sources: string[] = [];
    gpu.compile = (fn, options) => {
      sources.push(gpu.source(fn, options));
      return compile(fn, options);
    };
    try {
      weft
        .jit(f)(data([80, 96], 1))
        .dataSync();
    } finally {
      gpu.compile = compile;
    }
    return sources.join("\n");
  };
  assert.match(
    source((t) => t.transpose().mul(3)),
    /__shared__ __align__\(16\) uint32_t s0/,
  );
  assert.doesNotMatch(
    source((t) => t.mul(3)),
    /__shared__ __align__\(16\) uint32_t s0/,
  );
});

test("rows that several passes read stay in registers, with and without a tail", { skip }, () => {
  // Longer than what is kept as values, in vectors of 8 and 4, and with threads that have nothing in the last round.
  for (const [rows, length] of [
    [2, 8192],
    [2, 8200],
    [1, 9000],
  ]) {
    agree(() => weft.jit((t: weft.Tensor) => weft.softmax(t))(data([rows, length], 1, 8)), 2e-5);
    agree(() => weft.jit((t: weft.Tensor) => weft.layerNorm(t))(data([rows, length], 2)), 2e-5);
    const half = (): weft.Tensor => data([rows, length], 3, 8).cast("bfloat16");
    agree(
      () =>
        weft
          .jit((t: weft.Tensor) => weft.softmax(t.cast("float32")).cast("bfloat16"))(half())
          .cast("float32"),
      1e-2,
    );
  }
});

test("gelu of half types is as exact as they are", { skip }, () => {
  const exact = (x: number): number => {
    // erfc by its continued fraction or series in double precision, independent of the kernels.
    const z = Math.abs(x) / Math.SQRT2;
    let term = z;
    let sum = z;
    for (let n = 1; n < 200; n++) {
      term *= (-z * z) / n;
      sum += term / (2 * n + 1);
    }
    const erf = z > 5 ? 1 : (2 / Math.sqrt(Math.PI)) * sum;
    return (x / 2) * (1 + Math.sign(x) * erf);
  };
  weft.setDevice(device());
  for (const [dtype, tolerance] of [
    ["bfloat16", 2 ** -8],
    ["float16", 2 ** -10],
  ] as const) {
    const x = weft.linspace(-6, 6, 2048).cast(dtype);
    const got = Array.from(
      weft
        .jit((t: weft.Tensor) => weft.gelu(t))(x)
        .cast("float32")
        .dataSync() as Float32Array,
    );
    const at = Array.from(x.cast("float32").dataSync() as Float32Array);
    at.forEach((v, i) => {
      assert.ok(
        Math.abs(got[i] - exact(v)) <= tolerance * Math.max(Math.abs(exact(v)), 2e-3),
        `gelu(${v}) = ${got[i]}`,
      );
    });
  }
});
