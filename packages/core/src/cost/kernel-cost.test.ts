// Kernel costs computed by hand from round rates: nothing here is timed.
import assert from "node:assert/strict";
import { test } from "node:test";
import type { Node } from "../graph/index.js";
import { build } from "../ops/index.js";
import { costKernels, type KernelWork, predictKernels, productTime, tableTime } from "./kernel-cost.js";
import { wholeOf, workOf, workTime } from "./op-time.js";
import { linkTime, parseRates, type Rates, sameLinks, valueAt } from "./rates.js";

/** 1 ns per simple operation, 10 GB/s near and 1 GB/s far, 1 us per kernel, 5 us per call. */
const rates: Rates = {
  name: "round",
  assumed: true,
  matmul: { float32: [[64, 1e10]] },
  linalg: 1e9,
  bandwidth: [
    [1e6, 1e10],
    [1e7, 1e9],
  ],
  simple: 1e9,
  special: 1e8,
  lookup: 1e8,
  random: 1e8,
  kernel: 1e-6,
  call: 5e-6,
  links: sameLinks([{ members: 2, latency: 1e-5, bandwidth: 1e9 }]),
};
const close = (actual: number, expected: number): void =>
  assert.ok(Math.abs(actual - expected) <= 1e-9 * Math.abs(expected), `${actual} is not ${expected}`);
const plain = (touches: [string, number][], ops: KernelWork["ops"] = {}): KernelWork => ({
  touches: touches.map(([place, bytes]) => ({ place, bytes })),
  ops,
  rows: 0,
});

test("a kernel takes the maximum of its memory and arithmetic time, plus the call", () => {
  // 20 kB at 10 GB/s: 2 us; 8000 simple operations: 8 us; 100 of exp at a tenth: 1 us.
  const work = plain(
    [
      ["a", 1e4],
      ["b", 1e4],
    ],
    { simple: 8000, exp: 100 },
  );
  const [cost] = costKernels([work], rates);
  close(cost.memory, 2e-6);
  close(cost.arithmetic, 9e-6);
  close(cost.seconds, 1e-6 + 9e-6);
  close(predictKernels([work], rates), 5e-6 + 1e-6 + 9e-6);
  close(costKernels([plain([["a", 1e5]], { simple: 10 })], rates)[0].seconds, 1e-6 + 1e-5);
});

test("memory with a large reuse distance comes from DRAM", () => {
  const small = plain([["a", 1e5]]);
  const sweep = plain([["b", 2e7]]);
  // On its own, the small kernel finds its memory in the cache from the previous call; after a sweep it does not.
  close(costKernels([small, small], rates)[1].memory, 1e5 / 1e10);
  const [cold] = costKernels([small, sweep], rates);
  close(cold.memory, 1e5 / 1e9);
  // Halfway in the logarithm of the distance the bandwidth is halfway, too.
  close(valueAt(rates.bandwidth, Math.sqrt(1e13)), (1e10 + 1e9) / 2);
});

test("narrow accesses to far memory run at the rate of their width", () => {
  const narrow: Rates = { ...rates, columns: [[128, 1e8]] };
  const work: KernelWork = { touches: [{ place: "a", bytes: 2e7, run: 128 }], ops: {}, rows: 0 };
  close(costKernels([work], narrow)[0].memory, 2e7 / 1e8);
  close(costKernels([work], rates)[0].memory, 2e7 / 1e9);
  const near: KernelWork = { touches: [{ place: "a", bytes: 1e5, run: 128 }], ops: {}, rows: 0 };
  close(costKernels([near], narrow)[0].memory, 1e5 / 1e10);
});

const cube = (value: (m: number, n: number, k: number) => number): number[] =>
  [1, 10].flatMap((m) => [1, 10].flatMap((n) => [1, 10].map((k) => value(m, n, k))));

test("products are interpolated in a table by shape and layout, and proportional beyond it", () => {
  const table = {
    sizes: [1, 10],
    nn: cube((m, n, k) => 1e-9 * m * n * k),
    tn: cube((m, n, k) => 2e-9 * m * n * k),
    nt: cube((m, n, k) => 3e-9 * m * n * k),
    ns: cube((m, n, k) => 4e-9 * m * n * k),
  };
  const shape = { dtype: "float32" as const, batch: 1, m: 10, n: 10, k: 10, left: false, right: false };
  close(tableTime(table, shape), 1e-6);
  close(tableTime(table, { ...shape, left: true }), 2e-6);
  close(tableTime(table, { ...shape, right: true }), 3e-6);
  close(tableTime(table, { ...shape, spread: true }), 4e-6);
  close(tableTime(table, { ...shape, m: 5, k: 2 }), 1e-9 * 5 * 10 * 2);
  close(tableTime(table, { ...shape, n: 400 }), 1e-9 * 10 * 400 * 10);
  const measured: Rates = { ...rates, products: { float32: table } };
  close(productTime(measured, { ...shape, batch: 7 }), 7e-6);
  close(productTime(rates, { ...shape, batch: 7 }), (2 * 7 * 1000) / 1e10);
  // Fetching operands is added to a product in cache, and the epilogue to both.
  const work: KernelWork = { ...plain([["a", 1e5]], { simple: 1000 }), product: shape };
  close(costKernels([work], measured)[0].seconds, 1e-6 + 1e-6 + 1e5 / 1e10 + 1e-6);
});

