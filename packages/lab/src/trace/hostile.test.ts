// Traces that were made to take long: every analysis must be about linear in the number of events, whatever they contain.
import assert from "node:assert/strict";
import { test } from "node:test";
import { gzipSync } from "node:zlib";
import { launched, type TestEvent, TestFolder } from "./fixtures.testkit.js";
import { analyzeTraces } from "./ranks.js";

const count = 60_000;

const call = (i: number, correlation: unknown): string =>
  `{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":1,"tid":1,"ts":${10 * i},"dur":2,"args":{"correlation":${String(correlation)}}}`;
const kernel = (i: number, args: string, dur = 3, ts = 10 * i + 5): string =>
  `{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":${ts},"dur":${dur},"args":{${args}}}`;

/** Events by the number of each. A quadratic analysis of 60,000 of them takes minutes. */
const attacks: Record<string, (i: number) => string> = {
  "ids that a simple hash maps to one number": (i) =>
    `${call(i, `${i + 1}e30`)},${kernel(i, `"stream":7,"correlation":${i + 1}e30`)}`,
  "one device per event": (i) => kernel(i, `"stream":7,"device":${i},"correlation":${i}`),
  "one stream per event": (i) => `${call(i, i)},${kernel(i, `"stream":${i},"correlation":${i}`)}`,
  "one thread per event": (i) =>
    `{"ph":"X","cat":"cpu_op","name":"aten::mm","pid":${i},"tid":${i},"ts":${i},"dur":1},${call(i, i)}`,
  "kernels of no length at one time": (i) => kernel(i, `"stream":${i % 3},"correlation":${i}`, 0, 5),
  "calls that all nest": (i) =>
    `{"ph":"X","cat":"user_annotation","name":"aten::item","pid":1,"tid":1,"ts":${i},"dur":${4 * count - 2 * i}},${call(i, i)},${kernel(i, `"stream":7,"correlation":${i}`)}`,
  "new names, shapes and groups": (i) =>
    `{"ph":"X","cat":"cpu_op","name":"op${i}","pid":1,"tid":1,"ts":${i},"dur":1,"args":{"Input Dims":[[${i}]],"Input type":["float"],"Sequence number":${i}}},${kernel(i, `"stream":7,"correlation":${i},"Collective name":"allreduce","Process Group Name":"${i}","In msg nelems":${i},"dtype":"Float"`)}`,
  "beginnings without ends": (i) => `{"ph":"B","cat":"cpu_op","name":"b${i}","pid":1,"tid":1,"ts":${i}}`,
  "steps without work": (i) =>
    `{"ph":"X","cat":"user_annotation","name":"ProfilerStep#${i}","pid":1,"tid":1,"ts":${i},"dur":1},${kernel(i, `"stream":7,"correlation":${i}`)}`,
};

for (const [name, event] of Object.entries(attacks))
  test(`a trace of ${name} is analyzed in bounded time`, async () => {
    using folder = new TestFolder();
    const events = Array.from({ length: count }, (_, i) => event(i));
    const file = folder.file("t.json", `{"traceEvents":[${events.join(",\n")}]}`);
    const before = process.cpuUsage();
    const { ranks } = await analyzeTraces([file]);
    const used = process.cpuUsage(before);
    assert.ok(ranks.length > 0);
    assert.ok(used.user + used.system < 20e6, `${((used.user + used.system) / 1e6).toFixed(1)} s of processor time`);
  });

/** Values of fields that lie about their kind or size. */
const lies: TestEvent[] = [
  { ph: "X", cat: "kernel", name: "a", pid: 0, tid: 7, ts: 1e308, dur: 1e308, args: { stream: 7, correlation: 1 } },
  { ph: "X", cat: "kernel", name: "a", pid: 0, tid: 7, ts: 1, dur: 2, args: { stream: -1e300, correlation: -5 } },
  {
    ph: "X",
    cat: "kernel",
    name: "a",
    pid: 0,
    tid: 7,
    ts: 1,
    dur: 2,
    args: { stream: "7", correlation: "x", device: 1e300 },
  },
  {
    ph: "X",
    cat: "kernel",
    name: "a",
    pid: 0,
    tid: 7,
    ts: 9,
    dur: 2,
    args: { stream: 7.5, correlation: 0.5, bytes: -1 },
  },
  {
    ph: "X",
    cat: "cpu_op",
    name: "a",
    pid: 0,
    tid: 7,
    ts: 9,
    dur: 2,
    args: { "Input Dims": [[1e300, -5], "x", {}], "Sequence number": 1e300 },
  },
  { ph: "X", cat: "user_annotation", name: "ProfilerStep#99999999999999999999", pid: 0, tid: 7, ts: 9, dur: 2 },
  {
    ph: "X",
    cat: "user_annotation",
    name: "step",
    pid: 0,
    tid: 7,
    ts: 9,
    dur: 2,
    args: { step_num: -1e300, step: "x" },
  },
];

