// Precision, recall, F1 and correlation: values of scikit-learn, over batches, a partial last batch and ignored labels.
import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import * as weft from "@weft/core";
import { classCounts } from "@weft/core/nn";
import { scratch } from "../data/testkit.js";
import { scoresOf } from "./class-scores.js";
import { train } from "./train.js";

const folder = scratch();
weft.setDevice("reference");

// Computed by scikit-learn 1.9 (zero_division=0). The last three have classes that only one side has; the second has one class.
const cases = [
  {
    labels: [0, 1, 2, 2, 1, 0, 0, 1, 2, 2, 2],
    predicted: [0, 2, 2, 2, 1, 0, 1, 1, 0, 2, 2],
    accuracy: 0.7272727272727273,
    precision: 0.7111111111111111,
    recall: 0.7111111111111111,
    f1: 0.7111111111111111,
    weightedF1: 0.7272727272727273,
    correlation: 0.5769230769230769,
  },
  {
    labels: [0, 0, 0, 0],
    predicted: [0, 0, 0, 0],
    accuracy: 1,
    precision: 1,
    recall: 1,
    f1: 1,
    weightedF1: 1,
    correlation: 0,
  },
  {
    labels: [0, 1, 1, 0, 3],
    predicted: [1, 0, 0, 1, 0],
    ...{ accuracy: 0, precision: 0, recall: 0, f1: 0, weightedF1: 0, correlation: -0.7216878364870323 },
  },
  {
    labels: [0, 0, 1, 1],
    predicted: [0, 0, 0, 0],
    ...{ accuracy: 0.5, precision: 0.25, recall: 0.5, f1: 1 / 3, weightedF1: 1 / 3, correlation: 0 },
  },
  {
    labels: [2, 2, 2, 0],
    predicted: [2, 4, 2, 2],
    ...{ accuracy: 0.5, precision: 2 / 9, recall: 2 / 9, f1: 2 / 9, weightedF1: 0.5, correlation: -1 / 6 },
  },
];
const names = ["precision", "recall", "f1", "weightedF1", "correlation"] as const;

function assertScores(actual: ReturnType<typeof scoresOf>, expected: (typeof cases)[number]): void {
  assert.ok(Math.abs(actual.accuracy - expected.accuracy) < 1e-12);
  for (const name of names)
    assert.ok(
      Math.abs((actual.scores[name] ?? Number.NaN) - expected[name]) < 1e-12,
      `${name}: ${actual.scores[name]}, ${expected[name]}`,
    );
}

test("scores from counts are those of scikit-learn; a task without rows has zeros", async () => {
  for (const expected of cases) {
    // Ignored labels, whatever was predicted for them, change nothing.
    const ids = (list: readonly number[]): weft.Tensor => weft.tensor([...list], { dtype: "int32" });
    const counts = classCounts(ids([...expected.predicted, 1, 4]), ids([...expected.labels, -100, 7]), 5);
    const [right, predicted, labeled] = (await counts.array()) as number[][];
    assertScores(scoresOf(right, predicted, labeled, []), expected);
  }
  const { accuracy, scores } = scoresOf([0, 0], [0, 0], [0, 0], ["a", "b"]);
  assert.deepEqual([accuracy, ...names.map((name) => scores[name])], [0, 0, 0, 0, 0, 0]);
});

test("a run evaluates its test rows by class, in batches of which the last is smaller", async () => {
  const [expected] = cases;
  const column = (list: readonly number[]): weft.Tensor => weft.tensor([...list], { dtype: "int32" });
  const rows = { guess: column(expected.predicted), label: column(expected.labels) };
  const { test: result, epochs } = await train({
    name: "scores",
    model: { init: () => ({ w: weft.tensor([1]) }) },
    loss: (params: { w: weft.Tensor }, batch: typeof rows) => params.w.mul(batch.label.cast("float32")).mean(),
    data: { train: rows, validation: rows, test: rows },
    correct: (_: unknown, batch: typeof rows) => classCounts(batch.guess, batch.label, 3),
    classes: ["x", "y", "z"],
    training: { epochs: 1, global_batch: 4, best: "f1" },
    optimizer: { type: "sgd", learning_rate: 0.01 },
    output: join(folder, "scores"),
  });
  assert.ok(result?.scores != null && result.accuracy !== null);
  assertScores({ accuracy: result.accuracy, scores: result.scores }, expected);
  assert.deepEqual(result.scores.classes["x"], { precision: 2 / 3, recall: 2 / 3, f1: 2 / 3, support: 3 });
  assert.ok(Math.abs((epochs[0].valF1 ?? 0) - expected.f1) < 1e-12);
});
