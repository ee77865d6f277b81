// Analyses of small traces whose results can be computed by hand.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { gunzipSync } from "node:zlib";
import { mergeTraces } from "./chrome.js";
import { diffTraces } from "./diff.js";
import { launched, type TestEvent, TestFolder, traceText, unpackTrace } from "./fixtures.testkit.js";
import { analyzeInWorkers, workersFor } from "./parallel.js";
import { analyzeTraceFile } from "./rank.js";
import { analyzeTraces } from "./ranks.js";

const allReduce = (elements: number): Record<string, unknown> => ({
  "Collective name": "allreduce",
  "In msg nelems": elements,
  "Out msg nelems": elements,
  "Group size": 2,
  dtype: "Float",
});

/** A rank that computes 100 us, then reduces; `late` shifts its collective without moving where it ends. */
function rankTrace(rank: number, late: number, clock = 0): string {
  const events: TestEvent[] = [];
  for (let i = 0; i < 8; i++) {
    const t = clock + i * 1000;
    events.push(
      ...launched(2 * i, { ts: t, dur: 5 }, { name: "gemm", ts: t + 10, dur: 100 }),
      ...launched(
        2 * i + 1,
        { ts: t + 20, dur: 5 },
        {
          name: "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
          ts: t + 60 + late,
          dur: 140 - late,
          stream: 20,
          args: allReduce(1000),
        },
      ),
    );
  }
  return traceText(events, { distributedInfo: { rank, world_size: 2 } });
}

test("busy and idle time, overlap, collectives and launches equal values computed by hand", async () => {
  using folder = new TestFolder();
  const report = await analyzeTraces([folder.file("a.json", rankTrace(0, 0))]);
  const [rank] = report.ranks;
  // Each round: gemm 10..110, all-reduce 60..200; rounds start 1000 apart, the last ends at 7200.
  assert.equal(rank.spanUs, 7190);
  assert.equal(rank.idleUs, 7190 - 8 * 190);
  assert.equal(rank.computeUs, 800);
  assert.equal(rank.nonComputeUs, 8 * 90);
  assert.equal(rank.communicationUs, 8 * 140);
  assert.equal(rank.exposedCommunicationUs, 8 * 90);
  assert.equal(rank.overlapPercent, 35.71);
  assert.deepEqual(rank.collectives, [
    {
      collective: "allreduce",
      bytes: 4000,
      groupSize: 2,
      group: "",
      count: 8,
      sumUs: 1120,
      meanUs: 140,
      minUs: 140,
      maxUs: 140,
      algorithmGBps: 4000 / 140 / 1000,
      busGBps: 4000 / 140 / 1000,
    },
  ]);
  assert.deepEqual(
    rank.kernels.map((k) => [k.name, k.count, k.sumUs, k.meanUs, k.stdUs]),
    [
      ["ncclDevKernel_AllReduce_Sum_f32_RING_LL", 8, 1120, 140, 0],
      ["gemm", 8, 800, 100, 0],
    ],
  );
  assert.equal(rank.launches?.launches, 16);
  assert.equal(rank.launches?.callUs.mean, 5);
  assert.equal(rank.launches?.delayUs.mean, (5 + 35) / 2);
  assert.deepEqual(
    rank.idle.map((s) => [s.stream, s.hostWaitUs, s.kernelWaitUs, s.otherUs]),
    [
      [7, 7 * 900, 0, 0],
      [20, 7 * 860, 0, 0],
    ],
  );
  assert.deepEqual(report.missingRanks, [1]);
  assert.match(report.problems[0], /traces of rank 1 are missing/);
  assert.equal(report.waitingPercent, null);
});

