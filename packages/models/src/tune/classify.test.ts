// Classes of texts: probabilities against a softmax of the model's scores, whatever the batch, and what cannot be classified. Texts that
// are too long are cut where the tokenizer says, in classification and fine-tuning alike.
import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { key, setDevice, type Tensor, tensor } from "@weft/core";
import { mapNamed } from "@weft/core/nn";
import { classifyTexts, defineModel, fineTuning, loadPretrained, loadTokenizer, savePretrained } from "../index.js";
import { byteVocabulary, scratch, writeTokenizer } from "../transformers.testkit.js";

setDevice("reference");
const folder = scratch();
const sizes = {
  vocab_size: byteVocabulary,
  hidden_size: 16,
  num_hidden_layers: 1,
  num_attention_heads: 2,
  intermediate_size: 24,
  initializer_range: 0.3,
};
const roberta = { model_type: "roberta", max_position_embeddings: 12, pad_token_id: 1, ...sizes };
const names = ["no", "yes", "maybe"];

/** A folder with a model and a byte-level tokenizer. */
async function made(
  name: string,
  config: Record<string, unknown>,
  options: Parameters<typeof defineModel>[1],
  settings: Record<string, unknown> = {},
): Promise<string> {
  const dir = join(folder, name);
  writeTokenizer(dir);
  const path = join(dir, "tokenizer_config.json");
  writeFileSync(path, JSON.stringify({ ...JSON.parse(readFileSync(path, "utf8")), ...settings }));
  const model = defineModel(config, options);
  await savePretrained(dir, model, model.init(key(3)));
  return dir;
}
const open = async (dir: string) => [await loadPretrained(dir), await loadTokenizer(dir)] as const;
const texts = ["abc", "x", "hello you", "q r s t"];

test("probabilities are the softmax of the scores of each text alone, and independent ones for several classes", async () => {
  const task = { task: "classification", labels: names } as const;
  const [model, tokenizer] = await open(await made("single", roberta, task));
  const found = await classifyTexts(model, tokenizer, texts, { batch: 3 });
  for (const [i, text] of texts.entries()) {
    const inputIds = tensor([tokenizer.encode(text).ids], { dtype: "int32" });
    const scores = (await (model.apply(model.params, { inputIds }).logits as Tensor).data()) as Float32Array;
    const powers = [...scores].map((x) => Math.exp(x));
    const sum = powers.reduce((a, b) => a + b);
    for (const [k, name] of names.entries())
      assert.ok(Math.abs(found[i].probabilities[name] - powers[k] / sum) < 1e-5, `${text}: ${name}`);
    assert.equal(found[i].label, names[scores.indexOf(Math.max(...scores))]);
  }
  const several = { ...roberta, problem_type: "multi_label_classification" };
  const [many, own] = await open(await made("many", several, task));
  const [{ probabilities }] = await classifyTexts(many, own, [texts[2]]);
  const inputIds = tensor([own.encode(texts[2]).ids], { dtype: "int32" });
  const scores = (await (many.apply(many.params, { inputIds }).logits as Tensor).data()) as Float32Array;
  for (const [k, name] of names.entries())
    assert.ok(Math.abs(probabilities[name] - 1 / (1 + Math.exp(-scores[k]))) < 1e-5, name);
});

test("models without a trained head of classes are refused with what to do", async () => {
  const [masked, tokenizer] = await open(await made("masked", roberta, { task: "masked-lm" }));
  await assert.rejects(classifyTexts(masked, tokenizer, ["a"]), /the task of the model is masked-lm/);
  const fresh = await loadPretrained(join(folder, "masked"), { task: "classification" });
  await assert.rejects(classifyTexts(fresh, tokenizer, ["a"]), /no trained classification head .*fine-tune/);
  const [one, bytes] = await open(await made("one", roberta, { task: "classification", labels: 1 }));
  await assert.rejects(classifyTexts(one, bytes, ["a"]), /regression/);
  await assert.rejects(classifyTexts(one, bytes, "a" as never), /list of texts/);
});

