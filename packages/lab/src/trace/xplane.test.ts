// A profile of JAX in its binary form against the JSON that XProf made of the same profile.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { TestFolder, testdata, unpackTrace } from "./fixtures.js";
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
