// Simplification changes no value: every case, and the gradient of every case, evaluated as it was traced and as it is
// compiled; the verifier runs on both. Also checks what it removes.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { type GraphFn, isOp, type Node, topological } from "../graph/index.js";
import * as weft from "../index.js";
import { ReferenceDevice, type Tensor, useDevice } from "../index.js";
import { evaluate, verify } from "../ops/index.js";
import { simplify } from "../transform/index.js";
import { cases, type DType } from "./cases/index.js";
import { differentiable, gradientFn } from "./derivatives.js";
import { type Job, jobOf, list, mismatches, upload } from "./jobs.js";
import { results, type Traced, trace } from "./traced.js";

useDevice(new ReferenceDevice());

function problems(name: string, { fn, args }: Traced, loose: number): string[] {
  verify(fn);
  const small = simplify(fn);
  verify(small);
  // Folding rounds where the device would; powers become products: some last digits may differ.
  return mismatches({ name, loose }, results(evaluate(small, args)), results(evaluate(fn, args)), 4);
}

/** Gradients with respect to the inexact inputs, if there are any. */
function gradientOf(job: Job): ((...x: Tensor[]) => Tensor[]) | null {
  const wrt = differentiable(job.inputs);
  const fn = gradientFn(job.fn, wrt);
  return wrt.length === 0 ? null : (...x) => list(fn(...x));
}

const dtypeOf = (dtypes: readonly DType[]): DType[] =>
  (["float32", "complex128", "int32", "bool"] as const).filter((d) => dtypes.includes(d)).slice(0, 2);

describe("preserves values", () => {
  for (const kind of ["values", "gradients"] as const)
    test(kind, () => {
      const wrong = cases.flatMap((item) =>
        dtypeOf(item.dtypes).flatMap((dtype) => {
          const job = jobOf(item, dtype);
          if (kind === "gradients" && item.grad === false) return [];
          const fn = kind === "values" ? (...x: Tensor[]) => list(job.fn(...x)) : gradientOf(job);
          return fn === null ? [] : problems(job.name, trace(fn, job.inputs.map(upload)), job.loose);
        }),
      );
      assert.equal(wrong.join("\n"), "");
    });
});

const opsOf = (fn: GraphFn): string[] =>
  topological(fn.outputs).map((node) => (isOp(node, "unary") || isOp(node, "binary") ? node.attrs.fn : node.op));
const count = (fn: GraphFn, op: string): number => opsOf(fn).filter((name) => name === op).length;

function simplified(fn: (...x: Tensor[]) => Tensor | Tensor[], ...shapes: number[][]): GraphFn {
  return simplify(
    trace(
      (...x) => list(fn(...x)),
      shapes.map((shape) => weft.zeros(shape)),
    ).fn,
  );
}

describe("removes", () => {
  const removed: [string, (...x: Tensor[]) => Tensor | Tensor[], string[]][] = [
    ["neutral elements", (x) => x.add(-0).mul(1).sub(0).div(1).pow(1), []],
    ["neutral elements of integers", (x) => x.cast("int32").add(0).mul(1).sub(0), ["cast"]],
    ["0 added to a float, which makes 0 of -0, stays", (x) => x.add(0), ["add"]],
    [
      "double negation and transposition",
      (x) => x.neg().neg().T.T.flip(0).flip(0).reshape([4]).reshape([2, 2]),
      ["flip", "flip"],
    ],
    ["constants", (x) => x.mul(weft.full([2, 2], 3).add(1).sqrt()), ["mul"]],
    ["equal nodes", (x) => [x.sin().add(1), x.sin().mul(2), weft.sin(x)], ["sin", "add", "mul"]],
    ["small powers", (x) => x.pow(2), ["mul"]],
    ["reductions of ones", (x) => x.reshape([1, 2, 2]).sum(0), []],
    ["where with a known answer", (x) => weft.where(weft.ones([2, 2]).greater(0), x, x.exp()), []],
    ["stopGradient", (x) => weft.stopGradient(x.sin()), ["sin"]],
  ];
  for (const [name, fn, left] of removed)
    test(name, () => {
      const computing = opsOf(simplified(fn, [2, 2])).filter(
        (op) => !["input", "const", "expand", "reshape"].includes(op),
      );
      assert.deepEqual(computing.sort(), [...left].sort());
    });

  test("ops that may give NaN are not removed", () => {
    assert.equal(
      count(
        simplified((x) => x.mul(0), [2]),
        "mul",
      ),
      1,
    );
    assert.equal(
      count(
        simplified((x) => x.sub(x), [2]),
        "sub",
      ),
      1,
    );
    assert.equal(
      count(
        simplified((x) => x.div(x), [2]),
        "div",
      ),
      1,
    );
  });

  test("a checkpointed function is computed twice, an ordinary one once", () => {
    const body = (x: Tensor) => x.exp().sin().exp();
    const plain = simplified((x) => weft.grad((v: Tensor) => body(v).sum())(x), [2]);
    const saved = simplified((x) => weft.grad((v: Tensor) => weft.checkpoint(body)(v).sum())(x), [2]);
    assert.equal(count(plain, "barrier"), 0);
    assert.equal(count(saved, "barrier"), 1);
    const both = simplified((x) => weft.valueAndGrad((v: Tensor) => weft.checkpoint(body)(v).sum())(x), [2]);
    assert.equal(count(both, "exp"), 4);
    assert.equal(
      count(
        simplified((x) => weft.valueAndGrad((v: Tensor) => body(v).sum())(x), [2]),
        "exp",
      ),
      2,
    );
  });

  test("unused results, carries and inputs of loops, and loops without steps", () => {
    const loopOf = (fn: GraphFn): Node<"scan"> => topological(fn.outputs).find((node) => isOp(node, "scan")) as never;
    const run = (x: Tensor, xs: Tensor) =>
      weft.scan(
        ([used, unused]: Tensor[], [a, b]: Tensor[]) => [
          [used.add(a), unused.mul(b)],
          [used, unused],
        ],
        [x, x.mul(2)],
        [xs, xs.mul(3)],
      );
    const one = loopOf(simplified((x, xs) => run(x, xs)[0][0], [], [5]));
    assert.deepEqual([one.attrs.carries, one.inputs.length, one.attrs.body.outputs.length], [1, 2, 1]);
    const all = loopOf(simplified((x, xs) => run(x, xs).flat(), [], [5]));
    assert.deepEqual([all.attrs.carries, all.inputs.length, all.attrs.body.outputs.length], [2, 4, 4]);
    const none = simplified((x, xs) => run(x, xs).flat(), [], [0]);
    assert.equal(count(none, "scan"), 0);
    assert.deepEqual(
      none.outputs.map((o) => o.shape),
      [[], [], [0], [0]],
    );
  });

  test("a loop stores its carries for a gradient only if they are read", () => {
    const sum = (w: Tensor, xs: Tensor) =>
      weft.scan((c: Tensor, x: Tensor) => [c.add(x.mul(w)), null], weft.zeros([]), xs)[0];
    const linear = simplified((w, xs) => weft.grad(sum)(w, xs), [], [5]);
    assert.equal(count(linear, "scan"), 1, "a linear loop needs no forward pass for its gradient");
    const bent = simplified(
      (w, xs) =>
        weft.grad(
          (v: Tensor, y: Tensor) =>
            weft.scan((c: Tensor, x: Tensor) => [c.add(x.mul(v)).sin(), null], weft.zeros([]), y)[0],
        )(w, xs),
      [],
      [5],
    );
    assert.equal(count(bent, "scan"), 2);
  });
});
