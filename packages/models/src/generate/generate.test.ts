// Generation: token for token as transformers generates, with prompts of different lengths; sampling against closed forms; no
// program beyond the first two; streaming, stop sequences and the end of a text.
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { key, memory, setDevice, tensor } from "@weft/core";
import { mapNamed } from "@weft/core/nn";
import {
  defineModel,
  generate,
  generateTokens,
  loadPretrained,
  loadTokenizer,
  savePretrained,
  streamText,
} from "../index.js";
import {
  askTransformers,
  byteVocabulary,
  integers,
  needsTransformers,
  scratch,
  writeTokenizer,
} from "../transformers.testkit.js";
import type { TokenOptions } from "./decode.js";
import { generationPrograms, roundUp } from "./index.js";
import { checkTokenSampling, chooseToken } from "./sampling.js";

setDevice("reference");
const folder = scratch();
const common = { vocab_size: 60, bos_token_id: 1, eos_token_id: 2 };
const configs = {
  gpt2: { ...common, model_type: "gpt2", n_embd: 24, n_layer: 2, n_head: 4, n_positions: 48 },
  llama: {
    ...common,
    model_type: "llama",
    hidden_size: 24,
    num_hidden_layers: 2,
    num_attention_heads: 4,
    num_key_value_heads: 2,
    intermediate_size: 40,
    max_position_embeddings: 64,
  },
  qwen2: {
    ...common,
    model_type: "qwen2",
    hidden_size: 24,
    num_hidden_layers: 2,
    num_attention_heads: 4,
    num_key_value_heads: 1,
    intermediate_size: 40,
    max_position_embeddings: 64,
    use_sliding_window: true,
    sliding_window: 5,
    max_window_layers: 1,
  },
};
const classes = { gpt2: "GPT2LMHeadModel", llama: "LlamaForCausalLM", qwen2: "Qwen2ForCausalLM" };
const lengths = [7, 3, 5];
const longest = Math.max(...lengths);
const prompts = integers(3, longest, 3, 60, 11).map((row, i) => row.slice(0, lengths[i]));
// transformers counts padding among the tokens that occurred, so it must be a token that did.
const padded = prompts.map((p) => [...new Array<number>(longest - p.length).fill(p[0]), ...p]);
const mask = prompts.map((p) => [...new Array<number>(longest - p.length).fill(0), ...p.map(() => 1)]);

async function collect(steps: AsyncIterable<(number | null)[]>, rows: number): Promise<number[][]> {
  const all: number[][] = Array.from({ length: rows }, () => []);
  for await (const step of steps)
    step.forEach((token, row) => {
      if (token !== null) all[row].push(token);
    });
  return all;
}

describe("greedy generation equals transformers, token for token", needsTransformers, () => {
  for (const kind of ["gpt2", "llama", "qwen2"] as const)
    test(kind, async () => {
      const dir = join(folder, kind);
      const case_ = { input_ids: padded, attention_mask: mask, max_new_tokens: 20, eos_token_id: 2 };
      const [answer] = await askTransformers([
        {
          dir,
          class: classes[kind],
          config: configs[kind],
          noise: 0.3,
          generate: [case_, { ...case_, repetition_penalty: 1.7 }],
        },
      ]);
      const model = await loadPretrained(dir);
      for (const [i, repetitionPenalty] of [undefined, 1.7].entries()) {
        const options = { maxNewTokens: 20, ...(repetitionPenalty !== undefined && { repetitionPenalty }) };
        const own = await collect(generateTokens(model, model.params, prompts, options), 3);
        const made = Array.from(answer[`generated.${i}`].data, Number);
        const width = answer[`generated.${i}`].shape[1];
        own.forEach((tokens, row) => {
          const wanted = made.slice(row * width, (row + 1) * width);
          const end = wanted.indexOf(2);
          assert.deepEqual(tokens, end < 0 ? wanted : wanted.slice(0, end + 1));
        });
      }
      // A row generates the same alone.
      const alone = await collect(generateTokens(model, model.params, [prompts[1]], { maxNewTokens: 20 }), 1);
      const all = await collect(generateTokens(model, model.params, prompts, { maxNewTokens: 20 }), 3);
      assert.deepEqual(alone[0], all[1]);
    });
});

