// Scores of numbers, of several labels per row and of entities: values of scikit-learn, SciPy and seqeval; and fine-tunings that report
// them, alone and on three ranks.
import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { CpuDevice, key, setDevice } from "@weft/core";
import { classifyTexts, defineModel, fineTuning, loadPretrained, predictNumbers, savePretrained } from "@weft/models";
import { scratch } from "../data/testkit.js";
import { loadAnyConfig } from "./config.js";
import { exportRun, openFineTuned } from "./export.js";
import { launchRanks } from "./ranks.js";
import { marksEntities, rowScores, type ScoreKind } from "./row-scores.js";
import { train } from "./train.js";
import type { RankTrained, RankTraining } from "./trained-ranks.testkit.js";

setDevice("reference");
const folder = scratch();
const skip = CpuDevice.available() ? false : "needs the CPU device";
delete process.env["WEFT_INTERPRET"];
const program = fileURLToPath(new URL("./trained-ranks.testkit.js", import.meta.url));

const letters = Object.fromEntries(Array.from("abcdefgh ", (letter, id) => [letter, id]));
const model = defineModel(
  {
    ...{ model_type: "bert", max_position_embeddings: 16, vocab_size: 9, hidden_size: 16, num_hidden_layers: 1 },
    ...{ num_attention_heads: 2, intermediate_size: 24, hidden_dropout_prob: 0 },
  },
  { task: "masked-lm" },
);
const base = join(folder, "base");
await savePretrained(base, model, model.init(key(0)));
writeFileSync(
  join(base, "tokenizer.json"),
  JSON.stringify({
    ...{ version: "1.0", added_tokens: [], normalizer: null, pre_tokenizer: null, post_processor: null },
    ...{ decoder: { type: "Fuse" }, model: { type: "BPE", vocab: letters, merges: [] } },
  }),
);

/** A few texts of the letters a to d. */
const texts = Array.from({ length: 22 }, (_, i) =>
  Array.from({ length: 3 + (i % 4) }, (_, k) => "abcd"[(i * 7 + k * k * 3 + ((i * k) % 5)) % 4]).join(""),
);
const count = (text: string, letter: string): number => text.split(letter).length - 1;
const write = (name: string, lines: readonly string[]): void =>
  writeFileSync(join(folder, name), `${lines.join("\n")}\n`);
write("numbers.csv", ["text,score", ...texts.map((text) => `${text},${count(text, "a") - count(text, "b") / 2}`)]);
const flags = (text: string): number[] => ["a", "b"].map((letter) => Number(count(text, letter) > 0));
write("columns.csv", ["text,has a,has b", ...texts.map((text) => `${text},${flags(text).join(",")}`)]);
write("names.csv", [
  "text,label",
  ...texts.map((text) => `${text},${["a", "b"].filter((_, k) => flags(text)[k]).join("|")}`),
]);
write(
  "tags.jsonl",
  texts.map((text) =>
    JSON.stringify({ tokens: [...text], tags: [...text].map((letter) => (letter === "a" ? "B-A" : "O")) }),
  ),
);
const config = (name: string, settings: string, data: string, more = "") => {
  const path = join(folder, `${name}.yaml`);
  const training = "training: { epochs: 3, global_batch: 8 }\noptimizer: { type: adamw, learning_rate: 0.01 }";
  writeFileSync(
    path,
    `name: ${name}\nmodel: { from: ./base, max_length: 8, ${settings} }\ndata: ${data}\n${training}\n${more}`,
  );
  return loadAnyConfig(path, { output: join(folder, "runs", name) });
};

type Table = readonly (readonly number[])[];
const scored = (kind: ScoreKind, predicted: Table, labels: Table, names: readonly string[] = []) =>
  rowScores(kind, Float64Array.from(labels.flatMap((row, i) => [...predicted[i], ...row])), labels.length, names);
const close = (actual: number | null | undefined, expected: number, what: string): void =>
  assert.ok(Math.abs((actual ?? Number.NaN) - expected) < 1e-12, `${what}: ${actual}, ${expected}`);

test("numbers: errors of scikit-learn 1.9 and correlations of SciPy 1.17, with equal values and means over outputs", () => {
  const predicted = [1.5, 2, 2, 4.25, -3, 0.5].map((x) => [x]);
  const labels = [1, 2, 2.5, 5, -2, 0].map((x) => [x]);
  const expected = {
    mse: 0.3854166666666667,
    mae: 0.5416666666666666,
    r2: 0.9180206794682422,
    pearson: 0.9640574017919266,
    spearman: 0.9856107606091624,
  };
  const { regression } = scored("regression", predicted, labels, ["value"]);
  for (const name of Object.keys(expected) as (keyof typeof expected)[])
    close(regression?.[name], expected[name], name);
  // A second output that is right everywhere.
  const both = scored(
    "regression",
    predicted.map(([x], i) => [x, i]),
    labels.map(([x], i) => [x, i]),
    ["a", "b"],
  ).regression;
  close(both?.pearson, (expected.pearson + 1) / 2, "mean of two outputs");
  close(both?.outputs["a"].spearman, expected.spearman, "first output");
  assert.ok(Number.isNaN(scored("regression", [[1], [1]], [[1], [2]]).regression?.pearson), "a constant");
});

