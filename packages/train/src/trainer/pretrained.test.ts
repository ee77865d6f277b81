// `model: { from: DIR }`: fine-tuning of a pretrained model through the trainer, from a configuration.
import assert from "node:assert/strict";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { io, key, setDevice, type Tensor } from "@weft/core";
import { stateDict } from "@weft/core/nn";
import { defineModel, loadPretrained, savePretrained } from "@weft/models";
import { scratch } from "../data/testkit.js";
import { loadAnyConfig } from "./config.js";
import { exportRun, openFineTuned } from "./export.js";
import { train } from "./train.js";

setDevice("reference");
const folder = scratch();
const letters = Object.fromEntries(Array.from("abcdefgh", (letter, id) => [letter, id]));
const tokenizer = {
  version: "1.0",
  added_tokens: [],
  normalizer: null,
  pre_tokenizer: null,
  post_processor: null,
  decoder: { type: "Fuse" },
  model: { type: "BPE", vocab: letters, merges: [] },
};
const sizes = { vocab_size: 8, hidden_size: 8, num_hidden_layers: 1, num_attention_heads: 2, intermediate_size: 12 };
const model = defineModel({ model_type: "bert", max_position_embeddings: 16, ...sizes }, { task: "masked-lm" });
await savePretrained(join(folder, "base"), model, model.init(key(0)));
writeFileSync(join(folder, "base/tokenizer.json"), JSON.stringify(tokenizer));
const rows = ["up,aaaa", "down,bbbb", "up,aa", "down,bb", "up,aaab", "down,bbba", "up,aac", "down,bbc"];
writeFileSync(join(folder, "rows.csv"), `${rows.join("\n")}\n`);

const yaml = (name: string, more = ""): string => {
  const path = join(folder, `${name}.yaml`);
  const text = [
    `name: ${name}`,
    "model: { from: ./base, max_length: 6 }",
    "data: rows.csv",
    "training: { epochs: 6, global_batch: 4 }",
    "optimizer: { type: adamw, learning_rate: 0.03 }",
    more,
  ];
  writeFileSync(path, `${text.join("\n")}\n`);
  return path;
};
const load = (name: string, more?: string, options = {}) =>
  loadAnyConfig(yaml(name, more), { output: join(folder, "runs", name), ...options });

for (const more of ["", "lora: { rank: 2 }"])
  test(`a configuration fine-tunes a pretrained model ${more}, and resumes where it stopped`, async () => {
    const name = more === "" ? "whole" : "lora";
    const { losses, status } = await train(load(name, more));
    assert.equal(status, "done");
    assert.ok(losses[losses.length - 1] < 0.8 * losses[0], losses.join(", "));
    const first = await train(load(`${name}-cut`, more, { maxSteps: 5 }));
    const rest = await train(load(`${name}-cut`, more), { resume: true });
    assert.deepEqual([...first.losses, ...rest.losses], losses);
    const [run, alone] = [join(folder, "runs", name), join(folder, `${name}-adapter`)];
    if (more === "") return assert.rejects(exportRun(run, alone, 5e9, { adapter: true }), /trained all parameters/);
    // The adapters with their new head, beside the base model, are the whole model.
    await exportRun(run, alone, 5e9, { adapter: true });
    await exportRun(run, join(folder, "lora-whole"));
    const both = [
      await loadPretrained(join(folder, "lora-whole")),
      await loadPretrained(join(folder, "base"), { adapter: alone }),
    ];
    assert.deepEqual(both[1].initialized, []);
    const opened = await openFineTuned(join(folder, "runs", name));
    assert.deepEqual(
      [...both.map(({ labels }) => labels), opened?.model.labels],
      [0, 1, 2].map(() => ["down", "up"]),
    );
    const [whole, merged, direct] = [...both, opened!.model].map(({ params }) => stateDict(params));
    assert.deepEqual(Object.keys(merged), Object.keys(whole));
    for (const [at, value] of Object.entries(whole))
      assert.deepEqual(
        { merged: merged[at].rawSync(), direct: direct[at].rawSync() },
        { merged: value.rawSync(), direct: value.rawSync() },
        at,
      );
  });

