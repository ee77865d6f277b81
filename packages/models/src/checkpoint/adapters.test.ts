// Folders of LoRA adapters: those of PEFT give the outputs of PEFT, PEFT loads those of Weft, and what is not supported is refused.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { io, key, setDevice, type Tensor, tensor } from "@weft/core";
import { stateDict } from "@weft/core/nn";
import { patient, testPython } from "@weft/testing/python";
import type { ModelTask } from "../architectures/index.js";
import type { JsonObject } from "../config/index.js";
import { defineModel } from "../model/index.js";
import { scratch } from "../transformers.testkit.js";
import { loraOf } from "../tune/index.js";
import { loadPretrained, type PretrainedModel } from "./load.js";
import { savePretrained } from "./save.js";

setDevice("reference");
const script = fileURLToPath(new URL("../../testdata/peft_oracle.py", import.meta.url));
const { python, skip } = existsSync(script)
  ? testPython("peft", "LoRA adapters against PEFT")
  : { python: "", skip: `${script} is not here` };
const folder = scratch();

const gpt2 = { model_type: "gpt2", vocab_size: 32, n_embd: 16, n_layer: 2, n_head: 2, n_positions: 16 };
const sizes = { vocab_size: 32, hidden_size: 16, intermediate_size: 24, num_hidden_layers: 2, num_attention_heads: 2 };
const untied = { model_type: "llama", ...sizes, num_key_value_heads: 1, tie_word_embeddings: false };
const bert = { model_type: "bert", ...sizes, max_position_embeddings: 16 };
const ids = [
  [1, 2, 3, 4],
  [7, 8, 9, 10],
];
const inputIds = tensor(ids, { dtype: "int32" });

const outputs = async ({ apply, params }: PretrainedModel): Promise<number[]> => {
  const { logits, hidden } = apply(params, { inputIds });
  return Array.from((await (logits ?? hidden).data()) as Float32Array);
};
function assertClose(actual: readonly number[], expected: readonly number[], what: string): void {
  assert.equal(actual.length, expected.length, what);
  const worst = Math.max(...actual.map((x, i) => Math.abs(x - expected[i])));
  assert.ok(worst < 2e-5, `${what}: ${worst}`);
}

interface Case {
  config: JsonObject;
  task: ModelTask;
  lora: JsonObject;
}
const lm = (config: JsonObject, lora: JsonObject): Case => ({ config, task: "causal-lm", lora: { r: 3, ...lora } });
const cases: Record<string, Case> = {
  all: lm(gpt2, { target_modules: "all-linear", use_rslora: true }),
  dora: lm(gpt2, { target_modules: ["c_attn", "c_proj"], use_dora: true }),
  patterns: lm(untied, {
    target_modules: ["q_proj", "v_proj", "down_proj"],
    rank_pattern: { "layers.0.self_attn.q_proj": 2, down_proj: 5 },
    alpha_pattern: { v_proj: 3, "^model.layers.1.mlp.down_proj": 7, "(q|k)_proj": 9 },
  }),
  some: lm(untied, { target_modules: ".*layers\\.1\\..*(q|k)_proj" }),
  whole: lm(untied, { target_modules: ["embed_tokens", "o_proj"], modules_to_save: ["lm_head"] }),
  head: lm(untied, { target_modules: ["lm_head", "up_proj"] }),
  classes: {
    config: { ...bert, num_labels: 3 },
    task: "classification",
    lora: { r: 3, target_modules: ["query", "dense"], bias: "all", task_type: "SEQ_CLS" },
  },
  tags: { config: { ...bert, num_labels: 3 }, task: "token-classification", lora: { task_type: "TOKEN_CLS" } },
  backbone: { config: bert, task: "base", lora: { r: 3, target_modules: ["value"], lora_bias: true } },
};

/** A model with a new head and trained adapters, as a fine-tuning has them. */
async function written(name: string, config: JsonObject, task: ModelTask, targets?: string[]) {
  const base = defineModel(config, { task: task === "causal-lm" ? task : "base" });
  await savePretrained(join(folder, name, "base"), base, base.init(key(3)));
  const model = await loadPretrained(join(folder, name, "base"), { task, ...(task !== "causal-lm" && { labels: 3 }) });
  const lora = loraOf(model, { rank: 2, alpha: 3, ...(targets !== undefined && { targets }) });
  const adapters = lora.init(key(4));
  for (const one of Object.values(adapters)) one.lora_B = one.lora_B.add(0.2);
  const named = stateDict(model.params);
  const head = Object.fromEntries(model.initialized.map((parameter) => [parameter, named[parameter]]));
  await lora.save(join(folder, name, "adapter"), adapters, head);
  return { expected: await outputs({ ...model, params: lora.merge(model.params, adapters) }), labels: 3 };
}

