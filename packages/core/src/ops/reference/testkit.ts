// Helpers of the reference tests: one op as a graph of its own, and comparisons of values.
import assert from "node:assert/strict";
import { type Aval, type DType, Node, type OpAttrs, type OpName, type Shape } from "../../graph/index.js";
import { evaluate } from "./evaluate.js";
import { complexes, fromComplexes, fromReals, type Value } from "./value.js";

export const param = (shape: Shape, dtype: DType = "float32"): Node<"input"> =>
  new Node("input", [], { shape, dtype, name: "x" }, { shape, dtype });

export const tensor = (shape: Shape, numbers: ArrayLike<number>, dtype: DType = "float32"): Value =>
  fromReals(dtype, shape, numbers);

/** A complex tensor from interleaved pairs. */
export function complexTensor(shape: Shape, pairs: readonly number[], dtype: DType = "complex128"): Value {
  return fromComplexes(
    dtype,
    shape,
    Array.from({ length: pairs.length / 2 }, (_, i) => ({ re: pairs[2 * i], im: pairs[2 * i + 1] })),
  );
}

export const aval = (shape: Shape, dtype: DType = "float32"): Aval => ({ shape, dtype });

/** All results of one op on the given operands. The avals are what the op's shape rule would say. */
export function runAll<K extends OpName>(
  op: K,
  attrs: OpAttrs[K],
  inputs: readonly Value[],
  avals: readonly Aval[],
): Value[] {
  const params = inputs.map((value) => param(value.shape, value.dtype));
  const node = new Node(op, params, attrs, avals);
  const outputs = avals.map((a, index) => new Node("pick", [node], { index }, a));
  return evaluate({ params, outputs }, inputs);
}

/** The result of an op that has one. */
export function runOne<K extends OpName>(op: K, attrs: OpAttrs[K], inputs: readonly Value[], result: Aval): Value {
  return runAll(op, attrs, inputs, [result])[0];
}

/** Elements as plain numbers, complex ones as interleaved pairs. */
export function numbers(value: Value): number[] {
  const pairs = complexes(value);
  const isPair = value.dtype === "complex64" || value.dtype === "complex128";
  return pairs.flatMap((z) => (isPair ? [z.re, z.im] : [z.re]));
}

/** Equal up to `tolerance`, relative where numbers are larger than 1; NaN and infinities must agree exactly. */
export function assertClose(actual: ArrayLike<number>, expected: ArrayLike<number>, tolerance = 1e-12): void {
  assert.equal(actual.length, expected.length);
  for (let i = 0; i < actual.length; i++) {
    const [a, e] = [actual[i], expected[i]];
    if (Object.is(a, e) || a === e) continue;
    const error = Math.abs(a - e) / Math.max(1, Math.abs(e));
    assert.ok(error <= tolerance, `element ${i}: ${a}, expected ${e} (off by ${error})`);
  }
}
