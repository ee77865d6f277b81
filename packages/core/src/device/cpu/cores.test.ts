import assert from "node:assert/strict";
import { availableParallelism } from "node:os";
import { test } from "node:test";
import { coreOrder, orderCores, parseCpuList } from "./cores.js";

test("the first threads of cores come before the second ones, however they are numbered", () => {
  assert.deepEqual(parseCpuList("0-2,8,10-11\n"), [0, 1, 2, 8, 10, 11]);
  const neighbors = (cpu: number): number[] => [cpu & ~1, cpu | 1];
  assert.deepEqual(orderCores([0, 1, 2, 3, 4, 5, 6, 7], neighbors), [0, 2, 4, 6, 1, 3, 5, 7]);
  const halves = (cpu: number): number[] => [cpu % 4, (cpu % 4) + 4];
  assert.deepEqual(orderCores([0, 1, 2, 3, 4, 5, 6, 7], halves), [0, 1, 2, 3, 4, 5, 6, 7]);
  // A process that may use some threads only: a second thread whose first one is not ours is a core.
  assert.deepEqual(orderCores([1, 2, 3], neighbors), [1, 2, 3]);
});

test("the core order lists every core once", () => {
  const cores = coreOrder();
  assert.equal(new Set(cores).size, cores.length);
  assert.ok(cores.length >= 1 && cores.length <= availableParallelism());
});