test("messages have a latency and a bandwidth by size", () => {
  const curve: [number, number][] = [
    [1e4, 1e9],
    [1e6, 3e9],
  ];
  const linked: Rates = { ...rates, links: sameLinks([{ members: 2, latency: 1e-5, bandwidth: 3e9, curve }]) };
  close(linkTime(linked, "allReduce", 2, 0), 1e-5);
  close(linkTime(linked, "allReduce", 2, 100), 1e-5 + 100 / 1e9);
  close(linkTime(linked, "allReduce", 2, 1e5), 1e-5 + 1e5 / 2e9);
  close(linkTime(linked, "allReduce", 2, 6e6), 1e-5 + 6e6 / 3e9);
  const work: KernelWork = { ...plain([]), collective: { kind: "allReduce", members: 2, bytes: 1e5 } };
  close(costKernels([work], linked)[0].seconds, 1e-5 + 5e-5);
});

test("a loop costs its steps, with its memory in cache after the first", () => {
  const step = plain([["step", 1e5]], { simple: 1000 });
  const loop: KernelWork = { ...plain([]), loop: { steps: 50, kernels: [step] } };
  const sweep = plain([["sweep", 2e7]]);
  const [cost] = costKernels([loop, sweep], rates);
  close(cost.seconds, 1e-6 + 1e5 / 1e9 + 49 * (1e-6 + 1e5 / 1e10));
  close(costKernels([loop], rates)[0].seconds, 50 * (1e-6 + 1e5 / 1e10));
});

test("rates from a file are validated completely", () => {
  const good = { ...rates, ops: { exp: 1e8 }, row: 1e-9, columns: [[128, 1e9]] };
  assert.equal(parseRates(JSON.parse(JSON.stringify(good))).ops?.exp, 1e8);
  const bad: [object, RegExp][] = [
    [{ ops: { exp: -1 } }, /exp/],
    [{ columns: [] }, /columns/],
    [
      {
        columns: [
          [128, 1e9],
          [64, 1e9],
        ],
      },
      /ascending/,
    ],
    [{ bandwidth: [[1, "x"]] }, /bandwidth/],
    [{ bandwidth: [null] }, /bandwidth/],
    [{ row: "long" }, /row/],
    [{ products: { float32: { sizes: [1, 10], nn: [1], tn: [1], nt: [1], ns: [1] } } }, /products of float32/],
    [{ links: sameLinks([{ members: 2, latency: 0, bandwidth: 1, curve: [[1, 0]] }]) }, /link/],
  ];
  for (const [part, message] of bad) assert.throws(() => parseRates({ ...good, ...part }), message);
});

test("products of doubles run at half the rate of floats, many small ones at the unrolled rate", () => {
  const operand = (shape: number[]): Node => build.input(shape, "complex128");
  const costOfProduct = (left: number[], right: number[], given: Rates): number => {
    const params = [operand(left), operand(right)];
    const product = build.matmul(params[0], params[1]);
    const work = workOf({ params, outputs: [product] }).get(product)!;
    return workTime(product, work, wholeOf(product), given, () => 0);
  };
  const memoryless: Rates = { ...rates, bandwidth: [[1, 1e15]] };
  // Four real products of 2 x 64^3 operations at 5e9 each, and a kernel.
  assert.ok(Math.abs(costOfProduct([64, 64], [64, 64], memoryless) - (1e-6 + (8 * 64 ** 3) / 5e9)) < 1e-9);
  const small = { ...memoryless, ops: { product: 2e9 } };
  // 100 of 4 x 4 x 4, four real products each.
  assert.ok(Math.abs(costOfProduct([100, 4, 4], [100, 4, 4], small) - (1e-6 + (100 * 4 * 64) / 2e9)) < 1e-9);
  // Too few or too large to be unrolled.
  for (const [left, right] of [
    [
      [4, 4, 4],
      [4, 4, 4],
    ],
    [
      [100, 32, 32],
      [100, 32, 32],
    ],
  ])
    assert.equal(costOfProduct(left, right, small), costOfProduct(left, right, memoryless));
});