test("excluded tokens are those of transformers, with no program per token", needsTransformers, async () => {
  const dir = join(folder, "excluded");
  const config = { ...configs.llama, vocab_size: 12 };
  const few = prompts.map((row) => row.map((id) => id % 12));
  const words = [[3], [4, 5], [7, 7], [1, 2, 3], [2]];
  /** Options of transformers and of Weft. */
  const options: [Record<string, unknown>, TokenOptions][] = [
    [{ no_repeat_ngram_size: 1 }, { noRepeatNgram: 1 }],
    [{ no_repeat_ngram_size: 2 }, { noRepeatNgram: 2 }],
    [
      { no_repeat_ngram_size: 3, repetition_penalty: 0.6 },
      { noRepeatNgram: 3, repetitionPenalty: 0.6 },
    ],
    [{ bad_words_ids: words }, { badWords: words }],
    [{ suppress_tokens: [2, 9, 4] }, { suppressTokens: [2, 9, 4] }],
    [{ min_new_tokens: 9 }, { minNewTokens: 9 }],
    [
      { min_new_tokens: 5, no_repeat_ngram_size: 4, bad_words_ids: words, suppress_tokens: [8] },
      { minNewTokens: 5, noRepeatNgram: 4, badWords: words, suppressTokens: [8] },
    ],
  ];
  // Each prompt by itself: transformers counts padding among the tokens that occurred.
  const generate = options.flatMap(([given]) =>
    few.map((row) => ({ input_ids: [row], max_new_tokens: 24, eos_token_id: 2, ...given })),
  );
  const [answer] = await askTransformers([{ dir, class: classes.llama, config, noise: 0.3, generate }]);
  const model = await loadPretrained(dir);
  const plain = await collect(generateTokens(model, model.params, few, { maxNewTokens: 24 }), 3);
  for (const [i, [, given]] of options.entries()) {
    const before = generationPrograms(model);
    const own = await collect(generateTokens(model, model.params, few, { maxNewTokens: 24, ...given }), 3);
    const wanted = few.map((_, row) => Array.from(answer[`generated.${i * 3 + row}`].data, Number));
    assert.deepEqual(own, wanted, JSON.stringify(given));
    assert.notDeepEqual(own, plain, JSON.stringify(given));
    assert.ok(generationPrograms(model) <= before + 2);
  }
  // The same of generation_config.json.
  const [given] = options[6];
  writeFileSync(join(dir, "generation_config.json"), JSON.stringify({ eos_token_id: 2, ...given }));
  const loaded = await loadPretrained(dir);
  const wanted = few.map((_, row) => Array.from(answer[`generated.${18 + row}`].data, Number));
  assert.deepEqual(await collect(generateTokens(loaded, loaded.params, few, { maxNewTokens: 24 }), 3), wanted);
  const off = { noRepeatNgram: 0, badWords: [], suppressTokens: [], minNewTokens: 0 };
  assert.deepEqual(await collect(generateTokens(loaded, loaded.params, few, { maxNewTokens: 24, ...off }), 3), plain);
});

test(
  "dynamic scaling generates beyond the positions of the model, as transformers does",
  needsTransformers,
  async () => {
    const dir = join(folder, "dynamic");
    const config = {
      ...configs.llama,
      max_position_embeddings: 10,
      rope_parameters: { rope_type: "dynamic", factor: 2, rope_theta: 10000 },
    };
    const case_ = { input_ids: [prompts[0]], max_new_tokens: 12, eos_token_id: 2 };
    const [answer] = await askTransformers([{ dir, class: classes.llama, config, noise: 0.3, generate: [case_] }]);
    const model = await loadPretrained(dir);
    const [own] = await collect(generateTokens(model, model.params, [prompts[0]], { maxNewTokens: 12 }), 1);
    assert.deepEqual(own, Array.from(answer["generated.0"].data, Number));
    assert.equal(own.length, 12, "7 + 12 of 2 x 10 positions");
  },
);

const model = defineModel({ ...configs.llama, vocab_size: byteVocabulary, eos_token_id: 261 }, { task: "causal-lm" });
const params = model.init(key(3));

test("prompts and lengths within one size share two programs, and no memory stays behind", async () => {
  const own = defineModel(configs.llama, { task: "causal-lm" });
  const drawn = own.init(key(1));
  await collect(generateTokens(own, drawn, [[5]], { maxNewTokens: 6 }), 1);
  const before = memory().bytes;
  for (const length of [3, 9, 16])
    await collect(generateTokens(own, drawn, [integers(1, length, 3, 60, length)[0]], { maxNewTokens: 6 }), 1);
  assert.equal(generationPrograms(own), 2);
  assert.ok(memory().bytes <= before, `${memory().bytes - before} bytes stay`);
  assert.deepEqual([1, 16, 17, 25, 33, 50, 65].map(roundUp), [16, 16, 24, 32, 48, 64, 96]);
});

