// Operators behind kernels: operations against PyTorch's own counter on traces of an H200, attribution to modules and lines,
// the roofline by hand, and hostile shapes.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { launched, type TestEvent, TestFolder, testdata, traceText, unpackTrace } from "./fixtures.testkit.js";
import { operatorWork } from "./flops.js";
import { peaksOf } from "./gpus.js";
import type { OperatorRow } from "./operators.js";
import { analyzeTraces } from "./ranks.js";

const near = (a: number | null | undefined, b: number): void =>
  assert.ok(a != null && Math.abs(a - b) <= 1e-9 * Math.abs(b), `${a} is not ${b}`);

const counted = JSON.parse(readFileSync(testdata("h200_flops.json"), "utf8")) as {
  steps: Record<string, { total: number; ops: Record<string, number> }>;
};

for (const [name, source] of [
  ["h200_eager", "h200_eager"],
  ["h200_compiled", "h200_eager"],
  ["h200_streams", "h200_streams"],
])
  test(`operations of ${name} equal those of PyTorch's counter`, async () => {
    using folder = new TestFolder();
    const [rank] = (await analyzeTraces([unpackTrace(folder, name)])).ranks;
    const { operators } = rank;
    assert.equal(operators?.flopsPerStep, counted.steps[source].total);
    assert.equal(operators?.attributedPercent, 100);
    for (const [op, flops] of Object.entries(counted.steps[source].ops)) {
      const wanted = op.replace("aten.", "aten::");
      // Eager code calls the public function around the chosen implementation.
      const outer = wanted.replace(/_scaled(.*)_cudnn_attention$/, "scaled$1_attention");
      const row: OperatorRow | undefined = operators?.rows.find(({ name: one }) => one === wanted || one === outer);
      assert.equal(row?.flops, 2 * flops, op);
    }
    // All device time is in the table, once.
    const time = operators?.rows.reduce((sum, row) => sum + row.deviceUs, 0) ?? 0;
    near(
      time,
      rank.kernels.reduce((sum, kernel) => sum + kernel.sumUs, 0),
    );
  });

test("forward and backward kernels belong to the module and the line of the forward operator", async () => {
  using folder = new TestFolder();
  const [{ operators }] = (await analyzeTraces([unpackTrace(folder, "h200_streams")])).ranks;
  const time = (list: { name: string; us: number }[] | undefined, name: string): number =>
    list?.find((one) => one.name === name)?.us ?? 0;
  // Conv2d_1 alone has a gradient with respect to its input and costs the most.
  assert.equal(operators?.modules[0].name, "Conv2d_1");
  assert.ok(time(operators?.modules, "Conv2d_1") > 2 * time(operators?.modules, "Conv2d_0"));
  assert.deepEqual(operators?.lines.map((line) => line.name).sort(), [
    "probe_gpu.py(123): forward",
    "probe_gpu.py(292): step",
  ]);
  const backward = operators?.rows.find((row) => row.name === "aten::convolution_backward");
  assert.equal(backward?.backwardUs, backward?.deviceUs);
});

test("kernels of a CUDA graph have no operator, and no utilization is claimed for them", async () => {
  using folder = new TestFolder();
  const [{ operators }] = (await analyzeTraces([unpackTrace(folder, "h200_graph")])).ranks;
  assert.deepEqual([operators?.attributedPercent, operators?.mfuPercent], [0, null]);
  assert.deepEqual(
    operators?.rows.map((row) => [row.name, row.flops]),
    [["cudaGraphLaunch", null]],
  );
});

const operator = (name: string, ts: number, dur: number, args: Record<string, unknown>): TestEvent => ({
  ph: "X",
  cat: "cpu_op",
  name,
  pid: 100,
  tid: 1,
  ts,
  dur,
  args,
});