test("waiting is separated from transfer and the late rank is found, independent of clock offsets", async () => {
  using folder = new TestFolder();
  for (const clock of [0, 5_000_000]) {
    const report = await analyzeTraces([
      folder.file("a.json", rankTrace(0, 0)),
      folder.file("b.json", rankTrace(1, 40, clock)),
    ]);
    assert.deepEqual(report.skew, [
      { collective: "allreduce", bytes: 4000, count: 8, transferUs: 100, skewUs: 40, lastRank: 1, lastCount: 8 },
    ]);
    assert.deepEqual(report.stragglers, [{ rank: 1, last: 8, of: 8, causedWaitUs: 320 }]);
    assert.equal(report.waitingPercent, (100 * 40) / 240);
    assert.deepEqual(report.clockOffsets, [
      { rank: 0, us: 0 },
      { rank: 1, us: -clock || 0 },
    ]);
    assert.deepEqual(report.missingRanks, []);
  }
});

test("equally late ranks are not stragglers", async () => {
  using folder = new TestFolder();
  const report = await analyzeTraces([folder.file("a.json", rankTrace(0, 0)), folder.file("b.json", rankTrace(1, 0))]);
  assert.deepEqual(report.stragglers, []);
  assert.equal(report.waitingPercent, 0);
});

test("the critical path follows dependencies, and its parts sum to its length", async () => {
  using folder = new TestFolder();
  const events: TestEvent[] = [
    ...launched(1, { ts: 0, dur: 5 }, { name: "first", ts: 10, dur: 100 }),
    ...launched(2, { ts: 6, dur: 4 }, { name: "second", ts: 112, dur: 50 }),
    {
      ph: "X",
      cat: "cuda_runtime",
      name: "cudaDeviceSynchronize",
      pid: 100,
      tid: 1,
      ts: 20,
      dur: 145,
      args: { correlation: 3 },
    },
    ...launched(4, { ts: 400, dur: 5 }, { name: "third", ts: 410, dur: 30 }),
    ...launched(5, { ts: 402, dur: 5 }, { name: "unwaited", ts: 415, dur: 5, stream: 9 }),
  ];
  const [rank] = (await analyzeTraces([folder.file("a.json", traceText(events))])).ranks;
  const path = rank.criticalPath!;
  assert.equal(path.totalUs, 430);
  assert.equal(path.computeUs, 180);
  assert.equal(path.launchUs, 10);
  assert.equal(path.betweenKernelsUs, 2);
  assert.equal(path.hostUs, 238, "from the end of the second kernel to the third launch");
  assert.deepEqual(
    path.kernels.map((k) => k.name),
    ["first", "second", "third"],
  );
});

test("the critical path terminates for kernels of zero duration", async () => {
  using folder = new TestFolder();
  const events = [0, 1, 2, 3].flatMap((i) =>
    launched(i, { ts: i, dur: 0 }, { name: `k${i}`, ts: 100, dur: 0, stream: i }),
  );
  events.push(...launched(9, { ts: 50, dur: 1 }, { name: "end", ts: 100, dur: 10 }));
  const [rank] = (await analyzeTraces([folder.file("a.json", traceText(events))])).ranks;
  assert.equal(rank.criticalPath!.totalUs, 10);
});

test("the last profiler step is left out of two or more, with the kernels that it launched", async () => {
  using folder = new TestFolder();
  const step = (n: number, ts: number): TestEvent => ({
    ph: "X",
    cat: "user_annotation",
    name: `ProfilerStep#${n}`,
    pid: 100,
    tid: 1,
    ts,
    dur: 100,
  });
  const events = [
    step(1, 0),
    ...launched(1, { ts: 1, dur: 1 }, { name: "a", ts: 110, dur: 10 }),
    step(2, 100),
    ...launched(2, { ts: 101, dur: 1 }, { name: "a", ts: 130, dur: 10 }),
  ];
  const [both] = (await analyzeTraces([folder.file("a.json", traceText(events))])).ranks;
  assert.equal(both.kernels[0].count, 1);
  assert.deepEqual(both.steps, [{ number: 1, us: 100 }]);
  const [one] = (
    await analyzeTraces([folder.file("b.json", traceText(events.filter((e) => e.name !== "ProfilerStep#2")))])
  ).ranks;
  assert.equal(one.kernels[0].count, 2);
});