test("several labels per row: F1 of all, of the labels, and weighted, over labels that never occur too", () => {
  const labels = [
    [1, 0, 1, 0],
    [0, 0, 0, 0],
    [1, 1, 0, 0],
    [0, 0, 1, 0],
    [0, 1, 0, 0],
  ];
  const predicted = [
    [1, 0, 0, 0],
    [0, 0, 0, 0],
    [1, 0, 0, 0],
    [0, 1, 1, 0],
    [0, 1, 0, 0],
  ];
  const { accuracy, scores } = scored("multi-label", predicted, labels, ["a", "b", "c", "d"]);
  close(accuracy, 0.4, "rows that are right as a whole");
  close(scores?.precision, 0.625, "precision");
  close(scores?.recall, 0.5, "recall");
  close(scores?.f1, 0.5416666666666666, "macro F1");
  close(scores?.microF1, 0.7272727272727273, "micro F1");
  close(scores?.weightedF1, 0.7222222222222222, "weighted F1");
  assert.equal(scores?.correlation, null);
});

test("entities are those of seqeval 1.2: also where I begins one, with E and S, and without words that have no label", () => {
  const cases = [
    {
      names: ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"],
      labels: [
        [1, 2, 0, 3, -100, 4],
        [3, 1, 0, 0, 0, 0],
        [2, 2, 0, 1, 1, 0],
      ],
      predicted: [
        [1, 2, 0, 3, 2, 4],
        [3, 4, 0, 0, 0, 1],
        [1, 2, 0, 1, 2, 0],
      ],
      accuracy: 0.7647058823529411,
      f1OfTags: 0.7512820512820513,
      entities: [0.5, 0.42857142857142855, 0.4615384615384615, 0.4722222222222222],
    },
    {
      names: ["O", "B-X", "I-X", "E-X", "S-X"],
      labels: [
        [1, 2, 3, 4, 0],
        [4, 0, 1, 3, 0],
      ],
      predicted: [
        [1, 3, 3, 4, 0],
        [2, 3, 1, 3, 4],
      ],
      accuracy: 0.6,
      f1OfTags: 0.5333333333333333,
      entities: [0.3333333333333333, 0.5, 0.4, 0.4],
    },
  ];
  for (const { names, labels, predicted, accuracy, f1OfTags, entities } of cases) {
    const found = scored("tags", predicted, labels, names);
    close(found.accuracy, accuracy, "accuracy of tags");
    close(found.scores?.f1, f1OfTags, "F1 of tags");
    (["precision", "recall", "f1", "macroF1"] as const).forEach((name, i) => {
      close(found.entities?.[name], entities[i], name);
    });
  }
  // Parts of speech mark no entities.
  assert.equal(marksEntities(["NOUN", "VERB"]), false);
  assert.equal(scored("tags", [[0, 1]], [[0, 0]], ["NOUN", "VERB"]).entities, undefined);
});

const split = (path: string, more = ""): string => `{ data: ${path}, validation: ${path}, test: ${path}${more} }`;
const many = "problem_type: multi_label_classification";
/** The configurations, each written where it is used. */
const configs = {
  numbers: () =>
    config("numbers", "problem_type: regression", split("numbers.csv", ", label: score"), "lora: { rank: 2 }"),
  columns: () => config("columns", many, split("columns.csv", ", label: [has a, has b]")),
  names: () => config("names", many, split("names.csv")),
  tags: () => config("tags", "task: token-classification", split("tags.jsonl")),
};

test("a regression of a file: scores are those of the exported model, adapters keep what they predict", async () => {
  const seen: unknown[] = [];
  const best = { onEpoch: (row: unknown) => seen.push(row) };
  const given = configs.numbers();
  given.training.best = "spearman";
  const { test: result, best: chosen } = await train(given, best);
  assert.ok(chosen !== null && result?.accuracy === null && result.regression !== undefined);
  const run = join(folder, "runs/numbers");
  const opened = await openFineTuned(run);
  await exportRun(run, join(folder, "numbers-adapter"), 5e9, { adapter: true });
  const loaded = await loadPretrained(base, { adapter: join(folder, "numbers-adapter") });
  assert.deepEqual([loaded.problem, loaded.labels], ["regression", ["score"]]);
  const guesses = await predictNumbers(opened!.model, opened!.tokenizer, texts);
  assert.deepEqual(await predictNumbers(loaded, opened!.tokenizer, texts), guesses);
  await assert.rejects(classifyTexts(loaded, opened!.tokenizer, texts), /predictNumbers/);
  const squares = texts.map((text, i) => (guesses[i]["score"] - count(text, "a") + count(text, "b") / 2) ** 2);
  const mse = squares.reduce((a, b) => a + b) / squares.length;
  assert.ok(Math.abs(mse - result.regression.mse) < 1e-6 * mse, `${mse} and ${result.regression.mse}`);
  assert.ok(Math.abs(mse - result.loss) < 1e-6 * mse);
  assert.ok(seen.every((row) => Number.isFinite((row as { valPearson: number }).valPearson)));
});

