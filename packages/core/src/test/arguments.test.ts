// Arguments of every wrong kind for every public function and method: programs without types pass them, and none may meet a TypeError
// from inside Weft. Calls that happen to be right compute their result.
import assert from "node:assert/strict";
import { test } from "node:test";
import * as weft from "../index.js";

/** Settings of the process, which would disturb what follows. */
const settings = new Set([
  "setDevice",
  "useDevice",
  "setMemoryPressureLimit",
  "setPrecision",
  "withPrecision",
  "session",
]);

const wrong = (): unknown[] => [
  ...[undefined, null, Number.NaN, -1, 0, 1, 2.5, 1e30, "x", "", "float32", true, 5n, () => 1, new Date(0), new Map()],
  ...[[], [0], [1, 2], [[0, 1]], [-1], ["a"], [null], {}, { axis: 0 }, { dtype: "float32" }, { dtype: "none" }],
  new Float32Array([1, 2, 3]),
  weft.tensor(1),
  weft.tensor([1, 2, 3]),
  weft.tensor([1, 2, 3], { dtype: "int32" }),
  weft.tensor([true, false, true]),
  weft.tensor([
    [1, 2],
    [3, 4],
  ]),
  weft.ones([2, 2]).cast("complex64"),
  ...[weft.zeros([0]), weft.zeros([0, 3])],
  [weft.tensor([1]), weft.tensor([2])],
  [weft.tensor([1]), null],
];

/** The same numbers in every run. */
function generator(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
}

const isFunction = (value: unknown): value is (...args: unknown[]) => unknown => typeof value === "function";

/** Methods of tensors, with those of the base class. */
const methods = [weft.Tensor.prototype, Object.getPrototypeOf(weft.Tensor.prototype)].flatMap((prototype) =>
  Object.entries(Object.getOwnPropertyDescriptors(prototype)),
);

/** Computes small results: errors may come late. */
async function settle(result: unknown): Promise<void> {
  const given = result instanceof Promise ? await result : result;
  for (const value of [given].flat())
    if (value instanceof weft.Tensor && value.size > 0 && value.size < 1e4) value.dataSync();
}

async function foreignErrors(calls: number): Promise<string[]> {
  weft.setDevice("reference");
  const below = generator(7);
  const found = new Set<string>();
  const attempt = async (name: string, call: (args: unknown[]) => unknown): Promise<void> => {
    for (let i = 0; i < calls; i++) {
      const values = wrong();
      const args = Array.from({ length: below(5) }, () => values[below(values.length)]);
      try {
        await settle(call(args));
      } catch (error) {
        if (!(error instanceof weft.WeftError)) found.add(`${name}: ${error}`);
      }
    }
  };
  for (const [name, fn] of Object.entries(weft))
    if (isFunction(fn) && !/^[A-Z]/.test(name) && !settings.has(name))
      await attempt(name, (args) => Reflect.apply(fn, null, args));
  for (const [name, { value }] of methods)
    if (isFunction(value) && name !== "constructor" && name !== "dispose")
      await attempt(`.${name}`, (args) => {
        const tensors = wrong().filter((x) => x instanceof weft.Tensor);
        return value.call(tensors[below(tensors.length)], ...args);
      });
  return [...found].sort();
}

test("arguments of a wrong kind meet an error of Weft in every public function", async () => {
  assert.deepEqual(await foreignErrors(12), []);
});

test("the message names the argument, what was given and what is needed", () => {
  const x = weft.ones([1, 1, 4]);
  const array = [[[1]]] as never;
  assert.throws(
    () => weft.conv1d(x, array),
    /conv1d: weight must be a tensor, got an array \(wrap it in weft.tensor\)/,
  );
  assert.throws(() => weft.outer(undefined as never, x), /outer: a must be a tensor, got undefined/);
  assert.throws(
    () => weft.scan(x as never, x, x),
    /scan: step must be a function, got a float32 tensor of shape \[1, 1, 4\]/,
  );
  assert.throws(() => weft.zeros(5n as never), /zeros: a shape is an array of non-negative integers, got 5/);
  assert.throws(() => x.slice(1 as never, 2 as never), /slice: start must be an array, got number 1/);
});