test("the last step is cut on the host, or where HTA cuts; host operators that name a stream are not kernels", async () => {
  using folder = new TestFolder();
  const mark = (cat: string, n: number, ts: number): TestEvent => ({
    ph: "X",
    cat,
    name: `ProfilerStep#${n}`,
    pid: 1,
    tid: 1,
    ts,
    dur: 90,
  });
  const events = [
    mark("user_annotation", 1, 0),
    mark("user_annotation", 2, 100),
    mark("gpu_user_annotation", 2, 120),
    ...launched(1, { ts: 10, dur: 1 }, { name: "a", ts: 20, dur: 10 }),
    // Launched in the second step, but before its mark on the device: Holistic Trace Analysis keeps it.
    ...launched(2, { ts: 110, dur: 1 }, { name: "b", ts: 130, dur: 10 }),
    ...launched(3, { ts: 125, dur: 1 }, { name: "c", ts: 150, dur: 10 }),
    { ph: "X", cat: "cpu_op", name: "triton_poi_fused_0", pid: 1, tid: 1, ts: 40, dur: 50, args: { stream: 7 } },
  ];
  const file = folder.file("a.json", traceText(events));
  const [exact] = (await analyzeTraces([file])).ranks;
  assert.deepEqual([exact.kernels.map((k) => k.name), exact.spanUs], [["a"], 10]);
  const [rank] = (await analyzeTraces([file], { hta: true })).ranks;
  assert.deepEqual(
    rank.kernels.map((k) => k.name),
    ["a", "b"],
  );
  assert.deepEqual(rank.steps, [{ number: 1, us: 90 }]);
  assert.deepEqual([rank.spanUs, rank.computeUs, rank.idleUs], [120, 20, 100]);
  const onlyDevice = events.filter((event) => event.cat !== "user_annotation");
  const marks = [mark("gpu_user_annotation", 1, 15), ...onlyDevice];
  const [device] = (await analyzeTraces([folder.file("b.json", traceText(marks))])).ranks;
  assert.deepEqual(device.kernels.map((k) => k.name).sort(), ["a", "b"]);
});

test("a trace without ranks takes them from file names, or from their order", async () => {
  using folder = new TestFolder();
  const text = traceText(launched(1, { ts: 0, dur: 1 }, { name: "k", ts: 5, dur: 5 }));
  const report = await analyzeTraces([folder.file("trace_rank_7.json", text), folder.file("x.json", text)]);
  assert.deepEqual(
    report.ranks.map((r) => [r.rank, r.rankFrom]),
    [
      [1, "order"],
      [7, "file name"],
    ],
  );
  const twice = await analyzeTraces([folder.file("rank0.json", text), folder.file("rank0_b.json", text)]);
  assert.match(twice.problems[0], /rank 0 was given more than once/);
  assert.equal(twice.waitingPercent, null);
});

test("a clock adjustment is reported", async () => {
  using folder = new TestFolder();
  const events = [
    ...launched(1, { ts: 0, dur: 1 }, { name: "k", ts: 5, dur: 5 }),
    ...launched(2, { ts: 3600e6, dur: 1 }, { name: "k", ts: 3600e6 + 5, dur: 5 }),
  ];
  const [rank] = (await analyzeTraces([folder.file("a.json", traceText(events))])).ranks;
  assert.match(rank.problems[0], /the clock jumps by 3600 s .* trust the busy times only/);
});

