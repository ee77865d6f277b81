// Times against a reference in big integers of nanoseconds that reads the JSON text itself and shares no code with the reader.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { brotliDecompressSync } from "node:zlib";
import { launched, TestFolder, testdata, traceText, unpackTrace } from "./fixtures.testkit.js";
import { analyzeTraceFile } from "./rank.js";
import { analyzeTraces } from "./ranks.js";

interface Event {
  ph: string;
  cat?: string;
  name: string;
  ts: string;
  dur?: string;
  args?: { stream?: number; correlation?: number };
}

/** Decimal microseconds as nanoseconds. */
function nanoseconds(text: string): bigint {
  const [, sign, whole, fraction = ""] = /^(-?)(\d+)(?:\.(\d+))?$/.exec(text) as RegExpExecArray;
  const digits = fraction.padEnd(4, "0");
  const value = BigInt(whole) * 1000n + BigInt(digits.slice(0, 3)) + (digits[3] >= "5" ? 1n : 0n);
  return sign === "-" ? -value : value;
}

function union(events: readonly { start: bigint; end: bigint }[]): bigint {
  let total = 0n;
  let until: bigint | null = null;
  for (const { start, end } of [...events].sort((a, b) => (a.start < b.start ? -1 : a.start > b.start ? 1 : 0))) {
    const from: bigint = until !== null && until > start ? until : start;
    if (end > from) total += end - from;
    if (until === null || end > until) until = end;
  }
  return total;
}

const first = (values: readonly bigint[]): bigint => values.reduce((a, b) => (b < a ? b : a));
const last = (values: readonly bigint[]): bigint => values.reduce((a, b) => (b > a ? b : a));
/** Microseconds of a report as nanoseconds: exact, because every report value is a whole number of nanoseconds. */
const ns = (us: number | undefined): bigint => BigInt(Math.round((us ?? Number.NaN) * 1000));

const isWork = /^(?:kernel|gpu_memcpy|gpu_memset|memcpy|memset|cuda_sync)$/i;
const isComputing = (name: string): boolean => !/^nccl|Memcpy|Memset|dma|^.*Sync|^Stream Wait Event/.test(name);

for (const name of [
  "alexnet_rank0",
  "df_index_resolver_rank1",
  "nccl_parser_config_rank0",
  "ns_resolution_rank0",
  "trace_diff_control_rank3",
  "h200_eager",
  "h200_compiled",
  "h200_graph",
  "h200_streams",
])
  test(`exact times of ${name}`, async () => {
    const text = brotliDecompressSync(readFileSync(testdata(`traces/${name}.json.br`))).toString();
    const quoted = text.replace(/"(ts|dur)":\s*(-?\d+(?:\.\d+)?)/g, '"$1":"$2"');
    const events = (JSON.parse(quoted) as { traceEvents: Event[] }).traceEvents.filter((e) => e.ph === "X");
    const steps = events.filter((e) => /^ProfilerStep/.test(e.name) && e.cat !== "gpu_user_annotation");
    const cut = new Set(steps.map((e) => e.name)).size >= 2 ? last(steps.map((e) => nanoseconds(e.ts))) : null;
    const callOf = new Map<number, bigint>();
    for (const e of events)
      if (/runtime|driver/i.test(e.cat ?? "") && e.args?.correlation !== undefined)
        callOf.set(e.args.correlation, nanoseconds(e.ts));
    const work = events
      .filter((e) => isWork.test(e.cat ?? "") && Number(e.args?.stream) >= 0)
      .filter((e) => {
        const launch = callOf.get(e.args?.correlation ?? -1);
        return cut === null || (launch !== undefined && launch < cut);
      })
      .map((e) => ({
        name: e.name,
        stream: Number(e.args?.stream),
        cat: e.cat,
        start: nanoseconds(e.ts),
        end: nanoseconds(e.ts) + nanoseconds(e.dur ?? "0"),
      }));

    using folder = new TestFolder();
    const [{ report }] = await analyzeTraceFile(unpackTrace(folder, name), 0);
    const span = last(work.map((e) => e.end)) - first(work.map((e) => e.start));
    assert.equal(ns(report.spanUs), span);
    assert.equal(ns(report.idleUs), span - union(work), "busy + idle = span");
    assert.equal(ns(report.computeUs), union(work.filter((e) => isComputing(e.name))));
    assert.equal(ns(report.computeUs) + ns(report.nonComputeUs) + ns(report.idleUs), span);
    const sums = new Map<string, bigint>();
    for (const e of work) sums.set(e.name, (sums.get(e.name) ?? 0n) + e.end - e.start);
    for (const kernel of report.kernels) assert.equal(ns(kernel.sumUs), sums.get(kernel.name), kernel.name);
    for (const stream of report.idle) {
      const own = work.filter((e) => e.stream === stream.stream && !/sync/i.test(e.cat ?? ""));
      assert.equal(ns(stream.busyUs), union(own), `stream ${stream.stream}`);
      assert.equal(
        ns(stream.busyUs) + ns(stream.hostWaitUs) + ns(stream.kernelWaitUs) + ns(stream.otherUs),
        ns(stream.spanUs),
      );
    }
    const path = report.criticalPath;
    if (path !== null) {
      const { totalUs, computeUs, communicationUs, copyUs, hostUs, launchUs, betweenKernelsUs } = path;
      const parts = [computeUs, communicationUs, copyUs, hostUs, launchUs, betweenKernelsUs].map(ns);
      assert.equal(
        parts.reduce((a, b) => a + b, 0n),
        ns(totalUs),
      );
    }
  });

