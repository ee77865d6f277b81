// The trace reader: the tokenizer is compared with JSON.parse for every chunking of the input; damaged files are read in part.
import assert from "node:assert/strict";
import { test } from "node:test";
import { gzipSync } from "node:zlib";
import { launched, type TestEvent, TestFolder, traceText } from "./fixtures.testkit.js";
import { analyzeTraces } from "./ranks.js";
import { readTrace } from "./read.js";
import { TraceStream } from "./stream.js";

const awkward: TestEvent[] = [
  { ph: "X", cat: "cpu_op", name: 'quo"te \\ and \u00e9\u4e2d', pid: 1, tid: 2, ts: 1.5, dur: 0.25 },
  { ph: "X", cat: "cpu_op", name: "", pid: "p", tid: "t", ts: 1e15 + 1, dur: 1 },
  {
    ph: "X",
    cat: "kernel",
    name: "k<[{}]>",
    pid: 0,
    tid: 7,
    ts: -5,
    dur: 3,
    args: { stream: "7", correlation: 12, nested: { a: [1, { b: "]}" }], c: "\\" }, x: null, y: true },
  },
  { ph: "X", cat: "user_annotation", name: "ProfilerStep#3", pid: 1, tid: 2, ts: 2, dur: 4 },
];

test("any chunking of the input gives the same events", () => {
  const text = Buffer.from(JSON.stringify({ a: { deep: [1, 2, "}]"] }, traceEvents: awkward, tail: "x" }, null, 1));
  for (let size = 1; size <= 64; size++) {
    const seen: unknown[] = [];
    const stream = new TraceStream({
      header() {},
      event(e, bytes) {
        const token = (t: { start: number; end: number }): string => bytes.toString("utf8", t.start, t.end);
        seen.push([token(e.name), token(e.category), e.ts, e.dur, e.number(0), e.number(1)]);
      },
    } as ConstructorParameters<typeof TraceStream>[0]);
    for (let at = 0; at < text.length; at += size) stream.push(text.subarray(at, at + size));
    assert.equal(stream.finish(), null);
    assert.deepEqual(
      seen,
      awkward.map((e) => [
        JSON.stringify(e.name).slice(1, -1),
        e.cat,
        e.ts,
        e.dur,
        e.args === undefined ? Number.NaN : 7,
        e.args === undefined ? Number.NaN : 12,
      ]),
      `pieces of ${size} bytes`,
    );
  }
});

test("numbers equal those of JSON.parse", async () => {
  using folder = new TestFolder();
  const numbers = ["3869403572711.511", "0.1", "1669783687464181", "1e3", "9007199254740993", "12345678901234567.5"];
  numbers.push("123456789.123456789", "5925.2730000000001", "9.9999999999999995e-07", "0", "0.30000000000000004");
  const events = numbers.map((n) => `{"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":1,"ts":${n},"dur":${n}}`);
  using data = await readTrace(folder.file("t.json", `{"traceEvents":[${events.join(",")}]}`), { hta: true });
  const [segment] = [...data.host.each()];
  assert.deepEqual(
    Array.from(segment.ts.subarray(0, segment.rows)),
    numbers.map((n) => JSON.parse(n) as number),
  );
  assert.deepEqual(Array.from(segment.dur.subarray(0, segment.rows)), Array.from(segment.ts.subarray(0, segment.rows)));
});

