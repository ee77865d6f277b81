// A file that is read by several threads gives exactly what one thread gives, wherever its blocks are cut and whatever is
// damaged.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { brotliDecompressSync, gzipSync } from "node:zlib";
import { attribute } from "./attribution.js";
import { lastEventStart } from "./blocks.js";
import { launched, type TestEvent, TestFolder, testdata, traceText } from "./fixtures.testkit.js";
import { analyzeTrace } from "./rank.js";
import { readTrace } from "./read.js";

/** The whole analysis as text. */
async function analysis(file: string, options: Parameters<typeof readTrace>[1]): Promise<string> {
  using data = await readTrace(file, options);
  // How far a damaged file was read depends on the sizes of the reads.
  return JSON.stringify([data.events, data.complete, data.problems, analyzeTrace(data, 0)], (key, value: unknown) =>
    typeof value === "bigint" ? String(value) : key === "bytes" && !data.complete ? null : value,
  );
}

/** Compares one thread with several, for plain and for compressed files. */
async function same(folder: TestFolder, name: string, content: Buffer, blockBytes: number): Promise<void> {
  for (const [file, bytes] of [
    [`${name}.json`, content],
    [`${name}.json.gz`, gzipSync(content, { level: 1 })],
  ] as const) {
    const path = folder.file(file, bytes);
    const one = await analysis(path, { threads: 1 });
    assert.equal(await analysis(path, { threads: 3, blockBytes }), one, `${file} in blocks of ${blockBytes}`);
  }
}

test("real traces", async () => {
  using folder = new TestFolder();
  for (const name of ["h200_streams", "resnet50_workers0", "torch213_gloo_ddp_w2_rank0", "jax0102_cpu4.trace"]) {
    const content = brotliDecompressSync(readFileSync(testdata(`traces/${name}.json.br`)));
    for (const blockBytes of [1 << 12, 1 << 16]) {
      if (content.length / blockBytes > 400) continue;
      await same(folder, name, content, blockBytes);
    }
  }
});

/** Events whose arguments look like the beginning of another event. */
function misleading(count: number): TestEvent[] {
  return Array.from({ length: count }, (_, i) => {
    const list = [{ a: 1 }, { ph: "X", name: "no event", ts: i, dur: 5, pid: 1, tid: 1 }, { b: '},{"ph":"X"' }];
    const more = { list, text: '},{"', deep: [[{ c: [{ d: 1 }, { e: 2 }] }]] };
    const kernel = { name: `k${i % 7}`, ts: 10 * i + 5, dur: 3, args: more };
    return launched(i + 1, { ts: 10 * i, dur: 2 }, kernel);
  }).flat();
}

test("misleading, halved, damaged and truncated events", async () => {
  using folder = new TestFolder();
  const events = misleading(300);
  const whole = Buffer.from(traceText(events, { distributedInfo: { rank: 3, world_size: 4 } }));
  const halves: TestEvent[] = events.flatMap((event, i) => [
    { ph: "B", cat: "cpu_op", name: `outer${i % 3}`, pid: 9, tid: 9, ts: i },
    event,
    ...(i % 2 === 1 ? [0, 1].map(() => ({ ph: "E", pid: 9, tid: 9, ts: i + 0.5 })) : []),
  ]);
  const middle = whole.length >> 1;
  for (const blockBytes of [512, 1500, 4096, 1 << 15]) {
    await same(folder, "misleading", whole, blockBytes);
    await same(folder, "halves", Buffer.from(traceText(halves)), blockBytes);
    await same(folder, "cut", whole.subarray(0, middle), blockBytes);
    await same(
      folder,
      "broken",
      Buffer.concat([whole.subarray(0, middle), Buffer.from("@@@"), whole.subarray(middle)]),
      blockBytes,
    );
    await same(folder, "list", Buffer.from(`${JSON.stringify(events).slice(0, -1)},`), blockBytes);
    await same(folder, "no-times", Buffer.from(traceText(events.map(({ ts: _, ...event }) => event))), blockBytes);
  }
});

test("a block ends before the last event that begins in it", () => {
  const at = (text: string): number => lastEventStart(Buffer.from(text));
  assert.equal(at('{"ph":"X"} , {"ph":"X"} ,\n {"ph"'), 27);
  assert.equal(at('{"a":[1,{"b":2}]} , {1'), -1);
  assert.equal(at("x".repeat(100)), -1);
});

test("windows of any size attribute the same", async () => {
  using folder = new TestFolder();
  const content = brotliDecompressSync(readFileSync(testdata("traces/h200_eager.json.br")));
  using data = await readTrace(folder.file("a.json", content));
  const wanted = new Uint8Array(data.runtime.rows).fill(1);
  const found = (windowRows: number): string[] => {
    const rows: string[] = [];
    assert.ok(
      attribute(
        data,
        wanted,
        (name) => name === "aten::mm",
        (...args) => rows.push(args.join()),
        windowRows,
      ),
    );
    return rows.sort();
  };
  const all = found(1e9);
  assert.ok(all.length > 100);
  for (const windowRows of [7, 100, 1000]) assert.deepEqual(found(windowRows), all, `windows of ${windowRows}`);
});