test("several labels by columns and by names are the same task; tags report entities", async () => {
  const columns = await train(configs.columns());
  const names = await train(configs.names());
  assert.deepEqual(columns.losses, names.losses);
  assert.deepEqual(Object.keys(columns.test?.scores?.classes ?? {}), ["has a", "has b"]);
  assert.equal(columns.test?.scores?.microF1, names.test?.scores?.microF1);
  const { model: tuned, tokenizer } = (await openFineTuned(join(folder, "runs/columns")))!;
  const guessed = await classifyTexts(tuned, tokenizer, texts);
  const right = texts.filter(
    (text, i) => guessed[i].labels?.join() === ["has a", "has b"].filter((_, k) => flags(text)[k]).join(),
  );
  assert.equal(columns.test?.accuracy, right.length / texts.length);
  const tags = await train(configs.tags());
  assert.deepEqual(Object.keys(tags.test?.entities?.types ?? {}), ["A"]);
  assert.equal(tags.epochs.at(-1)?.valF1, tags.test?.entities?.f1);
});

test("three ranks report the scores of one, also with a last batch of fewer rows than ranks", { skip }, async () => {
  const file = (name: string): string => join(folder, `${name}.yaml`);
  const [given, answers] = ["trainings.json", "answers.json"].map((name) => join(folder, name));
  // Batches of 7: 22 rows leave one.
  const trainings = (["numbers", "columns", "tags"] as const).map((name): RankTraining => {
    configs[name]();
    return {
      file: file(name),
      output: join(folder, `${name}-3`),
      set: ["training.global_batch=7", "training.epochs=2"],
    };
  });
  writeFileSync(given, JSON.stringify(trainings));
  await launchRanks({ size: 3, coresPerRank: 1, command: [process.execPath, program, given, answers] });
  const found = JSON.parse(readFileSync(answers, "utf8")) as RankTrained[];
  for (const [i, { file: path, output, set = [] }] of trainings.entries()) {
    const alone = await train(loadAnyConfig(path, { output: `${output}-alone`, set }));
    const numbersOf = (value: unknown): number[] =>
      typeof value === "object" && value !== null ? Object.values(value).flatMap(numbersOf) : [Number(value)];
    const [one, three] = [numbersOf(alone.test), numbersOf(found[i].test)];
    assert.equal(three.length, one.length);
    three.forEach((x, k) => {
      assert.ok(Math.abs(x - one[k]) < 1e-3 * Math.max(1, Math.abs(one[k])), `${path}: ${three} and ${one}`);
    });
  }
});

test("labels that do not fit the problem are errors that say what to set", async () => {
  const refused = (data: string, options: object, message: RegExp): Promise<void> =>
    assert.rejects(fineTuning({ from: base, data: join(folder, data), ...options }), message);
  const regression = { problemType: "regression" } as const;
  const many = { problemType: "multi_label_classification" } as const;
  await refused("numbers.csv", { label: "score" }, /labels are numbers such as .*set problem_type: regression/);
  await refused("names.csv", regression, /has the label .* which is not a number/);
  write("huge.csv", ["text,score", "a,1e39", "b,1"]);
  await refused("huge.csv", { ...regression, label: "score" }, /1e39.* is not a number/);
  await refused(
    "numbers.csv",
    { ...many, label: ["text", "score"] },
    /in the column text; columns of labels hold 0 and 1/,
  );
  write("list.jsonl", ['{"text":"a","labels":["x","y"]}', '{"text":"b","labels":[]}']);
  await refused("list.jsonl", {}, /has a list of labels .*multi_label_classification/);
  await refused("list.jsonl", { ...many, labels: ["x", "z"] }, /has the label y, which is not one of labels: x, z/);
  await refused("names.csv", { ...regression, task: "causal-lm" }, /problem_type .*for the task classification/);
  write("pairs.jsonl", ['{"text":"a","other":"b","label":1}', '{"text":"b","label":2}']);
  await refused("pairs.jsonl", { ...regression, pair: "other" }, /has no second text: the key "other" is missing/);
  // The configuration of a model that predicts numbers says so.
  const json = JSON.parse(readFileSync(join(base, "config.json"), "utf8"));
  const { labels } = (
    await fineTuning({
      config: { ...json, vocab_size: 64, problem_type: "regression" },
      data: join(folder, "numbers.csv"),
      label: "score",
    })
  ).data.train;
  assert.equal(labels.dtype, "float32");
});
