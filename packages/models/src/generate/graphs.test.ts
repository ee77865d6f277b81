// Generation on a GPU is one launch of a recorded graph per token: on a driver that writes its calls down.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { CudaDevice, jit, key, type Tensor, useDevice } from "@weft/core";
import { FakeCuda } from "@weft/testing/fake-cuda";
import { defineModel, generateTokens } from "../index.js";

const cache = mkdtempSync(join(tmpdir(), "weft-generate-graphs-"));
process.env["WEFT_CACHE_DIR"] = cache;
after(() => rmSync(cache, { recursive: true, force: true }));

test("one and several prompts replay graphs, also in later generations", () =>
  new FakeCuda().within(async () => {
    const device = new CudaDevice(0);
    useDevice(device);
    const config = {
      model_type: "llama",
      vocab_size: 60,
      hidden_size: 32,
      intermediate_size: 32,
      num_hidden_layers: 2,
      num_attention_heads: 4,
      num_key_value_heads: 2,
      max_position_embeddings: 256,
    };
    const model = defineModel(config, { task: "causal-lm" });
    const params = jit((k: Tensor) => model.init(k, { dtype: "bfloat16" }))(key(0));
    for (const count of [1, 2])
      for (let turn = 0; turn < 2; turn++) {
        const prompts = Array.from({ length: count }, () => [5, 6, 7]);
        const before = device.graphLaunches;
        for await (const _ of generateTokens(model, params, prompts, { maxNewTokens: 65, eosTokens: [] }));
        const launched = device.graphLaunches - before;
        assert.ok(launched >= 50, `${count} prompts, generation ${turn}: ${launched} of 64 tokens were graphs`);
      }
  }));
