// Sums of gradients over ranks: buckets in backward order, tables as rows where that is less.
import assert from "node:assert/strict";
import { test } from "node:test";
import * as weft from "@weft/core";
import * as nn from "@weft/core/nn";
import { backwardOrder, namesOf, planBuckets, sendsTouchedRows, sumGradients, sumRows } from "./buckets.js";
import { type RankGroup, singleRank } from "./group.js";

weft.setDevice("reference");
const params = nn.textClassifier.init(
  { vocabulary: 50, width: 8, heads: 2, layers: 2, feedForward: 12, classes: 3, positions: "learned", maxLength: 9 },
  weft.key(0),
);

/** Two ranks with equal values: sums double, gathered rows appear twice. Counts what is sent. */
function twins(): RankGroup & { sent: number[] } {
  const sent: number[] = [];
  return {
    ...singleRank,
    size: 2,
    sent,
    sum: (t) => {
      sent.push(t.size);
      return t.mul(2);
    },
    gather: (t) => weft.concat([t, t]),
  };
}

test("gradients are ordered from the end of the model to the embedding table", () => {
  const names = namesOf(params);
  const order = backwardOrder(names).map((i) => names[i]);
  assert.match(order[0], /^classifier/);
  assert.equal(order.at(-1), "embedding.weight");
  assert.equal(order.at(-2), "positions.weight");
  const first = (prefix: string): number => order.findIndex((name) => name.startsWith(prefix));
  assert.ok(first("encoder.layers.1.linear") < first("encoder.layers.1.self_attn"));
  assert.ok(first("encoder.layers.1.self_attn") < first("encoder.layers.0.linear"));
});

test("buckets hold every leaf once and respect the limit; a larger leaf has its own bucket", () => {
  const [leaves, names] = [weft.treeLeaves(params), namesOf(params)];
  for (const limit of [1, 300, 2000, 1e9]) {
    const buckets = planBuckets(leaves, names, limit);
    assert.deepEqual(
      buckets.flat().sort((a, b) => a - b),
      leaves.map((_, i) => i),
    );
    for (const bucket of buckets) {
      const bytes = bucket.reduce((n, i) => n + 4 * leaves[i].size, 0);
      assert.ok(bytes <= limit || bucket.length === 1, `${bytes} of ${limit}`);
    }
    if (limit === 1) assert.equal(buckets.length, leaves.length);
    if (limit === 1e9) assert.equal(buckets.length, 1);
  }
});

test("summed gradients keep the structure of the tree", () => {
  const group = twins();
  const summed = nn.stateDict(sumGradients(params, group, 2000));
  for (const [name, leaf] of Object.entries(nn.stateDict(params)))
    assert.deepEqual(
      Array.from(summed[name].dataSync() as Float32Array),
      Array.from(leaf.mul(2).dataSync() as Float32Array),
      name,
    );
  assert.ok(group.sent.length > 1 && group.sent.length < weft.treeLeaves(params).length);
  assert.equal(sumGradients(params, singleRank, 2000), params, "one rank sends nothing");
});

test("an embedding gradient sent as rows equals the dense one, also for repeated tokens", () => {
  const table = weft.zeros([6, 2], { dtype: "float64" });
  const ids = weft.tensor(Int32Array.from([4, 1, 4]), { dtype: "int32" });
  const rows = weft.tensor(
    [
      [1, 2],
      [3, 4],
      [10, 20],
    ],
    { dtype: "float64" },
  );
  const expected = [0, 0, 6, 8, 0, 0, 0, 0, 22, 44, 0, 0];
  assert.deepEqual(Array.from(sumRows(table, ids, rows, twins()).dataSync() as Float64Array), expected);
  assert.deepEqual(
    [sendsTouchedRows(100, 1, 20000), sendsTouchedRows(4096, 2, 20000), sendsTouchedRows(32768, 2, 20000)],
    [false, true, false],
  );
});