test("a memory limit stores GPT-2's attention by head: same losses and export, and resumed in that layout only", async () => {
  const gpt2 = defineModel(
    { model_type: "gpt2", vocab_size: 8, n_embd: 8, n_layer: 1, n_head: 2, n_positions: 16, resid_pdrop: 0 },
    { task: "causal-lm" },
  );
  const base = join(folder, "gpt2");
  await savePretrained(base, gpt2, gpt2.init(key(0)));
  writeFileSync(join(base, "tokenizer.json"), JSON.stringify(tokenizer));
  const config = (name: string, options = {}, set: string[] = []) =>
    load(name, "", { set: ["model.from=gpt2", "model.task=causal-lm", ...set], ...options });
  const limit = { memory: "1GiB" };
  const optionsOf = (given: unknown) => (given as { options: Record<string, unknown> }).options;
  assert.equal(optionsOf(config("limited", limit))["by_head"], true);
  assert.equal(optionsOf(config("limited", limit, ["model.by_head=false"]))["by_head"], false);
  for (const other of [config("limited"), load("limited", "", limit), load("limited", "lora: { rank: 2 }", limit)])
    assert.equal(optionsOf(other)["by_head"], undefined);

  const [files, byHead] = [await train(config("files")), await train(config("limited", limit))];
  assert.equal(byHead.losses.length, files.losses.length);
  const far = (a: ArrayLike<unknown>, b: ArrayLike<unknown>): number =>
    Math.max(...Array.from(a, (value, i) => Math.abs(Number(value) - Number(b[i]))));
  assert.ok(far(files.losses, byHead.losses) < 1e-4, `${files.losses} and ${byHead.losses}`);
  for (const name of ["files", "limited"]) await exportRun(join(folder, "runs", name), join(folder, `${name}-export`));
  const [one, two] = await Promise.all(
    ["files", "limited"].map((name) => io.load(join(folder, `${name}-export/model.safetensors`))),
  );
  assert.deepEqual(Object.keys(two), Object.keys(one));
  for (const [name, leaf] of Object.entries(one as Record<string, Tensor>)) {
    const own = (two as Record<string, Tensor>)[name];
    assert.deepEqual(own.shape, leaf.shape, name);
    assert.ok(far(leaf.dataSync(), own.dataSync()) < 1e-3, name);
  }

  await train(config("cut", { ...limit, maxSteps: 5 }));
  const resumed = await train(config("cut", limit), { resume: true });
  assert.deepEqual(resumed.losses, byHead.losses.slice(5));
  await train(config("cut-files", { maxSteps: 5 }));
  await assert.rejects(
    train(config("cut-files", limit), { resume: true }),
    /by_head was none and is true now \(set model/,
  );
});

test("own data is a file or a folder of splits, with columns by name", () => {
  mkdirSync(join(folder, "splits"));
  for (const name of ["train.csv", "validation.csv", "test.tsv"]) writeFileSync(join(folder, "splits", name), "a,b\n");
  const optionsOf = (data: string): Record<string, unknown> => {
    const path = join(folder, "own.yaml");
    const rest = "training: { epochs: 1, global_batch: 4 }\noptimizer: { learning_rate: 0.1 }\n";
    writeFileSync(path, `name: own\nmodel: { from: ./base }\ndata: ${data}\n${rest}`);
    return (loadAnyConfig(path) as { options: Record<string, unknown> }).options;
  };
  const split = (name: string): string => join(folder, "splits", name);
  const splits = { data: split("train.csv"), validation: split("validation.csv"), test: split("test.tsv") };
  const from = join(folder, "base");
  assert.deepEqual(optionsOf("splits"), { from, ...splits });
  assert.deepEqual(optionsOf("{ dataset: csv, path: splits, text: [t, u], label: c }"), {
    ...{ from, ...splits },
    ...{ text: ["t", "u"], label: "c" },
  });
  assert.deepEqual(optionsOf("{ path: rows.csv, validation: 0.2 }"), {
    ...{ from, data: join(folder, "rows.csv"), validation: 0.2 },
  });
  assert.throws(() => optionsOf("base"), /base is a folder without a training split/);
});

test("a new model is pretrained on packed texts, exported, fine-tuned and tested", async () => {
  const words = ["good", "bad", "film", "plot", "day"];
  const line = (i: number): string =>
    `${i % 2},${[0, 1, 2].map((k) => words[(i % 2) + ((i * k) % 2) * 2 * k]).join(" ")}`;
  for (const [name, count] of [
    ["train.csv", 40],
    ["test.csv", 8],
  ] as const)
    writeFileSync(join(folder, name), Array.from({ length: count }, (_, i) => line(i)).join("\n"));
  const write = (name: string, model: string): string => {
    const path = join(folder, `${name}.yaml`);
    const rest = "training: { epochs: 2, global_batch: 2 }\noptimizer: { learning_rate: 0.03 }";
    writeFileSync(path, `name: ${name}\nmodel: ${model}\ndata: { dataset: imdb, path: . }\n${rest}\n`);
    return path;
  };
  const sizes = "hidden_size: 8, num_hidden_layers: 1, num_attention_heads: 2, intermediate_size: 8";
  const config = `{ model_type: bert, vocab_size: 64, max_position_embeddings: 16, ${sizes} }`;
  const output = join(folder, "runs/new");
  const run = loadAnyConfig(write("new", `{ config: ${config}, task: masked-lm, packed: true, max_length: 12 }`), {
    output,
  });
  const { losses } = await train(run);
  assert.ok(losses.length < 40, "several texts share a row");
  await exportRun(output, join(folder, "encoder"));
  const encoder = await loadPretrained(join(folder, "encoder"));
  assert.equal(encoder.task, "masked-lm");
  assert.deepEqual(encoder.initialized, []);
  for (const more of ["", ", "]) {
    const name = more === "" ? "tuned" : "tuned-lora";
    const tuned = write(name, "{ from: ./encoder, max_length: 8 }");
    if (more !== "") writeFileSync(tuned, `${readFileSync(tuned, "utf8")}lora: { rank: 2 }\n`);
    const done = await train(loadAnyConfig(tuned, { output: join(folder, "runs", name), epochs: 4 }));
    assert.ok((done.test?.accuracy ?? 0) > 0.8, `accuracy ${done.test?.accuracy}`);
    await exportRun(join(folder, "runs", name), join(folder, `${name}-folder`));
    const loaded = await loadPretrained(join(folder, `${name}-folder`));
    assert.deepEqual([loaded.task, loaded.labels, loaded.initialized], ["classification", ["0", "1"], []]);
  }
});

test("NaN stops the run and names the parameter; unknown keys are refused", async () => {
  const broken = join(folder, "broken");
  const params = model.init(key(0)) as { bert: { encoder: { layer: { output: { dense: { weight: Tensor } } }[] } } };
  const { dense } = params.bert.encoder.layer[0].output;
  dense.weight = dense.weight.mul(Number.NaN);
  await savePretrained(broken, model, params);
  await io.load(join(broken, "model.safetensors"));
  writeFileSync(join(broken, "tokenizer.json"), JSON.stringify(tokenizer));
  const path = yaml("nan").replace(/$/, "");
  const config = loadAnyConfig(path, { output: join(folder, "runs/nan") }) as { options: Record<string, unknown> };
  config.options["from"] = broken;
  await assert.rejects(train(config as never), /bert\.encoder\.layer\.0\.output\.dense\.weight/);
  await assert.rejects(train(load("keys", "lora: { rank: 0 }")), /rank is a whole number/);
  const wrong = load("wrong") as { options: Record<string, unknown> };
  wrong.options["sped"] = 1;
  await assert.rejects(train(wrong as never), /sped is not known; the keys are from/);
});