test("lying fields, repeated keys and deep nesting give no negative time and no failure", async () => {
  using folder = new TestFolder();
  const deep = 200_000;
  const texts = [
    JSON.stringify({ traceEvents: lies }),
    `{"traceEvents":[{"ph":"X","ph":"M","cat":"kernel","cat":"cpu_op","name":"a","name":"b","ts":1,"ts":"2","dur":3,"dur":4,"pid":1,"tid":1}],"traceEvents":[]}`,
    `{"traceEvents":[{"ph":"X","name":"a","ts":1,"dur":2,"pid":1,"tid":1,"args":${"[".repeat(deep)}${"]".repeat(deep)}}]}`,
    `{"x":${"[".repeat(deep)}${"]".repeat(deep)},"traceEvents":[]}`,
    `{"distributedInfo":${"[".repeat(deep)}${"]".repeat(deep)},"traceEvents":[{"ph":"X","name":"a","ts":1,"dur":2,"pid":1,"tid":1}]}`,
    `{"traceEvents":[{"ph":"X","cat":"cpu_op","name":"a","ts":1,"dur":2,"pid":1,"tid":1,"args":{"Input Dims":${"[".repeat(deep)}${"]".repeat(deep)}}}]}`,
  ];
  for (const [i, text] of texts.entries()) {
    const { ranks } = await analyzeTraces([folder.file(`t${i}.json`, text)]);
    assert.ok(ranks.length > 0, text.slice(0, 80));
  }
});

test("an odd first event, several profiles in one file, JSON lines and UTF-16 are named", async () => {
  using folder = new TestFolder();
  const now = 1_700_000_000_000_000;
  const kernels = Array.from({ length: 50 }, (_, i) => kernel(i, `"stream":7,"correlation":${i}`, 3, now + 10 * i));
  const analyzed = async (name: string, text: string | Buffer) =>
    (await analyzeTraces([folder.file(name, text)])).ranks[0];
  const odd = await analyzed("odd.json", `{"traceEvents":[${[kernel(0, '"stream":7', 1, 0), ...kernels].join(",")}]}`);
  assert.deepEqual([odd.spanUs, odd.computeUs], [493, 150]);
  assert.match(odd.problems.join(), /1 events whose time .* more than 104 days from most others/);
  const profile = `{"traceEvents":[${kernels.join(",")}]}`;
  const two = await analyzed("two.json", `${profile}\n${profile}`);
  assert.deepEqual([two.spanUs, two.complete], [493, true]);
  assert.match(two.problems.join(), new RegExp(`before byte ${profile.length + 1}, and what follows was left out`));
  assert.match((await analyzed("lines.json", kernels.join("\n"))).problems.join(), /no traceEvents: .*JSON lines/);
  const utf16 = Buffer.from(`\ufeff${profile}`, "utf16le");
  assert.match((await analyzed("utf16.json", utf16)).problems.join(), /UTF-16/);
});

test("a gzip file that expands without end is read in bounded memory", async () => {
  using folder = new TestFolder();
  const spaces = Buffer.alloc(1 << 28, 0x20);
  const file = folder.file(
    "bomb.json.gz",
    gzipSync(Buffer.concat([Buffer.from('{"traceEvents":['), spaces]), { level: 1 }),
  );
  const before = process.memoryUsage.rss();
  const [rank] = (await analyzeTraces([file])).ranks;
  assert.equal(rank.complete, false);
  assert.ok(process.memoryUsage.rss() - before < 1.5e8 + spaces.length);
});

const plain: TestEvent[] = Array.from({ length: 20 }, (_, i) =>
  launched(i + 1, { ts: 100 * i, dur: 10 }, { name: "k", ts: 100 * i + 30, dur: 40 }),
).flat();

/** The same events in forms that profilers do not write, and what must be said about them. */
const forms: Record<string, { events: () => TestEvent[]; problem?: RegExp; busy?: number }> = {
  "beginnings and ends": {
    events: () =>
      plain
        .flatMap(({ dur, ...e }) => [
          { ...e, ph: "B" },
          { ph: "E", pid: e.pid, tid: e.tid, ts: (e.ts as number) + (dur as number) },
        ])
        .sort((a, b) => (a.ts as number) - (b.ts as number)),
    busy: 800,
  },
  "all beginnings before all ends": {
    events: () => [
      ...plain.map(({ dur: _, ...e }) => ({ ...e, ph: "B" })),
      ...plain.map((e) => ({ ph: "E", pid: e.pid, tid: e.tid, ts: (e.ts as number) + (e.dur as number) })),
    ],
    problem: /not in the order of time/,
  },
  "kernels without a duration": {
    events: () => [...plain, ...plain.filter((e) => e.cat === "kernel").map(({ dur: _, ...e }) => e)],
    problem: /20 events without a duration/,
    busy: 800,
  },
  "kernels without arguments": {
    events: () => plain.map(({ args: _, ...e }) => e),
    problem: /20 kernels and copies without a stream/,
  },
  "two processes with one stream": {
    events: () => [
      ...plain,
      ...plain.map((e) => ({ ...e, pid: e.cat === "kernel" ? 1 : 200, ts: (e.ts as number) + 50 })),
    ],
    problem: /processes 0 and 1 both have stream 7/,
  },
};

