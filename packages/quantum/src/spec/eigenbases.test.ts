// Levels of devices are cached if only pulses are optimized: hits for equal devices, the same loss and gradient, and no
// eigensolver in the program.
import assert from "node:assert/strict";
import { test } from "node:test";
import * as weft from "@weft/core";
import { assertClose } from "@weft/testing/compare";
import { cacheStats, clearCaches } from "../cache/index.js";
import type { DeviceParameters } from "../systems/index.js";
import { GateProblem, parseGateSpec } from "./index.js";

const text = (learn: string, ej = 15): string =>
  `device: {parts: {q: {kind: transmon, ec: 0.25, ej: ${ej}, levels: 3, points: 22}}}\n` +
  "pulses:\n  - {on: q, name: x, operator: n, shape: cosine, length: 10, amplitude: 0.3, omega: 32}\n" +
  `evolution: {steps: 40, method: trotter2}\ntarget: {gate: X}\nlearn: ${learn}\n`;

test("levels are cached when pulses are optimized, and solved in the program when energies are", () => {
  clearCaches();
  const pulses = new GateProblem(parseGateSpec(text("[q.x.amplitude]")));
  new GateProblem(parseGateSpec(text("[q.x.omega]")));
  const stats = cacheStats().eigenbases!;
  assert.deepEqual([stats.entries, stats.misses, stats.hits], [1, 1, 1]);
  assert.ok(stats.bytes >= 3 * 8);
  const other = new GateProblem(parseGateSpec(text("[q.x.amplitude]", 16)));
  assert.equal(cacheStats().eigenbases!.misses, 2);
  const energies = new GateProblem(parseGateSpec(text("[q.x.amplitude, q.ej]")));
  assert.equal(cacheStats().eigenbases!.entries, 2);
  const both = (problem: GateProblem, keys: string[]) => {
    const run = weft.jit((p: DeviceParameters) => weft.valueAndGrad(problem.loss)(p));
    const p = problem.learned();
    const [value, slopes] = run(p) as [weft.Tensor, DeviceParameters];
    return { value: value.itemSync(), slope: slopes[keys[0]!]!.itemSync(), kernels: run.kernels(p) };
  };
  const a = both(pulses, ["q.x.amplitude"]);
  const b = both(energies, ["q.x.amplitude"]);
  assertClose(a.value, b.value, { rtol: 1e-12 });
  assertClose(a.slope, b.slope, { rtol: 1e-9 });
  assert.notEqual(both(other, ["q.x.amplitude"]).value, a.value);
  const solves = (names: string[]): number => names.filter((name) => /eigh|heev|syev/i.test(name)).length;
  assert.ok(solves(b.kernels) > 0, b.kernels.join());
  assert.ok(a.kernels.length < b.kernels.length, `${a.kernels.length} and ${b.kernels.length} kernels`);
});