test("adapters of PEFT give its outputs, and PEFT gives those of Weft's adapters", { skip }, async () => {
  const roberta = { ...bert, model_type: "roberta", max_position_embeddings: 20, pad_token_id: 1 };
  const own: [string, JsonObject, ModelTask, string[]?][] = [
    ["own-gpt2", gpt2, "causal-lm", ["c_attn", "c_fc"]],
    ["own-bert", { ...bert, num_labels: 3 }, "classification"],
    ["own-roberta", { ...roberta, num_labels: 3 }, "classification"],
    ["own-tags", { ...bert, num_labels: 3 }, "token-classification", ["query", "dense"]],
  ];
  const expected = [];
  for (const args of own) expected.push(await written(...args));
  const request = {
    out: folder,
    ids,
    cases,
    written: own.map(([name, , task]) => ({
      base: join(folder, name, "base"),
      adapter: join(folder, name, "adapter"),
      task,
    })),
  };
  const ran = spawnSync(python, [script], { ...patient, input: JSON.stringify(request), encoding: "utf8" });
  assert.equal(ran.status, 0, ran.stderr);
  const answer = JSON.parse(ran.stdout) as { cases: Record<string, number[]>; written: number[][] };
  for (const [name, values] of Object.entries(answer.cases)) {
    const model = await loadPretrained(join(folder, name, "base"), {
      adapter: join(folder, name, "adapter"),
      ...(name === "whole" && { task: "causal-lm" as const }),
    });
    assert.equal(model.task, cases[name].task);
    assert.deepEqual(model.initialized, []);
    assertClose(await outputs(model), values, name);
    const plain = await loadPretrained(join(folder, name, "base"), { task: model.task });
    assert.ok(
      (await outputs(plain)).some((x, i) => Math.abs(x - values[i]) > 1e-2),
      `${name} changes nothing`,
    );
  }
  for (const [i, values] of answer.written.entries()) {
    assertClose(expected[i].expected, values, own[i][0]);
    // The same folder, read back: the head and its classes come with the adapters.
    const [name] = own[i];
    const back = await loadPretrained(join(folder, name, "base"), { adapter: join(folder, name, "adapter") });
    assertClose(await outputs(back), values, `${name} read back`);
  }
});

/** A folder of adapters of the attention of a small GPT-2 whose B A is 0.1 everywhere, with a changed configuration. */
async function changed(name: string, config: JsonObject, tensors: Record<string, Tensor> = {}): Promise<string> {
  const path = join(folder, name);
  mkdirSync(path, { recursive: true });
  const layer = "base_model.model.transformer.h.0.attn.c_attn";
  const ones = (shape: number[], value: number): Tensor =>
    tensor(new Float32Array(shape[0] * shape[1]).fill(value), { shape });
  const own = { [`${layer}.lora_A.weight`]: ones([2, 16], 0.5), [`${layer}.lora_B.weight`]: ones([48, 2], 0.1) };
  await io.save(join(path, "adapter_model.safetensors"), { ...own, ...tensors });
  writeFileSync(
    join(path, "adapter_config.json"),
    JSON.stringify({ peft_type: "LORA", r: 2, lora_alpha: 4, ...config }),
  );
  return path;
}

test("an update is B A times alpha over rank, or over its square root", async () => {
  const model = defineModel(gpt2, { task: "causal-lm" });
  const base = join(folder, "closed");
  await savePretrained(base, model, model.init(key(1)));
  const weightOf = async (options: { adapter?: string }): Promise<Float32Array> => {
    const { params } = await loadPretrained(base, options);
    return (await stateDict(params)["transformer.h.0.attn.c_attn.weight"].data()) as Float32Array;
  };
  const before = await weightOf({});
  for (const [config, scale] of [
    [{}, 2],
    [{ use_rslora: true }, 4 / Math.sqrt(2)],
    [{ alpha_pattern: { c_attn: 6 } }, 3],
    [{ alpha_pattern: { "h.1.attn.c_attn": 6 } }, 2],
  ] as const) {
    const after = await weightOf({ adapter: await changed("update", config) });
    assertClose(
      Array.from(after, (x, i) => x - before[i]),
      new Array(before.length).fill(0.1 * scale),
      String(scale),
    );
  }
});

test("options and tensors that are not supported are refused by name", async () => {
  const base = join(folder, "refused");
  const model = defineModel(gpt2, { task: "causal-lm" });
  await savePretrained(base, model, model.init(key(1)));
  const one = tensor([[0]]);
  for (const [config, tensors, message] of [
    [{ peft_type: "IA3" }, {}, /peft_type is "IA3"/],
    [{ trainable_token_indices: [1] }, {}, /trainable_token_indices is \[1\]/],
    [{ layer_replication: [[0, 1]] }, {}, /layer_replication is/],
    [{ an_option_of_tomorrow: 3 }, {}, /an_option_of_tomorrow is 3/],
    [{ init_lora_weights: "pissa" }, {}, /init_lora_weights is "pissa"/],
    [{ use_dora: true }, {}, /lacks a magnitude/],
    [{ r: 3 }, {}, /has shape \[2, 16\], expected \[3, 16\]/],
    [{ rank_pattern: { c_attn: 4 } }, {}, /expected \[4, 16\]/],
    [{ alpha_pattern: { "(a+)+": 4 } }, {}, /the pattern "\(a\+\)\+" is not supported/],
    [{ alpha_pattern: { "(a": 4 } }, {}, /the pattern "\(a" is not supported/],
    [{ alpha_pattern: { a: "x" } }, {}, /alpha_pattern of a is "x"/],
    [{}, { "base_model.model.lm_head.lora_A.weight": one }, /shares its weights with the embedding/],
    [{}, { "base_model.model.score.weight": one }, /load the model with the task/],
    [{}, { "base_model.model.other.weight": one }, /belong to another model/],
    [{}, { "base_model.model.transformer.wte.lora_embedding_A": one }, /lacks lora_B/],
    [{}, { "base_model.model.transformer.ln_f.weight": one }, /ln_f.weight has shape \[1, 1\], expected \[16\]/],
  ] as const)
    await assert.rejects(loadPretrained(base, { adapter: await changed("odd", config, tensors) }), message);
  await assert.rejects(loadPretrained(await changed("odd", {})), /holds LoRA adapters, not a model/);
  await assert.rejects(loadPretrained(base, { adapter: base }), /has no adapter_config.json/);
  const cut = await changed("odd", {});
  const file = join(cut, "adapter_model.safetensors");
  writeFileSync(file, readFileSync(file).subarray(0, -9));
  await assert.rejects(loadPretrained(base, { adapter: cut }), /adapter_model.safetensors/);
});
