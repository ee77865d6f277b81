// Causes in traces of simulated jobs, in which one thing is wrong at a time, and in two public traces of one program.
import assert from "node:assert/strict";
import { test } from "node:test";
import { type TestEvent, TestFolder, traceText, unpackTrace } from "../trace/fixtures.testkit.js";
import { analyzeTraces } from "../trace/index.js";
import { traceChanges } from "./trace-changes.js";
import { traceFindings } from "./trace-rules.js";

interface Job {
  steps: number;
  kernels: number;
  kernelUs: number;
  kernelName: string;
  /** Host time between launches. */
  pauseUs: number;
  dataWaitUs: number;
  /** Reads of a device value per step, each followed by this much host work. */
  reads: number;
  readPauseUs: number;
  compileUs: number;
  copyUs: number;
  copyName: string;
  /** Communication per step: overlapped with the second half of the kernels, or behind them. */
  communicationUs: number;
  exposed: boolean;
  ranks: number;
  /** Factor of the work of the last rank. */
  lastFactor: number;
  seed: number;
}

const healthy: Job = {
  steps: 6,
  kernels: 40,
  kernelUs: 400,
  kernelName: "sm80_xmma_gemm_f16f16_f16f32_f32_tn_n",
  pauseUs: 10,
  dataWaitUs: 100,
  reads: 0,
  readPauseUs: 0,
  compileUs: 0,
  copyUs: 0,
  copyName: "Memcpy HtoD (Pinned -> Device)",
  communicationUs: 0,
  exposed: false,
  ranks: 1,
  lastFactor: 1,
  seed: 1,
};

/** Simulates a host that launches and a device that executes, and writes what a profiler would record. */
function simulate(job: Job, rank: number, latest: number[]): TestEvent[] {
  const events: TestEvent[] = [];
  let seed = job.seed + rank;
  const jitter = (): number => {
    seed = (Math.imul(seed, 1103515245) + 12345) >>> 0;
    return 0.97 + (0.06 * (seed >>> 16)) / 65536;
  };
  const factor = rank === job.ranks - 1 ? job.lastFactor : 1;
  let host = 1000;
  let device = 0;
  let correlation = 1;
  const hostEvent = (name: string, ts: number, dur: number, cat = "cpu_op"): void => {
    events.push({ ph: "X", cat, name, pid: 1, tid: 1, ts: round(ts), dur: round(dur) });
  };
  const launch = (name: string, dur: number, stream: number, start: number, cat: string, args: object = {}): number => {
    const id = correlation++;
    const call = cat === "gpu_memcpy" ? "cudaMemcpyAsync" : "cudaLaunchKernel";
    events.push({
      ph: "X",
      cat: "cuda_runtime",
      name: call,
      pid: 1,
      tid: 1,
      ts: round(host),
      dur: 5,
      args: { correlation: id },
    });
    events.push({
      ph: "X",
      cat,
      name,
      pid: 0,
      tid: stream,
      ts: round(start),
      dur: round(dur),
      args: { stream, correlation: id, ...args },
    });
    host += 5;
    return start + dur;
  };
  const round = (us: number): number => Math.round(us * 1000) / 1000;
  for (let step = 0; step <= job.steps; step++) {
    const begin = host;
    hostEvent("train.py(31): train", begin, 0.5, "python_function");
    const frame = events[events.length - 1];
    if (job.dataWaitUs > 0)
      hostEvent("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", host, job.dataWaitUs, "user_annotation");
    host += job.dataWaitUs;
    if (job.compileUs > 0)
      hostEvent("torch/_dynamo/convert_frame.py(500): compile_inner", host, job.compileUs, "python_function");
    host += job.compileUs;
    if (job.copyUs > 0) device = launch(job.copyName, job.copyUs, 7, Math.max(device, host + 4), "gpu_memcpy");
    for (let k = 0; k < job.kernels; k++) {
      host += job.pauseUs * jitter();
      device = launch(job.kernelName, job.kernelUs * jitter() * factor, 7, Math.max(device, host + 4), "kernel");
      if (job.reads > 0 && k % Math.ceil(job.kernels / job.reads) === 0) {
        const until = Math.max(host, device) + 10;
        hostEvent("aten::item", host, until - host);
        events.push({
          ph: "X",
          cat: "cuda_runtime",
          name: "cudaStreamSynchronize",
          pid: 1,
          tid: 1,
          ts: round(host),
          dur: round(until - host),
          args: { correlation: correlation++ },
        });
        host = until + job.readPauseUs;
      }
    }
    if (job.communicationUs > 0) {
      const ready = job.exposed ? device : device - job.kernels * job.kernelUs * 0.5;
      // A collective ends when the last rank has arrived and the transfer is done.
      latest[step] = Math.max(latest[step] ?? 0, ready);
      const end = latest[step] + job.communicationUs;
      const args = {
        "Collective name": "allreduce",
        "In msg nelems": 1e6,
        "Out msg nelems": 1e6,
        "Group size": job.ranks,
        dtype: "Float",
        "Process Group Name": "0",
        Seq: step,
      };
      launch("ncclDevKernel_AllReduce_Sum_f32_RING_LL", end - ready, 20, ready, "kernel", args);
      if (job.exposed) device = end;
    }
    // The device may lag by one step, as with real queues.
    host = Math.max(host, device - job.kernelUs * 4);
    frame.dur = round(host - begin);
    hostEvent(`ProfilerStep#${step}`, begin, host - begin, "user_annotation");
  }
  return events;
}

