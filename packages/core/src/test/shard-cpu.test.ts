// Partitioned programs on real processes with the CPU device and shared memory: uneven shards, ranks without work, sharded
// random numbers. Also the calibration that cost estimates are based on.
import assert from "node:assert/strict";
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import type { Rates } from "../cost/index.js";
import { runRanks } from "../device/group/testkit.js";
import { collectiveKinds, makeStorage } from "../graph/index.js";
import { CpuDevice } from "../index.js";
import { evaluate, type Value } from "../ops/index.js";
import { knownRates, measureDevice, ratesOf, saveRates } from "../runtime/index.js";
import { gatherValue } from "../shard/index.js";
import { difference, toleranceOf } from "./compare.js";
import { divide, programs } from "./shard-cpu.testkit.js";
import { results } from "./traced.js";

const kit = new URL("./shard-cpu.testkit.js", import.meta.url).href;
const skip = CpuDevice.available() ? false : "no C compiler";

test("programs over 3 processes give the numbers of the whole", { skip }, async () => {
  const answers = (await runRanks(3, kit, "runSharded")) as {
    title: string;
    held: number[][];
    collectives: number;
  }[][];
  Object.keys(programs).forEach((title, p) => {
    const { program, parts } = divide(title, 3);
    const expected = results(evaluate(program.fn, program.args));
    program.fn.outputs.forEach((output, i) => {
      const locals = answers.map((answer, rank): Value => {
        const shape = parts.results[i].localShape(rank, output.shape);
        const data = makeStorage(output.dtype, answer[p].held[i].length) as Float32Array;
        data.set(answer[p].held[i]);
        return { shape, dtype: output.dtype, data };
      });
      const whole = results([gatherValue(locals, parts.results[i], output.shape)])[0];
      const problem = difference(whole, expected[i], { rtol: programs[title].loose * toleranceOf(output.dtype) });
      assert.equal(problem, null, `${title}, result ${i}: ${problem}`);
    });
    // Every rank takes part in every collective, also those without work.
    for (const answer of answers) assert.equal(answer[p].collectives, parts.moves.length, title);
  });
});

interface LinksAnswer {
  staged: Rates["links"];
  inPrograms: Rates["links"];
  slowest: number[];
  agreed: boolean[];
}

test("links of 4 processes are measured for pairs and for all, the same on every rank", { skip }, async () => {
  const answers = (await runRanks(4, kit, "links")) as LinksAnswer[];
  for (const answer of answers) assert.deepEqual(answer, answers[0]);
  for (const links of [answers[0].staged, answers[0].inPrograms])
    for (const kind of collectiveKinds) {
      assert.deepEqual(
        links[kind].map(({ members }) => members),
        [2, 4],
      );
      for (const { members, latency, bandwidth, curve } of links[kind]) {
        assert.ok(latency > 0 && latency < 1, `${kind} answers after ${latency} s`);
        assert.ok(bandwidth > 1e6 && bandwidth < 1e12, `${kind} moves ${bandwidth} B/s`);
        // 64 KiB, 1 MiB and 16 MiB in total, of which a rank receives its share.
        assert.equal(curve?.length, 3);
        if (kind === "allReduce")
          assert.equal(curve?.[0][0], Number(((2 * 65536 * (members - 1)) / members).toPrecision(4)));
      }
    }
  // Rank 2 is the slowest: all ranks plan with its rates.
  assert.deepEqual(answers[0].slowest, [1e-5, 2e-5, 4e-5]);
  assert.deepEqual(answers[0].agreed, [true, false]);
});

test("the rates of a device are plausible, kept on disk, and measured again where the file is broken", { skip }, () => {
  const folder = mkdtempSync(join(tmpdir(), "weft-rates-"));
  const before = process.env.WEFT_CACHE_DIR;
  try {
    const device = new CpuDevice({ threads: 1 });
    const quick = measureDevice(device, { quick: true });
    assert.equal(quick.assumed, false);
    for (const [, flops] of quick.matmul.float32!) assert.ok(flops > 1e7 && flops < 1e14);
    assert.ok(quick.call < 0.1 && quick.kernel < 0.01);
    process.env.WEFT_CACHE_DIR = folder;
    saveRates(device, quick);
    assert.deepEqual(ratesOf(device), quick);
    const [file] = readdirSync(join(folder, "rates"));
    writeFileSync(join(folder, "rates", file), '{"simple": -1');
    assert.equal(knownRates(device), null);
    assert.ok(ratesOf(device, { quick: true }).simple > 0);
    assert.notEqual(knownRates(device), null);
  } finally {
    if (before === undefined) delete process.env.WEFT_CACHE_DIR;
    else process.env.WEFT_CACHE_DIR = before;
    rmSync(folder, { recursive: true });
  }
});
