// Every architecture against transformers, with random weights: logits with masks and padding, gradients of every parameter, ten
// steps of AdamW, and checkpoints that go back and forth bit for bit. All architectures run on the reference device, which needs no
// compiler; that the other devices agree with it is the subject of core's tests, and a few models run on the CPU device here.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { io, jit, setDevice, type Tensor, valueAndGrad } from "@weft/core";
import { stateDict } from "@weft/core/nn";
import * as optim from "@weft/core/optim";
import { useFastCompiler } from "@weft/testing/fast-compiler";
import { defineModel, loadPretrained, type ModelTask, type Outputs, type Params, savePretrained } from "./index.js";
import {
  askTransformers,
  difference,
  integers,
  type NamedArrays,
  needsTransformers,
  numbers,
  type OracleRequest,
  scratch,
  toBatch,
} from "./transformers.testkit.js";

const folder = scratch();
const vocabulary = 60;
const [rows, length] = [3, 10];
const ids = integers(rows, length, 3, vocabulary, 1);
/** Rows of 10, 7 and 4 tokens, padded at the right or at the left. */
const padded = (left: boolean): number[][] =>
  [10, 7, 4].map((n) => Array.from({ length }, (_, i) => ((left ? i >= length - n : i < n) ? 1 : 0)));
const right = padded(false);
const pairs = integers(rows, length, 0, 2, 2);
const classes = integers(1, rows, 0, 3, 3)[0];
const perToken = integers(rows, length, 0, 3, 4).map((row, i) => row.map((x, k) => (right[i][k] === 1 ? x : -100)));
const nextTokens = (mask: number[][]): number[][] =>
  ids.map((row, i) => row.map((x, k) => (mask[i][k] === 1 ? x : -100)));
const masked = integers(rows, length, 0, vocabulary, 5).map((row) => row.map((x, k) => (k % 3 === 0 ? x : -100)));

const encoder = {
  vocab_size: vocabulary,
  hidden_size: 24,
  num_hidden_layers: 2,
  num_attention_heads: 4,
  intermediate_size: 40,
  max_position_embeddings: 32,
  num_labels: 3,
};
const decoder = { ...encoder, num_key_value_heads: 2, pad_token_id: 0 };
const small = {
  bert: { ...encoder, model_type: "bert", hidden_act: "gelu" },
  roberta: { ...encoder, model_type: "roberta", pad_token_id: 1, type_vocab_size: 1 },
  distilbert: {
    model_type: "distilbert",
    vocab_size: vocabulary,
    dim: 24,
    n_layers: 2,
    n_heads: 4,
    hidden_dim: 40,
    max_position_embeddings: 32,
    num_labels: 3,
  },
  gpt2: {
    model_type: "gpt2",
    vocab_size: vocabulary,
    n_embd: 24,
    n_layer: 2,
    n_head: 4,
    n_positions: 32,
    pad_token_id: 0,
    num_labels: 3,
    bos_token_id: 1,
    eos_token_id: 2,
  },
  llama: { ...decoder, model_type: "llama" },
  qwen2: { ...decoder, model_type: "qwen2" },
  vit: {
    model_type: "vit",
    hidden_size: 24,
    num_hidden_layers: 2,
    num_attention_heads: 4,
    intermediate_size: 40,
    image_size: 12,
    patch_size: 4,
    num_channels: 3,
    num_labels: 3,
  },
};

const text = { input_ids: ids, attention_mask: right };
/** Ids whose padding is the padding token, for heads that look for it. */
const withPads = {
  input_ids: ids.map((row, i) => row.map((x, k) => (right[i][k] === 1 ? x : 0))),
  attention_mask: right,
};
const image = Array.from({ length: rows }, (_, b) =>
  Array.from({ length: 3 }, (_, c) =>
    Array.from({ length: 12 }, (_, h) => numbers(12, b * 100 + c * 20 + h).map((x) => x * 2 - 1)),
  ),
);

interface Case {
  name: string;
  task: ModelTask;
  class: string;
  config: Record<string, unknown>;
  batch: Record<string, unknown>;
}

const rope = (parameters: Record<string, unknown>, more: Record<string, unknown> = {}) => ({
  ...small.llama,
  ...more,
  rope_parameters: { rope_theta: 10000, ...parameters },
});

