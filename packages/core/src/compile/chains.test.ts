// Long chains of views, pads, joins and constants, as a received graph may have them without simplification: expressions are built by
// recursion, and what is read at several places doubles. No program is compiled.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { CpuDevice } from "../device/index.js";
import type { GraphFn, Node } from "../graph/index.js";
import { build } from "../ops/index.js";

const roll = (x: Node): Node => {
  const [n] = x.shape;
  return build.concat([build.sliceAxis(x, 0, 1, n), build.sliceAxis(x, 0, 0, 1)], 0);
};

/** What a step of a chain does to a vector. */
const steps: Record<string, (x: Node, i: number) => Node> = {
  flips: (x) => build.make("flip", [x], { axes: [0] }),
  pads: (x) => build.sliceAxis(build.make("pad", [x], { low: [1], high: [0] }), 0, 1, x.shape[0] + 1),
  shifts: (x) => build.make("pad", [build.sliceAxis(x, 0, 1, x.shape[0])], { low: [0], high: [1] }),
  "reshapes of sums": (x, i) => build.reshape(build.shift(x, 1), i % 2 === 0 ? [1, 3] : [3]),
  constants: (x, i) =>
    i === 0 ? build.full([3], 0.5, "float32") : build.reshape(build.shift(x, 1), i % 2 === 0 ? [3] : [1, 3]),
};

function chain(length: number, step: (x: Node, i: number) => Node, size = 3): GraphFn {
  const x = build.input([size], "float32");
  let at: Node = x;
  for (let i = 0; i < length; i++) at = step(at, i);
  return { params: [x], outputs: [at] };
}

describe("chains in one program", { skip: CpuDevice.available() ? false : "no C compiler" }, () => {
  for (const [name, step] of Object.entries(steps))
    test(`6,000 ${name}`, () => {
      assert.ok(CpuDevice.kernelsOf(chain(6000, step)).length >= 1);
    });

  test("rolls of rolls do not double the code at every step", () => {
    const [one, many] = [1, 80].map((n) => new CpuDevice().source(chain(n, roll, 30)).length);
    assert.ok(many < 1.5 * one, `${one} characters for one roll, ${many} for 80`);
  });
});