test("texts longer than the positions of a RoBERTa are cut, at the side that the tokenizer says", async () => {
  // The first two rows of its table are not positions: 12 rows are 10 positions.
  const rows = join(folder, "rows.csv");
  const long = "0123456789abcdef";
  writeFileSync(rows, `label,text\nno,${long}\nyes,short\n`);
  for (const side of ["right", "left"]) {
    const dir = await made(side, roberta, { task: "classification", labels: ["no", "yes"] }, { truncation_side: side });
    const [model, tokenizer] = await open(dir);
    assert.equal(model.config.maxPositions, 10);
    assert.equal(model.parameters["roberta.embeddings.position_embeddings.weight"].shape[0], 12);
    const kept = side === "right" ? long.slice(0, 10) : long.slice(-10);
    const [whole, part] = await classifyTexts(model, tokenizer, [long, kept]);
    assert.deepEqual(whole, part);
    const { data, loss, model: tuned } = await fineTuning({ from: dir, data: rows, maxLength: 512 });
    const ids = await data.train.inputIds.data();
    assert.equal(String.fromCharCode(...Array.from(ids as Int32Array).slice(0, 10)), kept);
    const first = tuned.init(key(0));
    assert.ok(Number.isFinite(Number(await loss(first, data.train, { key: key(1), train: false }).item())));
  }
});

test("scores that are not numbers are an error, not a class", async () => {
  const [model, tokenizer] = await open(await made("damaged", roberta, { task: "classification", labels: names }));
  const params = mapNamed(model.params, (name, leaf) => (name.endsWith("out_proj.bias") ? leaf.mul(Number.NaN) : leaf));
  await assert.rejects(
    classifyTexts({ ...model, params }, tokenizer, texts),
    /scores of text 1 are not numbers \(NaN\)/,
  );
});

test("labels whose shape or dtype only fits by broadcasting are refused, also by fine-tuning", async () => {
  const inputIds = tensor([[4], [5], [6]], { dtype: "int32" });
  const lossOf = (problem: string, labels: Tensor, count = 3): Tensor => {
    const model = defineModel({ ...roberta, problem_type: problem }, { task: "classification", labels: count });
    return model.loss(model.init(key(1)), { inputIds, labels });
  };
  const ids = tensor([0, 1, 2], { dtype: "int32" });
  assert.throws(() => lossOf("multi_label_classification", ids), /labels have shape \[3\], expected \[3, 3\]/);
  assert.throws(() => lossOf("regression", ids), /labels have shape \[3\], expected \[3, 3\]/);
  assert.throws(() => lossOf("single_label_classification", tensor([0.5, 1, 2])), /classes are whole numbers/);
  assert.throws(() => lossOf("regression", tensor([[1, 2, 3]]), 1), /expected \[3, 1\]/);
  // A single output may have flat labels, as in transformers: the mean of squares is the same.
  const flat = await lossOf("regression", tensor([1, 2, 3]), 1).item();
  assert.equal(flat, await lossOf("regression", tensor([[1], [2], [3]]), 1).item());
  // The kind that a folder names is that of its fine-tuning.
  const data = join(folder, "single.csv");
  writeFileSync(data, "label,text\na,x\nb,y\n");
  const from = (problem: string) => made(problem, { ...roberta, problem_type: problem }, { task: "masked-lm" });
  const tuned = await fineTuning({ from: await from("multi_label_classification"), data });
  assert.deepEqual(await tuned.data.train.labels.array(), [
    [1, 0],
    [0, 1],
  ]);
  await assert.rejects(fineTuning({ from: await from("regression"), data }), /the label "a", which is not a number/);
});

test("held-out texts have all classes, also where these alternate in the file", async () => {
  const from = await made("alternating", roberta, { task: "masked-lm" });
  const data = join(folder, "alternating.csv");
  const rows = Array.from({ length: 60 }, (_, i) => `${i % 2 === 0 ? "even" : "odd"},text ${i}`);
  writeFileSync(data, `label,text\n${rows.join("\n")}\n`);
  const { data: splits } = await fineTuning({ from, data, validation: 0.5, maxLength: 8 });
  for (const split of [splits.train, splits.validation]) {
    const labels = (await split?.labels.data()) as Int32Array;
    assert.equal(labels.length, 30);
    const odd = labels.reduce((n, label) => n + label, 0);
    assert.ok(odd > 5 && odd < 25, `${odd} of 30`);
  }
  await assert.rejects(
    fineTuning({ from, data, validation: 0.01 }),
    /validation is 0.01, which is less than one of 60 texts/,
  );
});
