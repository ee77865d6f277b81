// Configurations of three kinds of parallelism: rows are chosen by their settings alone, a simulated machine is predicted from them,
// and files that cannot be configurations are rejected.
import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { median } from "@weft/formats/stats";
import { ImportError, readConfigurations } from "../import/index.js";
import { TestFolder } from "../trace/fixtures.testkit.js";
import { chooseConfigurations, fitParallelLaw, type MeasuredConfiguration } from "./index.js";

/** A pipeline that is simulated stage by stage: a layer takes its arithmetic or its launch, links cost per element. */
function simulated(x: Omit<MeasuredConfiguration, "milliseconds">): number {
  const tokens = x.microBatch * x.sequence;
  const arithmetic = (tokens * x.hidden * x.hidden * 0.5e-9) / x.tensor;
  const links = x.tensor > 1 ? tokens * x.hidden * 6e-8 : 0;
  const stage = (x.layers / x.pipeline) * Math.max(arithmetic + links, 2.5);
  const microBatches = x.globalBatch / (x.microBatch * x.data);
  let end = 0;
  const free = new Array<number>(x.pipeline).fill(0);
  for (let m = 0; m < microBatches; m++) {
    let ready = 0;
    for (let s = 0; s < x.pipeline; s++) {
      ready = Math.max(ready, free[s]!) + stage;
      free[s] = ready;
    }
    end = ready;
  }
  const parameters = (12 * x.layers * x.hidden * x.hidden) / (x.tensor * x.pipeline);
  return end + (x.data > 1 ? parameters * 2e-8 : 0) + 3;
}

const all: MeasuredConfiguration[] = [1, 2, 4]
  .flatMap((tensor) =>
    [1, 2, 4].flatMap((pipeline) =>
      [1, 2, 4, 8].flatMap((microBatch) =>
        [1024, 2048].flatMap((hidden) =>
          [12, 24].map((layers) => {
            const data = 16 / (tensor * pipeline);
            const x = {
              devices: 16,
              globalBatch: 128,
              microBatch,
              hidden,
              heads: 16,
              layers,
              sequence: 1024,
              tensor,
              data,
              pipeline,
            };
            return { ...x, milliseconds: simulated(x) };
          }),
        ),
      ),
    ),
  )
  .filter((x) => Number.isInteger(x.data) && x.globalBatch >= x.microBatch * x.data);

test("a simulated machine is predicted from 30 of its configurations", () => {
  const chosen = new Set(chooseConfigurations(all, 30));
  assert.equal(chosen.size, 30);
  const law = fitParallelLaw(all.filter((_, i) => chosen.has(i)));
  const held = all.filter((_, i) => !chosen.has(i));
  const errors = held.map((x) => Math.abs(law(x).milliseconds / x.milliseconds - 1));
  assert.ok(median(errors) < 0.07, `median error ${median(errors)}`);
  for (const x of held) {
    const { milliseconds, interval } = law(x);
    assert.ok(interval[0] < milliseconds && milliseconds < interval[1]);
  }
  // The choice does not see times.
  assert.deepEqual(
    chooseConfigurations(
      all.map((x) => ({ ...x, milliseconds: 1 })),
      30,
    ),
    [...chosen],
  );
});

const header =
  "# GPUs,global batch,micro batch,hidden size,attention heads,# layers,sequence length,tensor parallelism,data parallelism,pipeline parallelism,iteration time (ms)";

test("files of configurations: a row without a time asks; rows that cannot be are errors with their line", () => {
  using folder = new TestFolder();
  const read = (text: string) => {
    folder.file("c.csv", text);
    return readConfigurations(join(folder.path, "c.csv"));
  };
  const rows = read(`\uFEFF${header}\n8,32,4,1024,16,24,1024,2,2,2,219.7\n8,32,4,1024,16,24,1024,8,1,1,\n`);
  assert.deepEqual(
    rows.map((r) => [r.tensor, r.milliseconds, r.line]),
    [
      [2, 219.7, 2],
      [8, null, 3],
    ],
  );
  for (const [row, says] of [
    ["8,32,4,1024,16,24,1024,2,2,1,219.7", /c\.csv:2: 2 x 2 x 1 .* is not 8 devices/],
    ["8,32,4,1e99,16,24,1024,2,2,2,219.7", /c\.csv:2: hidden must be a positive number/],
    ["8,32,4,1024,16,24,1024,2,2,2,NaN", /c\.csv:2: milliseconds must be/],
    ["8,32,0,1024,16,24,1024,2,2,2,1", /c\.csv:2: microBatch must be/],
    ["8,32", /c\.csv:2: /],
  ] as const)
    assert.throws(
      () => read(`${header}\n${row}\n`),
      (error: Error) => error instanceof ImportError && says.test(error.message),
    );
  assert.throws(() => read("a,b\n1,2\n"), /no column "# gpus"/);
});
