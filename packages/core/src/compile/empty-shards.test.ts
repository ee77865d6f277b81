// A rank with an empty shard takes part in the collectives of the others, whatever its own results are.
import assert from "node:assert/strict";
import { test } from "node:test";
import { bareCollective, type Node } from "../graph/index.js";
import { build, make } from "../ops/index.js";
import { scheduleFunction } from "./index.js";

const conv = { supports: () => true, widensHalf: () => true, symmetric: false, loopsDepthwise: false };

const results: Record<string, (whole: Node) => Node> = {
  "an empty product": (whole) => build.mul(build.slice(whole, [0], [0]), build.slice(whole, [0], [0])),
  "a sum of nothing": (whole) => build.sum(build.unary("exp", build.slice(whole, [0], [0])), [0]),
  "a convolution of nothing": (whole) => {
    const attrs = {
      kind: "forward",
      size: [3],
      stride: [1],
      dilation: [1],
      low: [0],
      groups: 1,
      channelsLast: false,
    } as const;
    const images = build.reshape(build.slice(whole, [0], [0]), [1, 0, 4]);
    return build.conv([images, build.full([1, 0, 2], 1, "float32")], attrs);
  },
  "an empty matrix product": (whole) => {
    const rows = build.reshape(build.slice(whole, [0], [0]), [0, 4]);
    return build.matmul(rows, build.reshape(whole, [4, 1]));
  },
};

for (const [name, resultOf] of Object.entries(results))
  test(`${name} keeps its collective`, () => {
    const x = build.input([2], "float32");
    const attrs = {
      ...bareCollective,
      kind: "allGather",
      groups: [[0, 1]],
      rank: 0,
      sizes: [2, 2],
      dtype: "float32",
    } as const;
    const whole = make("collective", [x], { ...attrs, shape: [4] });
    const { steps } = scheduleFunction(
      { params: [x], outputs: [resultOf(whole)] },
      { parallelRows: 16, longReduction: 4096, conv },
    );
    const phases = steps.flatMap((step) => (step.kind === "collective" ? [step.phase] : []));
    assert.deepEqual(phases, ["start", "finish"]);
  });
