// Compressed sums of gradients on three devices, against rounding and selection written out here: what is sent, what is kept back,
// and that over several steps nothing is lost.
import assert from "node:assert/strict";
import { test } from "node:test";
import type { GraphFn } from "../graph/index.js";
import { build, type Value } from "../ops/index.js";
import type { Compression } from "./compress.js";
import { gatherValue, runLockstep, scatterValue } from "./lockstep.js";
import { markNode, markOf } from "./marks.js";
import { Mesh } from "./mesh.js";
import { partitionFunction } from "./partition.js";
import { Placement } from "./placement.js";

const [ranks, count] = [3, 8];
const mesh = Mesh.of({ data: ranks });
const rows = Placement.split(mesh, [ranks, count], { 0: "data" });

/** The sum of one row per device as a gradient, and its error feedback. */
function gradientStep(): GraphFn {
  const [parts, kept] = [build.input([ranks, count], "float32"), build.input([ranks, count], "float32")];
  return {
    params: [parts, kept],
    outputs: [markNode(build.sum(parts, [0]), "gradient", 0), markNode(kept, "feedback", 0)],
  };
}

const value = (numbers: number[]): Value => ({
  shape: [ranks, count],
  dtype: "float32",
  data: Float32Array.from(numbers),
});

/** One step: sum, what is kept back, bytes between devices. */
function run(compression: Compression | undefined, parts: number[], kept: number[]) {
  const made = partitionFunction(gradientStep(), {
    mesh,
    params: [rows, rows],
    strategy: (node) => (markOf(node)?.kind === "gradient" ? { split: {}, carry: [] } : null),
    results: [Placement.replicated(mesh, 1), rows],
    bucketBytes: 1 << 16,
    compression,
  });
  const args = [parts, kept].map((numbers) => scatterValue(value(numbers), rows));
  const perRank = mesh.ranks.map((_, r) => args.map((list) => list[r]));
  const { results, traffic } = runLockstep(made.functions, perRank, mesh.ranks);
  const output = (i: number, shape: number[]): number[] =>
    Array.from(
      gatherValue(
        results.map((list) => list[i]),
        made.results[i],
        shape,
      ).data as Float32Array,
    );
  return {
    sum: output(0, [count]),
    kept: output(1, [ranks, count]),
    kinds: traffic.map(({ kind }) => kind),
    bytes: traffic.reduce((n, { bytes }) => n + bytes, 0),
    counted: made.moves.reduce((n, move) => n + move.bytes, 0),
  };
}

/** To bfloat16 and back: 8 bits of mantissa, ties to even. */
function toBfloat16(x: number): number {
  const bits = new Uint32Array(Float32Array.of(x).buffer)[0];
  const rounded = (bits + 0x7fff + ((bits >>> 16) & 1)) & 0xffff0000;
  return new Float32Array(Uint32Array.of(rounded >>> 0).buffer)[0];
}

const parts = Array.from({ length: ranks * count }, (_, i) => Math.fround(Math.sin(i * 1.7 + 1) * 10 ** (i % 3)));
const none = new Array<number>(ranks * count).fill(0);
const f = Math.fround;

test("half types: every device sends a rounded value and keeps the rest", () => {
  const { sum, kept, bytes, counted, kinds } = run({ dtype: "bfloat16" }, parts, none);
  const sent = parts.map(toBfloat16);
  assert.deepEqual(
    kept,
    parts.map((x, i) => f(x - sent[i])),
  );
  assert.ok(kept.some((x) => x !== 0));
  for (let k = 0; k < count; k++) {
    const wanted = sent[k] + sent[count + k] + sent[2 * count + k];
    assert.ok(Math.abs(sum[k] - wanted) <= 2 ** -7 * Math.abs(wanted), `${sum[k]} ${wanted}`);
  }
  const plain = run(undefined, parts, none);
  assert.deepEqual(kinds, ["allReduce"]);
  assert.deepEqual([bytes, counted], [plain.bytes / 2, plain.counted / 2]);
  assert.deepEqual(plain.kept, none, "without compression nothing is kept back");
});

test("top-k: the largest elements of each device are summed, the others kept, and sent later", () => {
  const share = 0.25;
  const chosen = count * share;
  let kept = none;
  const total = new Array<number>(count).fill(0);
  for (let step = 0; step < 12; step++) {
    const before = parts.map((x, i) => f(x + kept[i]));
    const result = run({ topK: share }, parts, kept);
    const wanted = new Array<number>(count).fill(0);
    const rest = [...before];
    for (let r = 0; r < ranks; r++) {
      const own = before.slice(r * count, (r + 1) * count);
      const order = own.map((_, k) => k).sort((a, b) => Math.abs(own[b]) - Math.abs(own[a]) || a - b);
      for (const k of order.slice(0, chosen)) {
        wanted[k] = f(wanted[k] + own[k]);
        rest[r * count + k] = 0;
      }
    }
    assert.deepEqual(result.sum, wanted, `step ${step}`);
    assert.deepEqual(result.kept, rest, `step ${step}`);
    kept = result.kept;
    result.sum.forEach((x, k) => {
      total[k] += x;
    });
    if (step === 0) {
      assert.deepEqual(result.kinds, ["allGather", "allGather"]);
      assert.equal(result.counted, 2 * chosen * 8, "values and positions of two other devices");
    }
  }
  // What was not sent yet is what is missing in the sum of all steps.
  for (let k = 0; k < count; k++) {
    const whole = 12 * (parts[k] + parts[count + k] + parts[2 * count + k]);
    const missing = kept[k] + kept[count + k] + kept[2 * count + k];
    assert.ok(Math.abs(total[k] + missing - whole) <= 1e-3 * Math.abs(whole) + 1e-3, `${total[k]} ${missing} ${whole}`);
  }
});

test("NaN on one device reaches all, although it is not among the largest", () => {
  const broken = [...parts];
  broken[5] = Number.NaN;
  assert.ok(run({ topK: 0.1 }, broken, none).sum.some(Number.isNaN));
  assert.ok(run({ dtype: "float16" }, broken, none).sum.some(Number.isNaN));
});
