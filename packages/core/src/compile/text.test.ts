import assert from "node:assert/strict";
import { test } from "node:test";
import { CpuDevice } from "../device/index.js";
import { type GraphFn, Node, type OpAttrs, type OpName } from "../graph/index.js";
import { build } from "../ops/index.js";
import { decimal, identifier, whole, word } from "./text.js";

const payload = 'max:r0)\nsystem("touch /tmp/weft-emitted");\n#pragma omp simd reduction(max';

test("only known words, integers, finite numbers and plain names are written into source", () => {
  assert.equal(word("max"), "max");
  assert.equal(whole(-3), "-3");
  assert.equal(decimal(1e-7), "1e-7");
  assert.equal(decimal(-0), "-0.0");
  assert.equal(decimal(4), "4.0");
  assert.equal(identifier("v0o"), "v0o");
  assert.throws(() => word(payload), /in generated code/);
  for (const bad of [Number.NaN, Infinity, 1.5, 2 ** 60, "1" as never, { toString: () => "1" } as never])
    assert.throws(() => whole(bad), /in generated code/);
  for (const bad of [Number.NaN, -Infinity, "1.0" as never]) assert.throws(() => decimal(bad), /in generated code/);
  for (const bad of ["", "a b", "a;", "1a", "a\n", "é"]) assert.throws(() => identifier(bad), /in generated code/);
});

/** A function that no decoder has checked, with an attribute that is code. */
function hostile<K extends OpName>(op: K, attrs: unknown, shape: number[], inputs: Node[]): GraphFn {
  const node = new Node(op, inputs, attrs as OpAttrs[K], { shape, dtype: "float32" });
  return { params: inputs, outputs: [node] };
}

test("the emitter rejects unknown words, wherever the graph came from", { skip: !CpuDevice.available() }, () => {
  const device = new CpuDevice();
  const x = () => build.input([4, 8], "float32");
  const cases = [
    hostile("reduce", { fn: payload, axes: [1] }, [4], [x()]),
    hostile("reduce", { fn: payload, axes: [0] }, [8], [x()]),
    hostile("unary", { fn: payload }, [4, 8], [x()]),
    hostile("binary", { fn: payload }, [4, 8], [x(), x()]),
    hostile("const", { value: payload, dtype: "float32" }, [], []),
    hostile("random", { kind: payload, shape: [4], dtype: "float32" }, [4], [build.input([2], "int32")]),
  ];
  const written = cases.map((fn) => {
    try {
      return device.source(fn);
    } catch {
      return "";
    }
  });
  for (const text of written) assert.ok(!text.includes("system("), "the payload is in the source");
  // The function name of a row reduction appears in a pragma.
  assert.throws(() => device.source(cases[0]), /in generated code/);
});