async function findingsOf(change: Partial<Job>): Promise<string[]> {
  const job = { ...healthy, ...change };
  using folder = new TestFolder();
  const latest: number[] = [];
  // Twice, so that every rank knows when the last one arrives.
  for (let rank = 0; rank < job.ranks; rank++) simulate(job, rank, latest);
  const files = Array.from({ length: job.ranks }, (_, rank) =>
    folder.file(
      `rank${rank}.json`,
      traceText(simulate(job, rank, latest), { distributedInfo: { rank, world_size: job.ranks } }),
    ),
  );
  return traceFindings(await analyzeTraces(files)).map((finding) => finding.id);
}

const faults: [name: string, change: Partial<Job>, first: string][] = [
  ["slow loader", { dataWaitUs: 12_000 }, "trace-data-wait"],
  ["slow loader of a small model", { dataWaitUs: 3000, kernels: 10 }, "trace-data-wait"],
  ["many tiny kernels", { kernels: 600, kernelUs: 3 }, "trace-small-kernels"],
  [
    "tiny kernels of an optimizer loop",
    { kernels: 300, kernelUs: 6, pauseUs: 20, kernelName: "elementwise_kernel" },
    "trace-small-kernels",
  ],
  ["Python work between launches", { kernels: 40, kernelUs: 60, pauseUs: 120 }, "trace-host-bound"],
  ["logging between launches", { kernels: 30, kernelUs: 100, pauseUs: 220 }, "trace-host-bound"],
  ["a loss that is read after every kernel", { reads: 40, readPauseUs: 150, kernelUs: 120 }, "trace-synchronization"],
  ["four reads per step with work behind them", { reads: 4, readPauseUs: 3000 }, "trace-synchronization"],
  ["communication behind the step", { communicationUs: 9000, exposed: true, ranks: 2 }, "trace-exposed-communication"],
  ["a slow link", { communicationUs: 30_000, ranks: 2 }, "trace-exposed-communication"],
  ["a slow rank", { communicationUs: 1500, exposed: true, ranks: 4, lastFactor: 1.6 }, "trace-straggler"],
  ["pageable copies", { copyUs: 6000, copyName: "Memcpy HtoD (Pageable -> Device)" }, "trace-copies"],
  ["recompilation in every step", { compileUs: 15_000 }, "trace-recompilation"],
  ["32-bit products", { kernelName: "volta_sgemm_128x64_tn" }, "trace-no-tensor-cores"],
];

for (const [name, change, first] of faults)
  test(`the cause of a trace: ${name}`, async () => {
    const found = await findingsOf(change);
    assert.equal(found[0], first, found.join(", "));
  });

const fine: Partial<Job>[] = [
  {},
  { seed: 7, kernels: 100, kernelUs: 150 },
  { dataWaitUs: 800, communicationUs: 4000, ranks: 2 },
  { ranks: 4, communicationUs: 2000, lastFactor: 1.02 },
  { reads: 1, readPauseUs: 50 },
  { kernels: 80, kernelUs: 90, copyUs: 300 },
];

for (const [i, change] of fine.entries())
  test(`nothing is found in healthy trace ${i + 1}`, async () => assert.deepEqual(await findingsOf(change), []));

