// Prompt lookup decoding: the tokens are those of one token per pass, and repetitions take fewer passes.
import assert from "node:assert/strict";
import { mock, test } from "node:test";
import { key, memory, setDevice } from "@weft/core";
import { mapNamed } from "@weft/core/nn";
import { useFastCompiler } from "@weft/testing/fast-compiler";
import { defineModel, generateTokens } from "../index.js";
import type { TokenOptions } from "./decode.js";
import { PromptLookup } from "./lookup.js";

setDevice("reference");
const common = { initializer_range: 0.4 };
const configs = [
  { ...common, model_type: "gpt2", n_embd: 16, n_layer: 2, n_head: 2, n_positions: 48 },
  {
    ...{ ...common, model_type: "qwen2", hidden_size: 16, num_hidden_layers: 2, num_attention_heads: 2 },
    ...{ num_key_value_heads: 1, intermediate_size: 24, max_position_embeddings: 64 },
    ...{ use_sliding_window: true, sliding_window: 5, max_window_layers: 1 },
  },
];
const prompts = [[1], [1, 2, 3, 4, 1, 2, 3], [5, 5, 5, 5, 5], Array.from({ length: 17 }, (_, i) => (i * 7) % 6)];

async function compare(used: typeof configs, seeds: number): Promise<void> {
  const accept = mock.method(PromptLookup.prototype, "accept");
  for (const [c, config] of used.entries())
    for (let seed = 0; seed < seeds; seed++) {
      const model = defineModel({ ...config, vocab_size: 6 + seed * 5 }, { task: "causal-lm" });
      const params = model.init(key(seed));
      const run = async (prompt: number[], options: TokenOptions): Promise<(number | null)[]> => {
        const tokens: (number | null)[] = [];
        const how = { maxNewTokens: 40, eosTokens: seed === 1 ? [3] : [], ...options };
        for await (const [token] of generateTokens(model, params, [prompt], how)) tokens.push(token);
        return tokens;
      };
      for (const prompt of prompts) {
        const plain = await run(prompt, {});
        for (const promptLookup of [1, 6])
          assert.deepEqual(await run(prompt, { promptLookup }), plain, `${c} ${seed} ${promptLookup}`);
      }
    }
  const accepted = accept.mock.calls.map(({ result }) => result?.length ?? 0);
  accept.mock.restore();
  assert.ok(accepted.includes(1) && accepted.includes(7), "proposals are wrong, and wholly right");
}

test("tokens are those of one token per pass: ends, sliding windows and the last position included", async () => {
  await compare(configs, 2);
});

test("the same on the CPU device", async () => {
  const fast = useFastCompiler();
  setDevice("cpu");
  try {
    await compare(configs.slice(1), 1);
  } finally {
    setDevice("reference");
    fast.remove();
  }
});

test("what followed the last tokens before is proposed; after wrong proposals there are fewer", () => {
  const lookup = new PromptLookup([7, 1, 2, 3, 8, 9, 4, 1, 2, 3], 4);
  assert.deepEqual(lookup.propose(), [8, 9, 4, 1]);
  // The first two are right, and the model's own choice follows.
  assert.deepEqual(lookup.accept([8, 9, 4, 1], [8, 9, 5, 0, 0]), [8, 9, 5]);
  for (const token of [8, 9, 5]) lookup.add(token);
  assert.equal(lookup.propose(), null);
  // A period of two goes on.
  assert.deepEqual(new PromptLookup([1, 2, 1, 2, 1], 5).propose(), [2, 1, 2, 1, 2]);
  assert.equal(new PromptLookup([1, 1, 1], 5).propose(), null);
  const wrong = new PromptLookup([5, 5, 5, 5], 2);
  let proposals = 0;
  for (let i = 0; i < 200; i++) {
    const proposed = wrong.propose();
    if (proposed === null) wrong.add(5);
    else {
      proposals++;
      const other = 100 + i;
      assert.deepEqual(wrong.accept(proposed, [other, 5, 5]), [other]);
      for (const token of [other, 5, 5, 5]) wrong.add(token);
    }
  }
  assert.ok(proposals < 12, `${proposals} proposals`);
});

test("options that it cannot be combined with are named, scores that are not numbers are an error, no memory stays", async () => {
  const model = defineModel({ ...configs[0], vocab_size: 6 }, { task: "causal-lm" });
  const params = model.init(key(1));
  const run = async (rows: number[][], options: TokenOptions, given = params): Promise<void> => {
    for await (const _ of generateTokens(model, given, rows, { maxNewTokens: 9, promptLookup: 4, ...options }));
  };
  await assert.rejects(run([[1], [2]], {}), /promptLookup is for one prompt, got 2/);
  await assert.rejects(run([[1]], { promptLookup: 1.5 }), /promptLookup is a whole number from 0 to 64, got 1.5/);
  await assert.rejects(
    run([[1]], { temperature: 1, repetitionPenalty: 2 }),
    /combined with temperature, repetitionPenalty/,
  );
  await assert.rejects(run([[1]], { noRepeatNgram: 2, badWords: [[1]] }), /combined with noRepeatNgram, badWords/);
  const nan = mapNamed(params, (name, leaf) => (name === "transformer.ln_f.bias" ? leaf.mul(Number.NaN) : leaf));
  await assert.rejects(run([[5, 5, 5, 5, 5]], {}, nan), /not numbers \(NaN\)/);
  await run([[5, 5, 5, 5]], {});
  const before = memory().bytes;
  await run([[5, 5, 5, 5]], {});
  assert.ok(memory().bytes <= before, `${memory().bytes - before} bytes stay`);
});