test("operators of two processes in one file are told", async () => {
  using folder = new TestFolder();
  const events = [1, 2].flatMap((pid) =>
    Array.from({ length: 9 }, (_, i) => ({
      ph: "X",
      cat: "cpu_op",
      name: "aten::mm",
      pid,
      tid: pid,
      ts: 10 * i,
      dur: 5,
    })),
  );
  const { ranks } = await analyzeTraces([folder.file("t.json", JSON.stringify({ traceEvents: events }))]);
  assert.match(ranks[0].problems.join("; "), /operators of 2 processes/);
});

for (const [name, { events, problem, busy }] of Object.entries(forms))
  test(`a trace with ${name} is read right or says what is wrong`, async () => {
    using folder = new TestFolder();
    const { ranks } = await analyzeTraces([folder.file("t.json", JSON.stringify({ traceEvents: events() }))]);
    assert.equal(ranks[0].device, "gpu");
    if (problem === undefined) assert.deepEqual(ranks[0].problems, []);
    else assert.match(ranks[0].problems.join("; "), problem);
    if (busy !== undefined) assert.equal(ranks[0].computeUs, busy);
  });

test("files in other containers are named", async () => {
  using folder = new TestFolder();
  for (const [name, bytes] of [
    ["zstd", [0x28, 0xb5, 0x2f, 0xfd, 0, 0]],
    ["zip", [0x50, 0x4b, 3, 4, 0, 0]],
    ["xz", [0xfd, 0x37, 0x7a, 0x58, 0x5a, 0]],
  ] as const) {
    const { ranks } = await analyzeTraces([folder.file(`t.${name}`, Buffer.from(bytes))]);
    assert.match(ranks[0].problems.join("; "), new RegExp(`this is a ${name} file`));
  }
});

/** Kernels of 40 us with one event of 20 us in every gap, by what that event and the kernels are called. */
const vendors: Record<string, { kernel: string; between: { cat: string; name: string }; type: string }> = {
  "AMD, hipBLASLt": { kernel: "hipblasLt_gemm", between: { cat: "gpu_memcpy", name: "hipMemcpyHtoD" }, type: "MEMORY" },
  "AMD, old copies": { kernel: "Cijk_Ailk", between: { cat: "gpu_memcpy", name: "CopyHostToDevice" }, type: "MEMORY" },
  "AMD, MSCCL": {
    kernel: "hip_norm",
    between: { cat: "kernel", name: "mscclKernel_Sum_float" },
    type: "COMMUNICATION",
  },
  "AMD, RCCL": {
    kernel: "hip_norm",
    between: { cat: "kernel", name: "ncclDevKernel_Generic_4" },
    type: "COMMUNICATION",
  },
  "Intel, Level Zero": {
    kernel: "gemm_kernel",
    between: { cat: "gpu_memcpy", name: "zeCommandListAppendMemoryCopy(M2D)" },
    type: "MEMORY",
  },
  "Intel, memset": { kernel: "gemm_kernel", between: { cat: "gpu_memset", name: "zeFill" }, type: "MEMORY" },
};

for (const [name, { kernel: own, between, type }] of Object.entries(vendors))
  test(`kernels, copies and collectives are told apart: ${name}`, async () => {
    using folder = new TestFolder();
    const events = Array.from({ length: 20 }, (_, i) => [
      ...launched(2 * i + 1, { ts: 100 * i, dur: 5 }, { name: own, ts: 100 * i + 30, dur: 40 }),
      ...launched(2 * i + 2, { ts: 100 * i + 5, dur: 5 }, { ...between, ts: 100 * i + 75, dur: 20, stream: 8 }),
    ]).flat();
    const report = await analyzeTraces([folder.file("t.json", JSON.stringify({ traceEvents: events }))]);
    const [rank] = report.ranks;
    assert.deepEqual([rank.computeUs, rank.nonComputeUs], [800, 400]);
    assert.deepEqual(
      rank.kernels.map((k) => [k.name, k.type]),
      [
        [own, "COMPUTATION"],
        [between.name, type],
      ],
    );
  });

test("nanoseconds where the format has microseconds are told", async () => {
  using folder = new TestFolder();
  const at = async (base: number, per: number): Promise<string> => {
    const events = plain.map((e) => ({ ...e, ts: base + per * (e.ts as number), dur: per * (e.dur as number) }));
    const text = JSON.stringify({ displayTimeUnit: "ns", traceEvents: events });
    return (await analyzeTraces([folder.file("t.json", text)])).ranks[0].problems.join("; ");
  };
  assert.equal(await at(1.7e15, 1), "");
  assert.match(await at(1.7e18, 1000), /seem to be in nanoseconds/);
});
