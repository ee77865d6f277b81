// A profile of JAX in its binary form against the JSON that XProf made of the same profile.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { TestFolder, testdata, unpackTrace } from "./fixtures.testkit.js";
import { analyzeTraces, type TraceReport } from "./ranks.js";

const binary = testdata("traces/jax0102_cpu4_steps3.xplane.pb");

/** Everything that does not depend on the file; the JSON of XProf is rounded to nanoseconds as ours is. */
const values = ({ ranks }: TraceReport) =>
  ranks.map(({ rank, device, spanUs, idleUs, computeUs, communicationUs, steps, kernels }) => ({
    rank,
    device,
    times: [spanUs, idleUs, computeUs, communicationUs].map((us) => Math.round((us ?? 0) * 100) / 100),
    steps: steps.length,
    kernels: kernels.map(({ name, count, sumUs }) => [name, count, Math.round(sumUs * 100) / 100]),
  }));

test("xplane.pb gives the values of the JSON of the same profile", async () => {
  using folder = new TestFolder();
  const [ours, theirs] = await Promise.all([
    analyzeTraces([binary]),
    analyzeTraces([unpackTrace(folder, "jax0102_cpu4_steps3")]),
  ]);
  assert.equal(ours.ranks.length, 4);
  assert.ok(ours.ranks.every((rank) => rank.kernels.length > 0 && rank.steps.length === 3));
  assert.deepEqual(values(ours), values(theirs));
});

test("times before the zero of the clock and names of megabytes", async () => {
  using folder = new TestFolder();
  const varint = (value: bigint): number[] =>
    value < 128n ? [Number(value)] : [Number(value & 127n) | 128, ...varint(value >> 7n)];
  const field = (number: number, value: bigint | Buffer | string): Buffer => {
    if (typeof value === "bigint") return Buffer.from([number << 3, ...varint(BigInt.asUintN(64, value))]);
    const bytes = Buffer.from(value);
    return Buffer.concat([Buffer.from([(number << 3) | 2, ...varint(BigInt(bytes.length))]), bytes]);
  };
  const message = (...list: [number: number, value: bigint | Buffer | string][]): Buffer =>
    Buffer.concat(list.map(([number, value]) => field(number, value)));
  const named = (id: bigint, name: string): Buffer => message([1, id], [2, message([1, id], [2, name])]);
  const stats: [number, Buffer][] = [
    [4, message([1, 1n], [5, "dot"])],
    [4, message([1, 2n], [3, 0n])],
  ];
  const event = (offset: bigint, duration: bigint): [number, Buffer] => [
    4,
    message([1, 1n], [2, offset], [3, duration], ...stats),
  ];
  const events = [event(1_500_000n, 1_999_600n), event(-1_500_400n, 2_000_000n), event(9_000_000n, -7000n)];
  const many = Array.from({ length: 20_000 }, (_, i) => event(BigInt(10_000_000 + 10_000 * i), 5000n));
  const line = message([2, "t"], [3, -5000n], ...events, ...many);
  const plane = message(
    [2, "/host:CPU"],
    [3, line],
    [4, named(1n, "d".repeat(4 << 20))],
    [5, named(1n, "hlo_op")],
    [5, named(2n, "device_ordinal")],
  );
  const [rank] = (await analyzeTraces([folder.file("a.xplane.pb", message([1, plane]))])).ranks;
  assert.equal(rank.kernels[0].name.length, 4096);
  assert.equal(rank.kernels[0].count, 20_002);
  assert.match(rank.problems.join(), /1 events with a negative duration/);
  // From -6.5 us (rounded to a nanosecond) to the end of the last event; two events of 2 us do not overlap the others.
  assert.equal(Math.round(1000 * (rank.spanUs ?? 0)), 6500 + 5000 + 199_990 + 5);
  assert.equal(Math.round(1000 * (rank.computeUs ?? 0)), 4000 + 20_000 * 5);
});

test("a damaged xplane.pb is used as far as it goes and never throws", async () => {
  using folder = new TestFolder();
  const whole = readFileSync(binary);
  for (let i = 1; i < 40; i++) {
    const cut = whole.subarray(0, Math.floor((whole.length * i) / 40));
    const report = await analyzeTraces([folder.file(`cut${i}.xplane.pb`, cut)]);
    assert.ok(report.ranks.every((rank) => !rank.complete));
    const noise = Buffer.from(whole);
    for (let k = 0; k < 50; k++) noise[(k * 7919 * i) % noise.length] ^= 1 << (k % 8);
    await analyzeTraces([folder.file(`noise${i}.xplane.pb`, noise)]);
  }
});