test("ResNet-50 with 0 and 4 loader processes: the wait for data is the cause and the change", async () => {
  using folder = new TestFolder();
  const before = await analyzeTraces([unpackTrace(folder, "resnet50_workers0")]);
  const after = await analyzeTraces([unpackTrace(folder, "resnet50_workers4")]);
  const [finding] = traceFindings(before);
  assert.equal(finding.id, "trace-data-wait");
  assert.ok(!traceFindings(after).some(({ id }) => id === "trace-data-wait"));
  const { changes, beforeUs, afterUs } = traceChanges(before, after);
  assert.equal(changes[0].what, "data wait");
  assert.deepEqual([Math.round(changes[0].beforeUs / 100), Math.round(changes[0].afterUs / 100)], [706, 14]);
  assert.ok(afterUs < 0.75 * beforeUs);
  // Measured with four processes: median 126.8 ms, mean 144.4 ms.
  const [low, high] = finding.predicted?.interval ?? [0, 0];
  assert.ok(low < afterUs && afterUs < high && high < beforeUs * 1000, `${low} to ${high}, measured ${afterUs}`);
});

/** Step times (us) after four loader processes were used, without the last step, from the traces of the changed runs. */
const pairs: Record<string, number[]> = {
  resnet50_workers0: [181565, 123884, 126824, 126272, 163461],
  resnet50_b_workers0: [160076, 121940, 123110, 117820, 127064],
  resnet50_c_workers0: [215218, 173895, 173720, 170225, 172705],
  resnet50_d_workers0: [151728, 118121, 108411, 124117, 115035],
};

for (const [name, after] of Object.entries(pairs))
  test(`the step without data wait is predicted from ${name} alone`, async () => {
    using folder = new TestFolder();
    const [rank] = (await analyzeTraces([unpackTrace(folder, name)])).ranks;
    const predicted = rank.whatIf?.rows.find((row) => row.name === "no data wait")?.stepUs ?? 0;
    // The median: the first profiled step waits for work that was queued before the profiler began.
    const measured = [...after].sort((a, b) => a - b)[2];
    assert.ok(Math.abs(predicted / measured - 1) < 0.06, `predicted ${predicted}, measured ${measured} us`);
  });

test("with several streams, a blocking call is replayed as waiting for the one that it waited for", async () => {
  using folder = new TestFolder();
  const [rank] = (await analyzeTraces([unpackTrace(folder, "trace_diff_control_rank3")])).ranks;
  const { measuredStepUs, replayedStepUs, rows } = rank.whatIf ?? { measuredStepUs: 0, replayedStepUs: 0, rows: [] };
  assert.ok(Math.abs(replayedStepUs / measuredStepUs - 1) < 0.05, `${replayedStepUs} for ${measuredStepUs} us`);
  // Nothing that is taken away makes a step longer, or shorter than the work of its busiest stream.
  for (const { name, stepUs } of rows.filter((row) => row.name !== "twice the batch"))
    assert.ok(stepUs <= measuredStepUs && stepUs > 0.6 * measuredStepUs, `${name}: ${stepUs} us`);
  assert.ok((rows.find(({ name }) => name === "all communication overlapped")?.stepUs ?? 0) < 0.95 * measuredStepUs);
});

/** Steps of 20 ms of a JAX program on a CPU: an operator of 4 ms, and 15 ms of `inside`. */
function jaxTrace(inside: TestEvent): TestEvent[] {
  const on = { ph: "X", pid: 1, tid: 7 };
  return Array.from({ length: 5 }, (_, i): TestEvent[] => [
    { ...on, tid: 1, name: "train", ts: 20_000 * i, dur: 20_000, args: { step_num: i } },
    { ...on, name: "dot.1", ts: 20_000 * i + 100, dur: 4000, args: { hlo_op: "dot.1", device_ordinal: 0 } },
    { ...on, ...inside, ts: 20_000 * i + 4200, dur: 15_000 },
  ]).flat();
}

test("JAX: callbacks are named, and work of XLA without operators is not blamed on the program", async () => {
  using folder = new TestFolder();
  const found = async (inside: TestEvent): Promise<string[]> =>
    traceFindings(await analyzeTraces([folder.file("t.json", traceText(jaxTrace(inside)))])).map(({ id }) => id);
  const callback = { name: "pure_callback.1", args: { hlo_op: "pure_callback.1", device_ordinal: 0 } };
  assert.deepEqual(await found(callback), ["trace-host-callback"]);
  assert.deepEqual(await found({ name: "ThunkExecutor::Execute (wait for completion)" }), []);
  assert.deepEqual(await found({ name: "$train.py:7 load", tid: 1 }), ["trace-outside-operators"]);
});