test("draws follow the filtered distribution", async () => {
  const scores = [2, 1, 0, -1, 0.5];
  const rows = 4000;
  const logits = tensor([scores]).expand([rows, 5]);
  const shares = async (options: Parameters<typeof checkTokenSampling>[0]): Promise<number[]> => {
    const drawn = await chooseToken(logits, checkTokenSampling({ temperature: 1, ...options }), key(5)).data();
    const counts = new Array<number>(5).fill(0);
    for (const token of drawn as Int32Array) counts[token] += 1 / rows;
    return counts;
  };
  const expected = (allowed: number[], temperature = 1): number[] => {
    const weights = scores.map((s, i) => (allowed.includes(i) ? Math.exp(s / temperature) : 0));
    const total = weights.reduce((a, b) => a + b);
    return weights.map((w) => w / total);
  };
  const close = (own: number[], wanted: number[]): void => {
    own.forEach((share, i) => {
      assert.ok(Math.abs(share - wanted[i]) < 0.035, `${own} and ${wanted}`);
      if (wanted[i] === 0) assert.equal(share, 0);
    });
  };
  close(await shares({}), expected([0, 1, 2, 3, 4]));
  close(await shares({ temperature: 2 }), expected([0, 1, 2, 3, 4], 2));
  close(await shares({ topK: 2 }), expected([0, 1]));
  // Probabilities are 0.55, 0.20, 0.12, 0.07, 0.03 in the order 0, 1, 4, 2, 3.
  close(await shares({ topP: 0.7 }), expected([0, 1]));
  close(await shares({ topP: 0.01 }), expected([0]));
  close(await shares({ minP: 0.2 }), expected([0, 1, 4]));
  // A tiny temperature neither overflows nor lets filtered tokens win.
  for (const temperature of [1e-30, 1e-45]) close(await shares({ temperature, topK: 2, topP: 0.9 }), expected([0]));
  const below = chooseToken(logits.sub(9), checkTokenSampling({ temperature: 1e-31, topK: 2 }), key(5));
  assert.equal(Number(await below.max().item()), 0);
  assert.throws(() => checkTokenSampling({ topK: 3 }), /temperature/);
  assert.throws(() => checkTokenSampling({ temperature: -1 }), /temperature/);
});

test("a seed fixes the draws, and another seed gives others", async () => {
  const draw = (seed: number) =>
    collect(generateTokens(model, params, [[5, 6, 7]], { maxNewTokens: 12, temperature: 1, seed, eosTokens: [] }), 1);
  const [a, b, c] = [await draw(1), await draw(1), await draw(2)];
  assert.deepEqual(a, b);
  assert.notDeepEqual(a, c);
});

test("text streams in pieces that add up, ends at stop sequences and at the end token", async () => {
  const dir = join(folder, "text");
  writeTokenizer(dir);
  await savePretrained(dir, model, params);
  const loaded = await loadPretrained(dir);
  assert.equal(loaded.task, "causal-lm");
  const tokenizer = await loadTokenizer(dir, loaded.config.vocabulary);
  assert.equal(tokenizer.vocabulary, byteVocabulary);
  assert.equal(tokenizer.special.eos, 261);
  const options = { maxNewTokens: 24, temperature: 1, seed: 4, eosTokens: [261] };
  const [whole] = await generate(loaded, tokenizer, ["and the"], options);
  let streamed = "";
  const stream = streamText(loaded, tokenizer, "and the", options);
  for (let next = await stream.next(); ; next = await stream.next()) {
    if (next.done) {
      assert.equal(next.value.text, streamed);
      break;
    }
    streamed += next.value;
  }
  assert.equal(streamed, whole.text);
  const stop = whole.text.slice(5, 8);
  const [cut] = await generate(loaded, tokenizer, ["and the"], { ...options, stop: [stop] });
  assert.equal(cut.text, whole.text.slice(0, whole.text.indexOf(stop)));
  assert.equal(cut.finish, "stop");
  let cutStream = "";
  for await (const piece of streamText(loaded, tokenizer, "and the", { ...options, stop: [stop] })) cutStream += piece;
  assert.equal(cutStream, cut.text);
  const [ended] = await generate(loaded, tokenizer, ["and the"], { ...options, eosTokens: [whole.tokens[3]] });
  assert.equal(ended.finish, "eos");
  assert.deepEqual(ended.tokens, whole.tokens.slice(0, whole.tokens.indexOf(whole.tokens[3])));
  const stopped = new AbortController();
  let seen = 0;
  for await (const _ of generateTokens(loaded, loaded.params, [[1, 2]], {
    maxNewTokens: 30,
    eosTokens: [],
    signal: stopped.signal,
  }))
    if (++seen === 3) stopped.abort();
  assert.equal(seen, 3);
});

