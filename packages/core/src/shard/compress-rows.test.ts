// Compressed gradients of embeddings on three devices, against sums of rows written out here: what is sent, what is kept back, and that
// over several steps nothing is lost.
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

const [ranks, vocabulary, width] = [3, 20, 4];
/** Rows of the batch: the devices have 2, 1 and 1 of them. */
const ids = [
  [3, 7, 3],
  [9, 3, 3],
  [7, 7, 0],
  [19, 3, 9],
];
const owner = [0, 0, 1, 2];
const mesh = Mesh.of({ data: ranks });
const batch = ids.length;
const length = ids[0].length;

function gradientStep(): GraphFn {
  const places = build.input([batch, length], "int32");
  const rows = build.input([batch, length, width], "float32");
  const kept = build.input([ranks, vocabulary, width], "float32");
  const table = build.scatterAdd(build.full([vocabulary, width], 0, "float32"), places, rows, 0, 0);
  return { params: [places, rows, kept], outputs: [markNode(table, "gradient", 0), markNode(kept, "feedback", 0)] };
}

function run(compression: Compression | undefined, rows: number[], kept: number[]) {
  const split = (shape: number[]): Placement => Placement.split(mesh, shape, { 0: "data" });
  const params = [split([batch, length]), split([batch, length, width]), split([ranks, vocabulary, width])];
  const whole = { split: {}, carry: [] };
  const made = partitionFunction(gradientStep(), {
    mesh,
    params,
    strategy: (node) => (node.op === "scatterAdd" || markOf(node)?.kind === "gradient" ? whole : null),
    results: [Placement.replicated(mesh, 2), params[2]],
    bucketBytes: 1 << 16,
    compression,
  });
  const values: Value[] = [
    { shape: [batch, length], dtype: "int32", data: Int32Array.from(ids.flat()) },
    { shape: [batch, length, width], dtype: "float32", data: Float32Array.from(rows) },
    { shape: [ranks, vocabulary, width], dtype: "float32", data: Float32Array.from(kept) },
  ];
  const args = values.map((value, i) => scatterValue(value, params[i]));
  const perRank = mesh.ranks.map((_, r) => args.map((list) => list[r]));
  const { results } = runLockstep(made.functions, perRank, mesh.ranks);
  const output = (i: number, shape: number[]): number[] =>
    Array.from(
      gatherValue(
        results.map((list) => list[i]),
        made.results[i],
        shape,
      ).data as Float32Array,
    );
  return {
    sum: output(0, [vocabulary, width]),
    kept: output(1, [ranks, vocabulary, width]),
    bytes: made.moves.reduce((n, move) => n + move.bytes, 0),
  };
}

const rows = Array.from({ length: batch * length * width }, (_, i) =>
  Math.fround(Math.sin(i * 1.3 + 1) * 3 ** (i % 5)),
);
const none = new Array<number>(ranks * vocabulary * width).fill(0);
/** The whole gradient of one step. */
const exact = new Array<number>(vocabulary * width).fill(0);
ids.flat().forEach((id, at) => {
  for (let d = 0; d < width; d++) exact[id * width + d] += rows[at * width + d];
});
const plain = run(undefined, rows, none);

for (const [name, how, steps] of [
  ["bfloat16", { dtype: "bfloat16" }, 6],
  ["top-k", { topK: 0.25 }, 40],
] as const)
  test(`rows by ${name}: fewer bytes, and what is not sent is kept until it is`, () => {
    let kept = none;
    const total = new Array<number>(vocabulary * width).fill(0);
    for (let step = 0; step < steps; step++) {
      const result = run(how, rows, kept);
      assert.ok(result.bytes < 0.7 * plain.bytes, `${result.bytes} of ${plain.bytes}`);
      kept = result.kept;
      result.sum.forEach((x, i) => {
        total[i] += x;
      });
      if (step === 0) assert.notDeepEqual(result.sum, plain.sum);
    }
    // What a device has not sent yet is what is missing in the sum of all steps.
    total.forEach((sum, i) => {
      const missing = [0, 1, 2].reduce((n, r) => n + kept[r * exact.length + i], 0);
      const wanted = steps * exact[i];
      assert.ok(
        Math.abs(sum + missing - wanted) <= 2e-4 * Math.abs(wanted) + 2e-3,
        `${i}: ${sum} ${missing} ${wanted}`,
      );
    });
    // Rows that a device never touched have nothing to keep.
    for (let r = 0; r < ranks; r++) {
      const touched = new Set(ids.flatMap((row, i) => (owner[i] === r ? row : [])));
      for (let v = 0; v < vocabulary; v++)
        for (let d = 0; d < width; d++) if (!touched.has(v)) assert.equal(kept[(r * vocabulary + v) * width + d], 0);
    }
  });

test("without compression the sum is that of all rows", () => {
  plain.sum.forEach((x, i) => {
    assert.ok(Math.abs(x - exact[i]) <= 1e-5 * Math.abs(exact[i]) + 1e-5);
  });
});