test("a truncated file gives no idle time, because kernels may be missing", async () => {
  using folder = new TestFolder();
  const events = Array.from({ length: 40 }, (_, i) =>
    launched(i, { ts: i * 100, dur: 2 }, { name: "k", ts: i * 100 + 5, dur: 90 }),
  );
  // As Kineto writes it: the calls first, then the kernels.
  const grouped = [...events.map(([call]) => call), ...events.map(([, kernel]) => kernel)];
  const cutAfter = (list: TestEvent[], n: number): string => {
    const text = traceText(list, { deviceProperties: [{ name: "A GPU" }] });
    return text.slice(0, text.indexOf(JSON.stringify(list[n])));
  };
  const [half] = (await analyzeTraces([folder.file("half.json", cutAfter(grouped, 60))])).ranks;
  assert.equal(half.idleUs, 10 * 19, "the first twenty kernels are all there");
  assert.equal(half.complete, false);

  const shuffled = [
    ...events.map(([call]) => call),
    ...events.map(([, kernel], i) => events[(i * 7) % 40][1] ?? kernel),
  ];
  const [holes] = (await analyzeTraces([folder.file("holes.json", cutAfter(shuffled, 60))])).ranks;
  assert.equal(holes.idleUs, undefined);
  assert.equal(holes.kernels[0].count, 20);
  assert.match(holes.problems[1], /of the part that is left, \d+ of \d+ launches and kernels lack their other half/);

  const [calls] = (await analyzeTraces([folder.file("calls.json", cutAfter(grouped, 30))])).ranks;
  assert.deepEqual([calls.device, calls.idleUs, calls.computeUs], ["gpu", undefined, undefined]);
  assert.match(calls.problems[1], /the job ran on a GPU, but the part that is left holds no kernels/);
});

test("a trace without work reports that there is nothing to measure", async () => {
  using folder = new TestFolder();
  const [rank] = (await analyzeTraces([folder.file("a.json", traceText([]))])).ranks;
  assert.equal(rank.spanUs, undefined);
  assert.deepEqual(rank.problems, ["the trace has no device events and no operators: there is nothing to measure"]);
});

test("a diff ranks changes by time per step", async () => {
  using folder = new TestFolder();
  const trace = (steps: number, gemmUs: number, extra: boolean): string => {
    const events: TestEvent[] = [];
    for (let i = 0; i <= steps; i++) {
      const t = i * 1000;
      events.push(
        { ph: "X", cat: "user_annotation", name: `ProfilerStep#${i}`, pid: 100, tid: 1, ts: t, dur: 1000 },
        ...launched(3 * i, { ts: t + 1, dur: 1 }, { name: "gemm", ts: t + 10, dur: gemmUs }),
        ...launched(3 * i + 1, { ts: t + 2, dur: 1 }, { name: "same", ts: t + 500, dur: 10 }),
      );
      if (extra) events.push(...launched(3 * i + 2, { ts: t + 3, dur: 1 }, { name: "new", ts: t + 600, dur: 7 }));
    }
    return traceText(events);
  };
  const before = await analyzeTraces([folder.file("a.json", trace(3, 100, false))]);
  const after = await analyzeTraces([folder.file("b.json", trace(6, 60, true))]);
  const diff = diffTraces(before, after);
  assert.equal(diff.per, "step");
  assert.deepEqual(
    diff.rows.map((r) => [r.name, r.change, Math.round(r.deltaUs), Math.round(r.deltaCount)]),
    [
      ["gemm", "decreased", -40, 0],
      ["new", "added", 7, 1],
      ["same", "unchanged", 0, 0],
    ],
  );
  assert.equal(diffTraces(after, before).rows.find((r) => r.name === "new")?.change, "removed");
});

test("the merged trace contains every event once, with separate ranks, and is valid JSON", async () => {
  using folder = new TestFolder();
  const inputs = [
    { file: folder.file("a.json", rankTrace(0, 0)), rank: 0, offsetUs: 0 },
    { file: folder.file("b.json", rankTrace(1, 40, 5000)), rank: 1, offsetUs: -5000 },
  ];
  const out = join(folder.path, "merged.json.gz");
  const { events, problems } = await mergeTraces(inputs, out);
  assert.deepEqual(problems, []);
  const merged = JSON.parse(gunzipSync(readFileSync(out)).toString()) as { traceEvents: TestEvent[] };
  assert.equal(events, 64);
  assert.equal(merged.traceEvents.length, 64);
  assert.deepEqual([...new Set(merged.traceEvents.map((e) => e.pid))], [100, 0, 10_000_100, 10_000_000]);
  assert.deepEqual(merged.traceEvents[32].ts, 0);
  assert.equal(merged.traceEvents[1].args?.["stream"], 7);
  await assert.rejects(mergeTraces(inputs, out), /EEXIST/, "an existing file is not overwritten");
});