test("wrong arguments are refused by name", async () => {
  const run = (prompt: number[], options = {}) => collect(generateTokens(model, params, [prompt], options), 1);
  await assert.rejects(run([]), /prompt 0 has no token/);
  await assert.rejects(run([5, 9999]), /the id 9999/);
  await assert.rejects(run(new Array(64).fill(5)), /64 tokens leaves no position of 64/);
  await assert.rejects(run([5], { maxNewTokens: 0 }), /maxNewTokens/);
  await assert.rejects(run([5], { noRepeatNgram: -1 }), /noRepeatNgram is a whole number from 0 to 64, got -1/);
  await assert.rejects(run([5], { minNewTokens: 9, maxNewTokens: 3 }), /minNewTokens is 9, more than maxNewTokens, 3/);
  await assert.rejects(run([5], { suppressTokens: [5, 999] }), /suppressTokens is a list of ids from 0 to 261/);
  await assert.rejects(run([5], { badWords: [[]] }), /badWords is a list of at most 4096 lists of 1 to 64 ids/);
  await assert.rejects(run([5], { badWords: ["no"] }), /badWords is a list of .* got \["no"\]/);
  await assert.rejects(run([5], { no_repeat_ngram_size: 2 }), /did you mean "noRepeatNgram"/);
  await assert.rejects(run([5], { min_new_tokens: 2 }), /did you mean "minNewTokens"/);
  await assert.rejects(run([5], { bad_words_ids: [] }), /did you mean "badWords"/);
  await assert.rejects(run([5], { eosTokens: 3 }), /eosTokens is a list of ids, got 3/);
  await assert.rejects(run("text" as never), /prompts is a list with a list of token ids/);
  const classifier = defineModel(configs.llama, { task: "classification" });
  await assert.rejects(collect(generateTokens(classifier, {}, [[1]]), 1), /causal language model/);
  // Words of transformers are translated.
  await assert.rejects(run([5], { max_new_tokens: 3 }), /no option "max_new_tokens"; did you mean "maxNewTokens"/);
  await assert.rejects(run([5], { eos_token_id: 3 }), /did you mean "eosTokens"/);
  await assert.rejects(loadPretrained(folder, { torch_dtype: "auto" } as never), /did you mean "dtype"/);
  assert.throws(() => defineModel(configs.gpt2, { num_labels: 3 } as never), /did you mean "labels"/);
});

test("tokenizers and chat templates equal transformers", needsTransformers, async () => {
  const dir = join(folder, "tokens");
  writeTokenizer(dir);
  writeFileSync(join(dir, "config.json"), JSON.stringify(model.json));
  const texts = ["the and the", "Zürich 😀 x", " the  the\n"];
  const chat = [{ role: "user", content: "the end?" }];
  const [answer] = await askTransformers([{ dir, class: "", texts, chat }]);
  const tokenizer = await loadTokenizer(dir);
  const own = [...texts.map((text) => tokenizer.encode(text).ids), tokenizer.encode(await tokenizer.chat(chat)).ids];
  own.forEach((ids, i) => {
    assert.deepEqual(ids, Array.from(answer[`ids.${i}`].data, Number));
  });
  assert.equal(tokenizer.decode(own[1]), texts[1]);
  await assert.rejects(loadTokenizer(dir, 100), /ids up to 261, its model has 100/);
});

test("scores that are not numbers are an error, not a token", async () => {
  const model = defineModel(configs.gpt2, { task: "causal-lm" });
  const params = mapNamed(model.init(key(1)), (name, leaf) =>
    name === "transformer.ln_f.bias" ? leaf.mul(Number.NaN) : leaf,
  );
  for (const options of [
    {},
    { temperature: 1, topK: 3, seed: 4 },
    { temperature: 0.7, topP: 0.5 },
    { repetitionPenalty: 2 },
  ])
    await assert.rejects(
      generateTokens(model, params, [[5, 6]], { maxNewTokens: 2, ...options }).next(),
      /the scores of prompt 0 are not numbers \(NaN\)/,
    );
});