test("the tables contain the fields of the events", async () => {
  using folder = new TestFolder();
  const events = [
    ...launched(5, { ts: 10, dur: 2 }, { name: "gemm", ts: 15, dur: 4 }),
    { ph: "X", cat: "gpu_user_annotation", name: "nccl:all", pid: 0, tid: 7, ts: 1, dur: 90, args: { stream: 7 } },
    { ph: "B", cat: "cpu_op", name: "outer", pid: 1, tid: 1, ts: 100 },
    { ph: "B", cat: "cpu_op", name: "inner", pid: 1, tid: 1, ts: 110 },
    { ph: "E", pid: 1, tid: 1, ts: 130 },
    { ph: "E", pid: 1, tid: 1, ts: 150 },
    { ph: "E", pid: 1, tid: 1, ts: 160 },
    { ph: "M", name: "thread_name", pid: 1, tid: 1, args: { name: "main" } },
    { ph: "s", cat: "ac2g", name: "ac2g", pid: 1, tid: 1, ts: 10, id: 5 },
  ];
  using data = await readTrace(
    folder.file("t.json", traceText(events, { distributedInfo: { rank: 3, world_size: 8 } })),
    { hta: true },
  );
  assert.deepEqual([data.device.rows, data.runtime.rows, data.host.rows], [1, 1, 3]);
  assert.equal(data.symbols.text(data.device.name[0]), "gemm");
  assert.deepEqual([data.header.rank, data.header.worldSize], [3, 8]);
  const [segment] = [...data.host.each()];
  const rows = Array.from({ length: 3 }, (_, i) => [data.symbols.text(segment.name[i]), segment.ts[i], segment.dur[i]]);
  assert.deepEqual(rows, [
    ["nccl:all", 1, 90],
    ["inner", 110, 20],
    ["outer", 100, 50],
  ]);
  assert.deepEqual(data.problems, ["1 end events without a beginning were left out"]);
});

test("rows beyond the memory bound are spilled to disk and read back", async () => {
  using folder = new TestFolder();
  const count = 200_000;
  const events = Array.from(
    { length: count },
    (_, i) => `{"ph":"X","cat":"cpu_op","name":"op${i % 7}","pid":1,"tid":1,"ts":${i * 10},"dur":${i % 9}}`,
  );
  const file = folder.file("t.json", `[${events.join(",\n")}`);
  using data = await readTrace(file, { residentSegments: 1, hta: true });
  assert.deepEqual(data.problems, [], "the array form may leave its bracket open");
  assert.equal(data.host.rows, count);
  assert.equal(data.host.spilledRows, 3 * 65536);
  let i = 0;
  for (const segment of data.host.each())
    for (let row = 0; row < segment.rows; row++, i++) {
      assert.equal(segment.ts[row], i * 10);
      assert.equal(segment.dur[row], i % 9);
      assert.equal(data.symbols.text(segment.name[row]), `op${i % 7}`);
    }
  assert.equal(i, count);
});

const whole = traceText(
  Array.from({ length: 1000 }, (_, i) =>
    launched(i, { ts: i * 10, dur: 2 }, { name: "k", ts: i * 10 + 4, dur: 3 }),
  ).flat(),
);

test("a truncated gzip file keeps its complete events and reports where it ends", async () => {
  using folder = new TestFolder();
  const zipped = gzipSync(whole);
  using data = await readTrace(folder.file("t.json.gz", zipped.subarray(0, zipped.length - 400)));
  assert.equal(data.complete, false);
  assert.ok(data.device.rows > 300 && data.device.rows < 1000, String(data.device.rows));
  assert.match(data.problems[0], /cut short; \d+ events up to byte \d+ were kept, the rest is missing/);
});

test("a damaged gzip file keeps what came before the damage", async () => {
  using folder = new TestFolder();
  const zipped = gzipSync(whole, { level: 1 });
  zipped.fill(0xff, zipped.length - 200, zipped.length - 150);
  using data = await readTrace(folder.file("t.json.gz", zipped));
  assert.equal(data.complete, false);
  assert.match(data.problems[0], /(?:gzip file is|broken JSON)/);
});

test("truncated JSON keeps its complete events", async () => {
  using folder = new TestFolder();
  const cut = whole.slice(0, whole.length >> 1);
  using data = await readTrace(folder.file("t.json", cut));
  assert.equal(data.complete, false);
  assert.equal(data.events, cut.split('"ph"').length - 2);
  assert.match(data.problems[0], /ends inside its events, at byte \d+: \d+ events up to byte \d+ are whole/);
});

test("invalid JSON ends the reading and reports the byte offset", async () => {
  using folder = new TestFolder();
  const good = '{"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":1,"ts":1,"dur":1}';
  using data = await readTrace(folder.file("t.json", `{"traceEvents":[${good},${good},oops,${good}]}`));
  assert.equal(data.host.rows, 2);
  assert.equal(data.complete, false);
  assert.match(data.problems[0], /broken JSON: expected an event at byte 152; 2 events up to byte 151/);
  using missing = await readTrace(folder.file("m.json", `{"traceEvents":[{"ph":"X","name":"a","ts":,"dur":1}]}`));
  assert.match(missing.problems[0], /a number is missing at byte/);
});

