// Types of values that are read. The compiler checks the annotations; the test checks that they say the truth.
import assert from "node:assert/strict";
import { test } from "node:test";
import { type DataOf, type Tensor, tensor } from "../index.js";

type Same<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false;
const holds = <T extends true>(_?: T): void => undefined;

test("a tensor with its dtype in its type reads numbers or bigints", async () => {
  const x = tensor([1.5, 2]);
  const number: number = x.as("float32").dataSync()[0];
  assert.equal(number, 1.5);
  const big: bigint = tensor([5n]).as("int64").dataSync()[0];
  assert.equal(big, 5n);
  const later: number = (await x.cast("int16").as("int16").data())[0];
  assert.equal(later, 1);
  const either: number | bigint = x.dataSync()[0];
  assert.equal(either, 1.5);
  holds<Same<DataOf<"bool">, Uint8Array>>();
  holds<Same<DataOf<"bfloat16">, Float32Array>>();
  holds<Same<DataOf<"complex128">, Float64Array>>();
  holds<Same<DataOf<"uint64">, BigUint64Array>>();
  holds<Same<Tensor<"float64">["dtype"], "float64">>();
  // @ts-expect-error a bigint is not a number
  const wrong: number = tensor([5n]).as("int64").dataSync()[0];
  assert.equal(typeof wrong, "bigint");
  const wide: Tensor = x.as("float32");
  assert.equal(wide, x);
  assert.throws(() => x.as("int32"), /this tensor is float32, not int32; use cast/);
});