const cases: Case[] = [
  { name: "bert", task: "base", class: "BertModel", config: small.bert, batch: { ...text, token_type_ids: pairs } },
  {
    name: "bert classification",
    task: "classification",
    class: "BertForSequenceClassification",
    config: small.bert,
    batch: { ...text, token_type_ids: pairs, labels: classes },
  },
  {
    name: "bert tokens",
    task: "token-classification",
    class: "BertForTokenClassification",
    config: small.bert,
    batch: { ...text, labels: perToken },
  },
  {
    name: "bert masked",
    task: "masked-lm",
    class: "BertForMaskedLM",
    config: { ...small.bert, hidden_act: "gelu_new" },
    batch: { ...text, labels: masked },
  },
  {
    name: "bert masked, not tied",
    task: "masked-lm",
    class: "BertForMaskedLM",
    config: { ...small.bert, tie_word_embeddings: false },
    batch: { ...text, labels: masked },
  },
  {
    name: "roberta classification",
    task: "classification",
    class: "RobertaForSequenceClassification",
    config: small.roberta,
    batch: {
      input_ids: ids.map((row, i) => row.map((x, k) => (right[i][k] === 1 ? x : 1))),
      attention_mask: right,
      labels: classes,
    },
  },
  {
    name: "roberta masked",
    task: "masked-lm",
    class: "RobertaForMaskedLM",
    config: small.roberta,
    batch: {
      input_ids: ids.map((row) => row.map((x, k) => (k > 7 ? 1 : x))),
      attention_mask: ids.map((row) => row.map((_, k) => (k > 7 ? 0 : 1))),
      labels: masked.map((row) => row.map((x, k) => (k > 7 ? -100 : x))),
    },
  },
  {
    name: "roberta tokens",
    task: "token-classification",
    class: "RobertaForTokenClassification",
    config: small.roberta,
    batch: { ...text, labels: perToken },
  },
  {
    name: "distilbert classification",
    task: "classification",
    class: "DistilBertForSequenceClassification",
    config: small.distilbert,
    batch: { ...text, labels: classes },
  },
  {
    name: "distilbert masked",
    task: "masked-lm",
    class: "DistilBertForMaskedLM",
    config: small.distilbert,
    batch: { ...text, labels: masked },
  },
  {
    name: "gpt2",
    task: "causal-lm",
    class: "GPT2LMHeadModel",
    config: small.gpt2,
    batch: { ...text, labels: nextTokens(right) },
  },
  {
    name: "gpt2 left padding",
    task: "causal-lm",
    class: "GPT2LMHeadModel",
    config: small.gpt2,
    // The first token of a row would be predicted by padding, whose values mean nothing.
    batch: {
      input_ids: ids,
      attention_mask: padded(true),
      labels: nextTokens(padded(true)).map((row, i) => row.map((x, k) => (k === length - [10, 7, 4][i] ? -100 : x))),
    },
  },
  {
    name: "gpt2 classification",
    task: "classification",
    class: "GPT2ForSequenceClassification",
    config: small.gpt2,
    batch: { ...withPads, labels: classes },
  },
  {
    name: "llama",
    task: "causal-lm",
    class: "LlamaForCausalLM",
    config: small.llama,
    batch: { ...text, labels: nextTokens(right) },
  },
  {
    name: "llama tied, biases, head size",
    task: "causal-lm",
    class: "LlamaForCausalLM",
    config: { ...small.llama, tie_word_embeddings: true, attention_bias: true, mlp_bias: true, head_dim: 10 },
    batch: { ...text, labels: nextTokens(right) },
  },
  {
    name: "llama classification",
    task: "classification",
    class: "LlamaForSequenceClassification",
    config: small.llama,
    batch: { ...withPads, labels: classes },
  },
  {
    name: "llama tokens",
    task: "token-classification",
    class: "LlamaForTokenClassification",
    config: small.llama,
    batch: { ...text, labels: perToken },
  },
  ...[
    { rope_type: "linear", factor: 4 },
    { rope_type: "dynamic", factor: 2 },
    { rope_type: "llama3", factor: 8, low_freq_factor: 1, high_freq_factor: 4, original_max_position_embeddings: 16 },
    { rope_type: "yarn", factor: 4, original_max_position_embeddings: 8 },
  ].map((parameters) => ({
    name: `llama rope ${parameters.rope_type}`,
    task: "causal-lm" as const,
    class: "LlamaForCausalLM",
    config: rope(parameters, parameters.rope_type === "dynamic" ? { max_position_embeddings: 6 } : {}),
    batch: { input_ids: ids, labels: nextTokens(padded(false).map((row) => row.map(() => 1))) },
  })),
  {
    name: "qwen2",
    task: "causal-lm",
    class: "Qwen2ForCausalLM",
    config: small.qwen2,
    batch: { ...text, labels: nextTokens(right) },
  },
  {
    name: "qwen2 sliding window",
    task: "causal-lm",
    class: "Qwen2ForCausalLM",
    config: { ...small.qwen2, use_sliding_window: true, sliding_window: 4, max_window_layers: 1 },
    batch: { ...text, labels: nextTokens(right) },
  },
  {
    name: "vit",
    task: "classification",
    class: "ViTForImageClassification",
    config: small.vit,
    batch: { pixel_values: image, labels: classes },
  },
  { name: "vit base", task: "base", class: "ViTModel", config: small.vit, batch: { pixel_values: image } },
];