test("CPU-only gloo traces: operators compute, gloo communicates", async () => {
  using folder = new TestFolder();
  const files = [0, 1].map((rank) => unpackTrace(folder, `torch213_gloo_ddp_w2_rank${rank}`));
  const report = await analyzeTraces(files);
  const [first, second] = report.ranks;
  assert.deepEqual([first.device, first.worldSize, report.missingRanks], ["cpu", 2, []]);
  // gloo:all_reduce of ProfilerStep 2 and 3, read off the file: 51513.856, 39983.19, 19614.62 and 13363.529 us.
  assert.deepEqual(
    first.collectives.map((c) => [c.collective, c.bytes, c.count, Math.round(c.sumUs)]),
    [
      ["allreduce", 9449488, 2, 71128],
      ["allreduce", 1024000, 2, 53347],
    ],
  );
  assert.equal(Math.round(first.communicationUs!), 71128);
  assert.ok(
    first.computeUs! > 0 && Math.abs(first.computeUs! + first.nonComputeUs! + first.idleUs! - first.spanUs!) < 1,
  );
  assert.equal(second.kernels[0].name, "gloo:all_reduce");
  assert.match(first.problems[0], /no GPU events/);
  assert.equal(report.skew.length, 2);
});

test("JAX traces in both forms: each device is a rank", async () => {
  using folder = new TestFolder();
  const [profile, perfetto] = await Promise.all(
    ["jax0102_cpu4.trace", "jax0102_cpu4_perfetto_trace"].map((name) => analyzeTraces([unpackTrace(folder, name)])),
  );
  assert.deepEqual(
    profile.ranks.map((r) => [r.rank, r.source, r.device, r.steps.length]),
    [0, 1, 2, 3].map((rank) => [rank, "jax", "cpu", 4]),
  );
  assert.deepEqual(
    profile.ranks.map((r) => r.collectives[0].count),
    [4, 4, 4, 4],
  );
  assert.equal(Math.round(profile.ranks[0].communicationUs!), 2079);
  for (const [i, rank] of perfetto.ranks.entries())
    assert.ok(Math.abs(rank.computeUs! - profile.ranks[i].computeUs!) < 0.01);
  assert.equal(profile.skew[0].count, 4);
});

test("merged times are exact to the nanosecond, wherever ts is and however it is written", async () => {
  using folder = new TestFolder();
  const event = (ts: string): string =>
    `{"ph":"X","args":{"ts":5},"name":"a \\"ts\\":1","pid":1,"tid":1,"ts":${ts},"dur":1}`;
  const given = ["1794826595123456.789", '"1794826595123456.001"', "-0.001", "9007199254740991"];
  const file = folder.file("a.json", `{"traceEvents":[${given.map(event).join(",")}]}`);
  const out = join(folder.path, "merged.json");
  await mergeTraces([{ file, rank: 0, offsetUs: -0.002 }], out);
  const times = [...readFileSync(out, "utf8").matchAll(/"tid":1,"ts":([^,]*),/g)].map((match) => match[1]);
  assert.deepEqual(times, ["1794826595123456.787", "1794826595123455.999", "-0.003", "9007199254740990.998"]);
});

test("worker threads give the analysis of one thread, in order, and report a missing file", async () => {
  using folder = new TestFolder();
  const files = ["h200_eager", "h200_streams", "h200_graph"].map((name) => unpackTrace(folder, name));
  const single = await Promise.all(files.map((file, i) => analyzeTraceFile(file, i)));
  const seen: string[] = [];
  const several = await analyzeInWorkers(files, 2, {}, (file) => seen.push(file));
  assert.deepEqual(several, single);
  assert.deepEqual(seen.sort(), [...files].sort());
  await assert.rejects(analyzeInWorkers([...files, "/nowhere/rank3.json"], 2, {}), { code: "ENOENT" });
  assert.deepEqual([workersFor(files), workersFor(files.slice(0, 1))], [0, 0]);
});