test("a file that is not a trace is an error", async () => {
  using folder = new TestFolder();
  const cases: [string, RegExp][] = [
    ["", /the file is empty/],
    ["hello world", /starts with neither \{ nor \[/],
    ["{}", /ends before its traceEvents/],
    ['{"traceEvents": 5}', /traceEvents should be a list/],
  ];
  for (const [text, message] of cases) {
    using data = await readTrace(folder.file("t.json", text));
    assert.match(data.problems[0] ?? "none", message, text);
    assert.equal(data.device.rows + data.host.rows, 0);
  }
  await assert.rejects(readTrace("/nowhere/t.json"), /ENOENT/);
  await assert.rejects(readTrace(folder.path), /is a folder; name the trace files in it/);
});

test("impossible times are left out and counted", async () => {
  using folder = new TestFolder();
  const event = (ts: string, dur: string): string =>
    `{"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":1,"ts":${ts},"dur":${dur}}`;
  const text = `{"traceEvents":[${[event("1", "1"), event("2", "-3"), event("nan", "1"), event("3", "inf")].join(",")}]}`;
  using data = await readTrace(folder.file("t.json", text));
  assert.equal(data.host.rows, 1);
  assert.deepEqual(data.problems, [
    "1 events with a negative duration were left out",
    "2 events whose time is not a number, or more than 104 days from the first, were left out",
  ]);
});

test("a huge field next to the events is skipped without being buffered", async () => {
  using folder = new TestFolder();
  const stacks = JSON.stringify("frame ".repeat(4 << 20));
  const text = `{"stackFrames":{"1":{"name":${stacks}}},"distributedInfo":{"rank":1},"traceEvents":[{"ph":"X","cat":"cpu_op","name":"a","ts":1,"dur":1}]}`;
  const before = process.memoryUsage().arrayBuffers;
  using data = await readTrace(folder.file("t.json", text));
  assert.equal(data.host.rows, 1);
  assert.equal(data.header.rank, 1);
  assert.ok(process.memoryUsage().arrayBuffers - before < 16 << 20);
});

test("gzip files of several members, with padding or with bytes behind their end are read whole", async () => {
  using folder = new TestFolder();
  const text = traceText(launched(1, { ts: 0, dur: 1 }, { name: "k", ts: 5, dur: 5 }));
  const cases: [string, Buffer, string[]][] = [
    ["members", Buffer.concat([gzipSync(text.slice(0, 60)), gzipSync(text.slice(60))]), []],
    ["padding", Buffer.concat([gzipSync(text), Buffer.alloc(512)]), []],
    [
      "garbage",
      Buffer.concat([gzipSync(text), Buffer.from("not gzip")]),
      ["8 bytes behind the gzip data were left out"],
    ],
  ];
  for (const [name, bytes, problems] of cases) {
    using data = await readTrace(folder.file(`${name}.json.gz`, bytes));
    assert.deepEqual([data.device.rows, data.complete, data.problems], [1, true, problems], name);
  }
});

test("times too far apart to be exact are left out; nested lists of shapes do not exhaust the stack", async () => {
  using folder = new TestFolder();
  const far = launched(2, { ts: 9e15, dur: 1 }, { name: "far", ts: 9e15, dur: 5 });
  const long = launched(3, { ts: 20, dur: 1 }, { name: "long", ts: 21, dur: 1e300 });
  const near = launched(1, { ts: 0, dur: 1 }, { name: "k", ts: 5, dur: 5 });
  const deep = `{"ph":"X","cat":"cpu_op","name":"aten::mm","pid":100,"tid":1,"ts":0,"dur":10,"args":{"Input Dims":${"[".repeat(1e5)}${"]".repeat(1e5)}}}`;
  const text = traceText([...near, ...far, ...long]).replace('"traceEvents":[', `"traceEvents":[${deep},`);
  const [rank] = (await analyzeTraces([folder.file("a.json", text)])).ranks;
  assert.deepEqual([rank.spanUs, rank.computeUs], [5, 5]);
  assert.match(rank.problems.join(), /3 events whose time is not a number, or more than 104 days/);
  assert.deepEqual(
    rank.operators?.rows.map((row) => [row.name, row.flops]),
    [["aten::mm", null]],
  );
});