const directory = (name: string): string => join(folder, name.replace(/\W+/g, "-"));
const requests = cases.map(
  ({ name, class: kind, config, batch }): OracleRequest => ({
    dir: directory(name),
    class: kind,
    config,
    batch,
    steps: batch["labels"] === undefined ? 0 : 10,
    seed: name.length,
    shard: "20KB",
  }),
);
setDevice("reference");
const answers = needsTransformers.skip !== false ? [] : await askTransformers(requests);

/** Difference outside of padding, whose published values mean nothing. */
function apart(own: Tensor, theirs: io.HostArray, batch: Record<string, unknown>): Promise<number> {
  const mask = batch["attention_mask"] as number[][] | undefined;
  return difference(own, theirs, 1, own.rank < 3 ? undefined : mask?.flat());
}

/** Logits, gradients of the first step, and the losses before each of eleven steps, all by one program. */
async function compare({ name, task, batch }: Case, expected: NamedArrays): Promise<void> {
  const model = await loadPretrained(directory(name));
  assert.equal(model.task, task);
  assert.deepEqual(model.initialized, []);
  const given = toBatch(batch);
  const optimizer = optim.adamW({ learningRate: 1e-3 });
  const forward = (p: Params): Outputs => model.apply(p, given);
  const checkOutputs = async (outputs: Outputs): Promise<void> => {
    const [own, theirs] = task === "base" ? [outputs.hidden, expected.hidden] : [outputs.logits!, expected.logits];
    const off = await apart(own, theirs, batch);
    assert.ok(off <= 1e-4, `logits differ by ${off}`);
    if (expected.pooled !== undefined) assert.ok((await difference(outputs.pooled!, expected.pooled)) <= 1e-4);
  };
  if (given.labels === undefined) return checkOutputs(jit(forward)(model.params));

  let params = model.params;
  let state = optimizer.init(params);
  const step = jit((p: Params, s: typeof state) => {
    const [loss, grads] = valueAndGrad((q: Params) => model.loss(q, given))(p);
    const [next, after] = optimizer.update(p, grads, s);
    return { next, after, loss, grads, outputs: forward(p) };
  });
  const wanted = Array.from(expected.losses.data, Number);
  for (let k = 0; k <= 10; k++) {
    const { next, after, loss, grads, outputs } = step(params, state);
    const value = Number(await loss.item());
    const bound = k === 0 ? 1e-4 : 1e-3;
    assert.ok(Math.abs(value - wanted[k]) <= bound * Math.abs(wanted[k]), `loss ${k}: ${value} and ${wanted[k]}`);
    if (k === 0) {
      await checkOutputs(outputs);
      const named = stateDict(grads);
      const compared = Object.keys(expected).filter((key) => key.startsWith("grad."));
      assert.equal(compared.length, Object.keys(named).length);
      for (const key of compared) {
        const off = await difference(named[key.slice(5)], expected[key], 1e-3);
        assert.ok(off <= 1e-3, `${key} differs by ${off}`);
      }
    }
    [params, state] = [next, after];
  }
  assert.ok(wanted[10] < wanted[0], "the steps change the loss");
}