test("rates and roof by hand", async () => {
  using folder = new TestFolder();
  const args = {
    "Input Dims": [
      [64, 1024],
      [1024, 512],
    ],
    "Input type": ["c10::BFloat16", "c10::BFloat16"],
  };
  const events = [
    operator("aten::matmul", 0, 50, args),
    operator("aten::mm", 5, 40, args),
    ...launched(1, { ts: 10, dur: 5 }, { name: "nvjet_hsh", ts: 20, dur: 10 }),
    ...launched(2, { ts: 16, dur: 5 }, { name: "splitKreduce", ts: 30, dur: 10 }),
    operator("aten::add_", 60, 20, { "Input Dims": [[1024], [1024]], "Input type": ["float", "float"] }),
    ...launched(3, { ts: 62, dur: 5 }, { name: "elementwise", ts: 70, dur: 1 }),
  ];
  const file = folder.file(
    "a.json",
    traceText(events, { deviceProperties: [{ id: 0, name: "NVIDIA H100 80GB HBM3" }] }),
  );
  const [{ operators }] = (await analyzeTraces([file])).ranks;
  const [mm, add] = operators?.rows ?? [];
  const flops = 2 * 64 * 1024 * 512;
  const bytes = 2 * (64 * 1024 + 1024 * 512 + 64 * 512);
  assert.deepEqual(
    [mm.name, mm.calls, mm.kernels, mm.deviceUs, mm.flops, mm.bytes],
    ["aten::mm", 1, 2, 20, flops, bytes],
  );
  near(mm.tflops, flops / 20e-6 / 1e12);
  near(mm.bandwidthGBps, bytes / 20e-6 / 1e9);
  near(mm.roofTflops, ((flops / bytes) * 3350) / 1000);
  near(mm.roofPercent, (100 * (flops / 20e-6 / 1e12)) / (((flops / bytes) * 3350) / 1000));
  assert.deepEqual([mm.limit, mm.precision, mm.tensorCorePercent, add.bytes], ["memory", "bf16", 50, 3 * 4096]);
  near(add.roofPercent, (100 * (3 * 4096)) / 1e-6 / 1e9 / 3350);
  // Without steps the time is the span: 20 to 71 us.
  near(operators?.mfuPercent, (100 * flops) / 51e-6 / 989e12);
  near(operators?.tensorCorePercent, (100 * 10) / 21);
});

test("operations of convolutions with stride, dilation, groups and transposition", () => {
  const conv = (x: number[], w: number[], stride: string, padding: string, dilation: string, transposed = "False") =>
    operatorWork("aten::convolution", {
      dims: [x, w, [], [], [], [], [], [], []],
      types: ["float", "float", "", "ScalarList", "ScalarList", "ScalarList", "Scalar", "ScalarList", "Scalar"],
      values: ["", "", "", stride, padding, dilation, transposed, "[0, 0]", "1"],
    }).flops;
  // (32 + 2 - 2 * 2 - 1) / 2 + 1 = 15 positions per side.
  assert.equal(conv([2, 8, 32, 32], [16, 8, 3, 3], "[2, 2]", "[1, 1]", "[2, 2]"), 2 * 2 * 15 * 15 * 16 * 8 * 9);
  assert.equal(conv([2, 8, 32, 32], [8, 1, 3, 3], "[1]", "[1]", "[1]"), 2 * 2 * 32 * 32 * 8 * 9);
  assert.equal(conv([2, 8, 4, 4], [8, 4, 2, 2], "[2, 2]", "[0, 0]", "[1, 1]", "True"), 2 * 2 * 16 * 8 * 4 * 4);
  // Traces of older versions have no values: nothing is claimed.
  assert.equal(
    operatorWork("aten::convolution", {
      dims: [
        [2, 8, 32, 32],
        [16, 8, 3, 3],
      ],
      types: [],
      values: [],
    }).flops,
    null,
  );
});

test("malformed shapes and unknown devices give no numbers and no failure", async () => {
  using folder = new TestFolder();
  const dims: unknown[] = [
    [
      [1e300, 1e300],
      [1e300, 1e300],
    ],
    "[[4, 4]",
    [
      ["a", 4],
      [4, 4],
    ],
    [
      [-1, 2],
      [2, 2],
    ],
    [
      [4, 5],
      [4, 5],
    ],
    {},
    7,
  ];
  const events = dims.flatMap((one, i) => [
    operator("aten::mm", i * 100, 50, { "Input Dims": one, "Input type": ["float"], "Sequence number": 1e30 }),
    ...launched(i + 1, { ts: i * 100 + 10, dur: 5 }, { name: "gemm", ts: i * 100 + 20, dur: 10 }),
  ]);
  const file = folder.file("a.json", traceText(events, { deviceProperties: [{ name: "Abacus 9000" }] }));
  const [{ operators }] = (await analyzeTraces([file])).ranks;
  const [row] = operators?.rows ?? [];
  assert.deepEqual(
    [row.calls, row.deviceUs, row.flops, row.tflops, operators?.peaks, operators?.mfuPercent],
    [7, 70, null, null, null, null],
  );
  assert.equal(peaksOf("NVIDIA H200")?.bandwidthGBps, 4800);
  assert.equal(peaksOf("NVIDIA A100-SXM4-80GB")?.bandwidthGBps, 2039);
  assert.equal(peaksOf("NVIDIA A100-SXM4-40GB")?.tflops.bf16, 312);
});
