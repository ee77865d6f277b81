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
    /__shared__/,
  );
  assert.doesNotMatch(
    source((t) => t.mul(3)),
    /__shared__/,
  );
});