describe("architectures equal transformers", needsTransformers, () => {
  cases.forEach((one, i) => {
    test(one.name, async () => {
      setDevice("reference");
      await compare(one, answers[i]);
    });
  });

  test("two of them on the CPU device", async () => {
    const fast = useFastCompiler();
    setDevice("cpu");
    try {
      for (const name of ["gpt2 left padding", "llama"]) {
        const i = cases.findIndex((one) => one.name === name);
        await compare(cases[i], answers[i]);
      }
    } finally {
      setDevice("reference");
      fast.remove();
    }
  });
});

describe("checkpoints", needsTransformers, () => {
  test("a saved folder holds the same bits and loads in transformers, in one file and in shards", async () => {
    const chosen = cases.filter(({ name }) => ["bert masked", "gpt2", "llama", "vit base"].includes(name));
    const saved: OracleRequest[] = [];
    for (const { name, class: kind, batch } of chosen) {
      const model = await loadPretrained(directory(name));
      for (const maxShardBytes of [1e9, 8000]) {
        const target = `${directory(name)}-saved-${maxShardBytes}`;
        await savePretrained(target, model, model.params, { maxShardBytes });
        const back = await loadPretrained(target);
        const [before, after] = [stateDict(model.params), stateDict(back.params)];
        assert.deepEqual(Object.keys(after), Object.keys(before));
        for (const key of Object.keys(before)) assert.deepEqual(after[key].rawSync(), before[key].rawSync(), key);
        saved.push({ dir: target, class: kind, load: true, batch });
      }
    }
    const again = await askTransformers(saved);
    for (const [k, answer] of again.entries()) {
      const { name } = chosen[Math.floor(k / 2)];
      const first = answers[cases.findIndex((c) => c.name === name)];
      for (const key of ["logits", "hidden", "pooled"])
        if (first[key] !== undefined) assert.equal(await difference(answer[key], first[key]), 0, `${name} ${key}`);
    }
  });

  test("half types keep their bits and load as float32 on request", async () => {
    const dirs = ["bfloat16", "float16"].map((dtype) => join(folder, `half-${dtype}`));
    await askTransformers(
      dirs.map((dir) => ({
        dir,
        class: "GPT2LMHeadModel",
        config: small.gpt2,
        dtype: dir.split("-").at(-1) as string,
      })),
    );
    for (const dir of dirs) {
      const model = await loadPretrained(dir, { dtype: "auto" });
      const raw = await io.readSafetensors(join(dir, "model.safetensors"));
      const named = stateDict(model.params);
      for (const [key, { data, dtype }] of Object.entries(raw)) {
        assert.equal(named[key].dtype, dtype);
        assert.deepEqual(named[key].rawSync(), data, key);
      }
      const wide = stateDict((await loadPretrained(dir)).params);
      assert.equal(wide["transformer.wte.weight"].dtype, "float32");
      const narrow = await named["transformer.wte.weight"].cast("float32").data();
      assert.deepEqual(await wide["transformer.wte.weight"].data(), narrow);
      await savePretrained(`${dir}-saved`, model, model.params);
      assert.deepEqual(
        (await io.readSafetensors(join(`${dir}-saved`, "model.safetensors")))["transformer.wte.weight"].data,
        raw["transformer.wte.weight"].data,
      );
      assert.equal(
        JSON.parse(readFileSync(join(`${dir}-saved`, "config.json"), "utf8")).dtype,
        named["transformer.wte.weight"].dtype,
      );
    }
  });

  test("a backbone without a prefix loads under a new head, which is reported", async () => {
    const model = await loadPretrained(directory("bert"), { task: "classification", labels: ["a", "b", "c", "d"] });
    assert.deepEqual([...model.initialized].sort(), ["classifier.bias", "classifier.weight"]);
    assert.deepEqual(model.labels, ["a", "b", "c", "d"]);
    const from = await loadPretrained(directory("bert masked"), { task: "classification", labels: 4 });
    assert.ok(from.initialized.includes("bert.pooler.dense.weight"));
    assert.ok(from.unused.includes("cls.predictions.bias"));
    assert.deepEqual(defineModel(from.json).labels, from.labels);
  });
});