test("times since 1970 with nanoseconds keep every nanosecond", async () => {
  using folder = new TestFolder();
  const kernels = [
    { name: "a", ts: 2, dur: 3 },
    { name: "b", ts: 4, dur: 5 },
  ];
  const exact: Record<string, string> = { 1: "1794814336257880.5", 2: "1794814336257883.052", 3: "1.001" };
  Object.assign(exact, { 4: "1794814336257890.001", 5: "0.003" });
  const text = traceText(kernels.flatMap((kernel, i) => launched(i, { ts: 1, dur: 1 }, kernel)));
  // Larger than a double can hold: written as text.
  const written = text.replace(
    /"(ts|dur)":(\d)/g,
    (_, key, digit) => `"${key}":${key === "dur" && digit === "1" ? 1 : exact[digit]}`,
  );
  const [{ report }] = await analyzeTraceFile(folder.file("t.json", written), 0);
  assert.deepEqual([ns(report.spanUs), ns(report.idleUs), ns(report.computeUs)], [6952n, 5948n, 1004n]);
});

test("collectives that the clock of one host contradicts are not paired", async () => {
  using folder = new TestFolder();
  const rank = (number: number, shift: number) =>
    folder.file(
      `rank${number}.json`,
      traceText(
        Array.from({ length: 6 }, (_, i) =>
          launched(
            i,
            { ts: 1000 * i + shift, dur: 5 },
            {
              name: "ncclDevKernel_AllReduce_Sum",
              ts: 1000 * i + 10 + shift,
              dur: 300,
              args: {
                "Collective name": "allreduce",
                "In msg nelems": 100,
                "Out msg nelems": 100,
                "Group size": 2,
                dtype: "Float",
                "Process Group Name": "0",
              },
            },
          ),
        ).flat(),
        { distributedInfo: { rank: number, world_size: 2 }, host_name: "node1", baseTimeNanoseconds: 0 },
      ),
    );
  const good = await analyzeTraces([rank(0, 0), rank(1, 40)]);
  assert.equal(good.skew.length, 1);
  const bad = await analyzeTraces([rank(0, 0), rank(1, 62_800)]);
  assert.deepEqual([bad.skew.length, bad.clockOffsets[1].us], [0, 0]);
  assert.match(bad.problems.join(), /different calls/);
});
