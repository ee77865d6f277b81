// A training step on a GPU is one graph launch without copies, in every precision. Tested with a driver that records
// its calls.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import * as weft from "@weft/core";
import { FakeCuda } from "@weft/testing/fake-cuda";
import { headColumns } from "../data/index.js";
import { halfOf, makeModel } from "./model.js";
import { freshState, StepExecutables } from "./step.js";
import { rankBatch, textStepOptions, tinyRaw } from "./testkit.js";

const cache = mkdtempSync(join(tmpdir(), "weft-fake-cuda-"));
process.env.WEFT_CACHE_DIR = cache;
after(() => rmSync(cache, { recursive: true, force: true }));

const [rows, length] = [4, 32];

for (const compute of ["tf32", "bfloat16"] as const)
  for (const clip of [undefined, 1])
    test(`${compute}${clip === undefined ? "" : ", clipped"}: the state stays in place and a step is one launch`, () =>
      new FakeCuda().within((fake) => {
        const device = new weft.CudaDevice(0);
        weft.useDevice(device);
        const raw = tinyRaw({ precision: { compute }, optimizer: { type: "adam", warmup_steps: 0 } });
        const model = makeModel(raw, 4, "float32", halfOf(raw));
        const options = textStepOptions(raw, { model, gradientClip: clip, window: 8 });
        const programs = new StepExecutables(options);
        const fresh = freshState(options, options.task.init(weft.key(1)));
        let state = weft.treeMap((t) => t.realize(), fresh);
        const shape = [rows, headColumns + length];
        const next = (): weft.Tensor =>
          weft.tensor(new Int32Array(shape[0] * shape[1]), { shape, dtype: "int32" }).realize();
        const same = next();
        for (let i = 0; i < 3; i++) state = programs.whole(state, rankBatch(same));
        fake.sequence();
        state = programs.whole(state, rankBatch(same));
        assert.deepEqual(fake.sequence(), ["cuGraphLaunch"]);
        // A batch that is freed after its step leaves its buffer to the next one, as in the trainer.
        const alike = (): string[] => {
          const packed = next();
          fake.sequence();
          state = programs.whole(state, rankBatch(packed));
          packed.dispose();
          return fake.sequence();
        };
        for (let i = 0; i < 3; i++) alike();
        assert.deepEqual(alike(), ["cuGraphLaunch"]);
        // Retained batches have new addresses: each is copied to the graph's input, and nothing else is.
        const kept: weft.Tensor[] = [];
        const step = (): string[] => {
          kept.push(next());
          fake.sequence();
          state = programs.whole(state, rankBatch(kept[kept.length - 1]));
          return fake.sequence();
        };
        for (let i = 0; i < 12; i++) step();
        assert.deepEqual(step(), ["cuMemcpyDtoDAsync_v2", "cuGraphLaunch"]);
        device.close();
      }));
