// Predictions for partitioned functions: the kernel cost of the slowest device, computed by hand.
import assert from "node:assert/strict";
import { test } from "node:test";
import { h200, type Rates } from "@weft/core/internal/cost";
import { build } from "@weft/core/internal/ops";
import { Mesh, Placement, partitionFunction } from "@weft/core/internal/shard";
import { predictParts } from "./predict.js";

const { links, ...alone } = h200;
/** Rates: one gigabyte per second, free arithmetic, one millisecond per call. */
const rates: Rates = {
  ...alone,
  name: "a gigabyte a second",
  bandwidth: [[1, 1e9]],
  simple: 1e30,
  kernel: 0,
  call: 1e-3,
  links,
};

test("the largest shard decides, at the rates of that many devices", () => {
  const x = build.input([7, 1000], "float32");
  const fn = { params: [x], outputs: [build.neg(x)] };
  const mesh = Mesh.of({ d: 2 });
  const parts = partitionFunction(fn, { mesh, params: [Placement.split(mesh, x.shape, { 0: "d" })] });
  // Four rows of seven: 16 kB in, 16 kB out.
  const { seconds, rates: name, assumed } = predictParts(parts, rates);
  assert.ok(Math.abs(seconds - (1e-3 + 32e-6)) < 1e-12, String(seconds));
  assert.equal(name, "a gigabyte a second");
  assert.equal(assumed, true);
  const { links: _, ...crowd } = { ...rates, bandwidth: [[1, 0.5e9]] as [number, number][] };
  const crowded = predictParts(parts, { ...rates, crowded: { members: 2, rates: crowd } });
  assert.ok(Math.abs(crowded.seconds - (1e-3 + 64e-6)) < 1e-12, String(crowded.seconds));
});
