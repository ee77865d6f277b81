// Ranks of different speed: measured, and batches divided by speed with the losses of equal parts.
import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import * as weft from "@weft/core";
import { stringify } from "yaml";
import { boundsBySpeed } from "../data/index.js";
import { scratch } from "../data/testkit.js";
import type { RunConfig } from "./config.js";
import { singleRank } from "./group.js";
import { launchRanks } from "./ranks.js";
import { rankSpeeds } from "./speeds.js";
import { tiny, tinyRaw } from "./testkit.js";
import type { RankTrained, RankTraining } from "./trained-ranks.testkit.js";
import { trainConfig } from "./trainer.js";

const folder = scratch();
weft.setDevice(weft.CpuDevice.available() ? "cpu" : "reference");
/** Several ranks on one host exchange data by a compiled library. */
const needsCompiler = { skip: weft.CpuDevice.available() ? false : "no C compiler" };

test("parts are as large as the ranks are fast, cover every row, and none is empty", () => {
  assert.deepEqual(boundsBySpeed(8, [3, 1]), [0, 6, 8]);
  assert.deepEqual(boundsBySpeed(100, [1, 1, 2]), [0, 25, 50, 100]);
  assert.deepEqual(boundsBySpeed(4, [1, 1000, 1]), [0, 1, 3, 4]);
  // Fewer rows than ranks: some get nothing.
  assert.equal(boundsBySpeed(1, [1, 5]).at(-1), 1);
  for (let rows = 3; rows < 60; rows++) {
    const bounds = boundsBySpeed(rows, [1, 2.37, 0.2]);
    const parts = bounds.slice(1).map((end, i) => end - bounds[i]);
    assert.ok(parts.every((part) => part >= 1) && bounds.at(-1) === rows, `${rows}: ${bounds}`);
  }
});

test("speeds are measured on every rank, kept by a resumed run, and equal ones divide equally", async () => {
  const config = (shares: unknown): RunConfig => ({ distributed: { shares } }) as never;
  // This rank is 1 of 3; rank 0 takes three times as long, rank 2 as long as this one.
  let [asked, own] = [0, 0];
  const group = (factors: number[]): typeof singleRank => ({
    ...singleRank,
    rank: 1,
    size: 3,
    most: (value) => {
      if (value > 0) own = value;
      // Rank 0 is asked first, when the time of this rank is not known to this function yet.
      const rank = asked++ % 3;
      return rank === 1 ? value : factors[rank] * (own || 1);
    },
  });
  assert.equal(await rankSpeeds(config("even"), group([3, 1, 1]), undefined), undefined);
  assert.deepEqual(await rankSpeeds(config([1, 2, 1]), group([1, 1, 1]), undefined), [1, 2, 1]);
  assert.equal(await rankSpeeds(config([2, 2, 2]), group([1, 1, 1]), undefined), undefined);
  assert.deepEqual(await rankSpeeds(config("measured"), group([1, 1, 1]), [1, 3, 1]), [1, 3, 1]);
  const measured = (await rankSpeeds(config("measured"), group([1e6, 1, 1]), undefined)) as number[];
  assert.equal(measured[0], 1, "the slowest");
  assert.ok(measured[1] > 100 && measured.length === 3, `${measured}`);
});

test("a text classifier whose batches are divided 1 : 2 : 4 has the losses of one device", needsCompiler, async () => {
  const parts = { training: { epochs: 1, global_batch: 20, accumulation: 2 } };
  const one = await trainConfig(tiny(folder, "one", parts));
  const file = join(folder, "tiny.yaml");
  writeFileSync(file, stringify(tinyRaw(parts)));
  const program = fileURLToPath(new URL("./trained-ranks.testkit.js", import.meta.url));
  const [cases, answers] = [join(folder, "cases.json"), join(folder, "answers.json")];
  const set = ["distributed.shares=[1, 2, 4]"];
  writeFileSync(cases, JSON.stringify([{ file, output: join(folder, "three"), set }] satisfies RankTraining[]));
  await launchRanks({ size: 3, coresPerRank: 1, command: [process.execPath, program, cases, answers] });
  const [{ losses, notes }] = JSON.parse(readFileSync(answers, "utf8")) as RankTrained[];
  assert.match(notes.join(), /batches are divided by speed: 1 : 2 : 4/);
  assert.equal(losses.length, one.losses.length);
  for (const [i, loss] of losses.entries())
    assert.ok(Math.abs(loss - one.losses[i]) < 2e-6 * loss, `step ${i}: ${loss}, ${one.losses[i]}`);
});
