// Products with their epilogues inside: what the compiler recognizes, and that cuBLASLt (played on the host) is told the
// right thing; against the reference device.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import * as weft from "../../../index.js";
import { useCudaLibraries } from "../driver.js";
import { CudaDevice } from "../index.js";
import { canEmulate, emulatedLibraries } from "./index.js";

const skip = canEmulate() ? false : "no C++ compiler";
const calls = { log: [] as string[] };
const reference = new weft.ReferenceDevice();
let device: CudaDevice;

before(() => {
  if (skip !== false) return;
  const found = useCudaLibraries(emulatedLibraries(calls));
  device = new CudaDevice(0, { graphs: false });
  useCudaLibraries(found);
});
after(() => weft.setDevice(reference));

type Args = weft.Tensor[];

/** Runs on both devices, compares, and says what the emulated one called. */
function run(fn: (...args: Args) => weft.Tensor, shapes: number[][]): string[] {
  const on = (where: weft.Device): ArrayLike<number> => {
    weft.setDevice(where);
    const args = shapes.map((shape, i) => weft.randn(shape, { seed: i + 1 }).realize());
    calls.log.length = 0;
    return weft
      .jit(fn)(...args)
      .dataSync() as ArrayLike<number>;
  };
  const expected = on(reference);
  const got = on(device);
  for (let i = 0; i < expected.length; i++)
    assert.ok(
      Math.abs(got[i] - expected[i]) < 2e-5 * (1 + Math.abs(expected[i])),
      `element ${i}: ${got[i]}, ${expected[i]}`,
    );
  return [...calls.log];
}

const linear = [[7, 5], [5, 6], [6]];

test("a bias, an activation, or both go into the product: one call, no kernel", { skip }, () => {
  const inside: [string, (...args: Args) => weft.Tensor][] = [
    ["bias", (x, w, b) => x.matmul(w).add(b)],
    ["bias first", (x, w, b) => b.add(x.matmul(w))],
    ["bias and relu", (x, w, b) => x.matmul(w).add(b).relu()],
    ["relu", (x, w) => x.matmul(w).relu()],
    ["bias and gelu", (x, w, b) => weft.gelu(x.matmul(w).add(b), { approximate: true })],
    [
      "transposed weights",
      (x, w, b) =>
        x
          .matmul(w.reshape([6, 5]).transpose())
          .add(b)
          .relu(),
    ],
    ["transposed input", (x, w, b) => x.reshape([5, 7]).transpose().matmul(w).add(b)],
  ];
  for (const [name, fn] of inside) assert.deepEqual(run(fn, linear), ["cublasLtMatmul"], name);
});

test("a constant factor goes into the product, with cuBLAS alone too", { skip }, () => {
  assert.deepEqual(
    run((x, w) => x.matmul(w).mul(0.125), linear),
    ["cublasGemmEx"],
  );
  assert.deepEqual(
    run((x, w) => x.matmul(w).mul(2).mul(0.3), linear),
    ["cublasGemmEx"],
  );
  const found = useCudaLibraries({ ...emulatedLibraries(calls), lt: null });
  const before = device;
  device = new CudaDevice(0, { graphs: false });
  useCudaLibraries(found);
  try {
    assert.deepEqual(
      run((x, w) => x.matmul(w).mul(0.125), linear),
      ["cublasGemmEx"],
    );
    // The bias is a kernel here, which then scales as well: not twice.
    assert.equal(run((x, w, b) => x.matmul(w).mul(0.25).add(b), linear).length, 2);
  } finally {
    device = before;
  }
});

test("what a library does not do stays a kernel after the product", { skip }, () => {
  const outside: [string, (...args: Args) => weft.Tensor, number[][]][] = [
    ["a bias a row", (x, w, b) => x.matmul(w).add(b), [...linear.slice(0, 2), [7, 1]]],
    ["a matrix", (x, w, b) => x.matmul(w).add(b), [...linear.slice(0, 2), [7, 6]]],
    ["one number", (x, w, b) => x.matmul(w).add(b), [...linear.slice(0, 2), [1]]],
    ["another function", (x, w, b) => x.matmul(w).add(b).tanh(), linear],
    ["the exact gelu", (x, w, b) => weft.gelu(x.matmul(w).add(b)), linear],
    ["twice the bias", (x, w, b) => x.matmul(w).add(b).add(b), linear],
    ["relu below something else", (x, w, b) => x.matmul(w).relu().add(b), linear],
    ["another threshold", (x, w) => x.matmul(w).maximum(0.5), linear],
  ];
  for (const [name, fn, shapes] of outside) {
    const log = run(fn, shapes);
    assert.equal(log.length, 2, `${name}: ${log.join(", ")}`);
    assert.equal(log[0], "cublasGemmEx", name);
  }
});

test("a product whose result is square does not confuse rows and columns", { skip }, () => {
  assert.deepEqual(
    run((x, w, b) => x.matmul(w).add(b), [[6, 5], [5, 6], [6]]),
    ["cublasLtMatmul"],
  );
  const rows = run(
    (x, w, b) => x.matmul(w).add(b),
    [
      [6, 5],
      [5, 6],
      [6, 1],
    ],
  );
  assert.equal(rows[0], "cublasGemmEx");
});

test("without cuBLASLt the epilogue is a kernel, and the numbers are the same", { skip }, () => {
  const found = useCudaLibraries({ ...emulatedLibraries(calls), lt: null });
  const before = device;
  device = new CudaDevice(0, { graphs: false });
  useCudaLibraries(found);
  try {
    const log = run((x, w, b) => x.matmul(w).add(b).relu(), linear);
    assert.deepEqual([log.length, log[0]], [2, "cublasGemmEx"]);
  } finally {
    device = before;
  }
});
