// weft tune: the search on simulated machines whose best setting is known, and the command on a short real run.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { availableParallelism, tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { fileURLToPath } from "node:url";
import { type Ledger, ledgerScore, readLedger } from "@weft/lab/internal/ledger";
import { loadConfig } from "@weft/train";
import { type Settings, searchSettings, type Trial, type TrialMeasurement } from "../commands/tune-search.js";

const folder = mkdtempSync(join(tmpdir(), "weft-tune-test-"));
after(() => rmSync(folder, { recursive: true, force: true }));

const start: Settings = {
  devices: 1,
  batchPerRank: 32,
  accumulation: 1,
  precision: "float32",
  bucketMb: 4,
  loaders: 1,
};

/** A simulated machine: microseconds per sample, per step, per all-reduce, and for data. */
function machine(
  perSample: number,
  perStep: number,
  communication: number,
  data: number,
): (s: Settings) => TrialMeasurement {
  return (s) => {
    const comm = s.devices > 1 ? (communication * 2 * (s.devices - 1)) / s.devices / s.accumulation : 0;
    const dataUs = s.loaders === 0 ? data : Math.max(0, data / s.loaders - perSample * s.batchPerRank);
    const stepUs = perSample * s.batchPerRank + perStep + comm + dataUs;
    return {
      samplesPerSecond: (s.devices * s.batchPerRank * 1e6) / stepUs,
      parts: { stepUs, dataUs, commUs: comm, exposedUs: comm },
      parameterElements: [1e6],
      run: JSON.stringify(s),
    };
  };
}

const find = async (
  measure: (s: Settings) => TrialMeasurement,
  over: Partial<Settings> = {},
  keepGlobalBatch = true,
) => {
  const order: string[] = [];
  const result = await searchSettings(
    { ...start, ...over },
    {
      maxDevices: 4,
      probes: 12,
      leastGain: 0.02,
      keepGlobalBatch,
      precisions: [],
      measure: async (s) => {
        order.push(`measure ${JSON.stringify(s)}`);
        return measure(s);
      },
      onPromise: (trial) => order.push(`promise ${JSON.stringify(trial.settings)}`),
    },
  );
  return { ...result, order };
};

test("with fast communication all devices are used, with slow communication one", async () => {
  assert.equal((await find(machine(1000, 500, 300, 0))).best.devices, 4);
  const expensive = await find(machine(100, 100, 200_000, 0));
  assert.equal(expensive.best.devices, 1);
  assert.ok(
    expensive.trials.some((t) => t.settings.devices > 1 && !t.kept),
    "it was tried, and not kept",
  );
  assert.equal((await find(machine(100, 100, 200_000, 0), { devices: 4 })).best.devices, 1, "and found from above");
});

test("slow data adds loaders; costly steps enlarge the batch unless --keep-batch is given", async () => {
  assert.ok((await find(machine(100, 0, 1e7, 12_000))).best.loaders >= 3);
  assert.ok((await find(machine(10, 5000, 1e7, 0), {}, false)).best.batchPerRank >= 128);
  assert.equal((await find(machine(10, 5000, 1e7, 0))).best.batchPerRank, 32);
});

test("a prediction is recorded before its run, and a failed run is reported and not kept", async () => {
  const { order, trials } = await find(machine(1000, 500, 300, 0));
  for (const [i, entry] of order.entries())
    if (entry.startsWith("promise")) assert.equal(order[i + 1], entry.replace("promise", "measure"));
  for (const trial of trials.slice(1)) {
    assert.ok(trial.expected !== null && trial.got !== null);
    const [low, high] = trial.expected.interval;
    assert.ok(low <= trial.expected.samplesPerSecond && trial.expected.samplesPerSecond <= high * 1.0001);
  }
  const good = machine(1000, 500, 300, 0);
  const broken = await find((s) => {
    if (s.devices > 1) throw new Error("no second device");
    return good(s);
  });
  assert.equal(broken.best.devices, 1);
  assert.ok(broken.trials.some((t: Trial) => t.failed === "no second device" && !t.kept));
});

test("the command measures, prints predictions and results, and writes a valid configuration and the ledger", {
  skip: availableParallelism() < 2 ? "needs two cores" : false,
}, () => {
  // Paths in a configuration are relative to it, also for probes and results in other folders.
  const texts = join(folder, "conf", "texts");
  mkdirSync(texts, { recursive: true });
  const words = (i: number): string => Array.from({ length: 24 }, (_, k) => `w${(i * 7 + k * 13) % 90}`).join(" ");
  const lines = Array.from({ length: 400 }, (_, i) => JSON.stringify({ label: i % 2, text: words(i) }));
  writeFileSync(join(texts, "train.jsonl"), `${lines.join("\n")}\n`);
  const config = join(folder, "conf", "tiny.yaml");
  writeFileSync(
    config,
    `name: tiny
model: { vocab_size: 300, d_model: 32, n_heads: 2, num_layers: 1, dim_feedforward: 64, max_seq_len: 32 }
data: { dataset: imdb, path: texts, test_limit: 50 }
training: { epochs: 2, batch_per_rank: 8 }
optimizer: { learning_rate: 0.01 }
`,
  );
  const weft = fileURLToPath(new URL("../../bin/weft.js", import.meta.url));
  const args = [
    "tune",
    config,
    "--devices",
    "2",
    "--steps",
    "12",
    "--probes",
    "3",
    "--ledger",
    join(folder, "ledger.jsonl"),
    "--output",
    join(folder, "best.yaml"),
    "--json",
  ];
  const done = spawnSync(process.execPath, [weft, ...args], {
    encoding: "utf8",
    env: { ...process.env, WEFT_DATASETS: join(folder, "data") },
    timeout: 180_000,
  });
  assert.equal(done.status, 0, done.stderr);
  const { trials, best, now } = JSON.parse(done.stdout) as { trials: Trial[]; best: Settings; now: TrialMeasurement };
  assert.ok(trials.length >= 2 && trials.length <= 3);
  const fastest = Math.max(...trials.filter((t) => t.kept).map((t) => t.got?.samplesPerSecond ?? 0));
  assert.equal(now.samplesPerSecond, fastest);
  const written = loadConfig(join(folder, "best.yaml"));
  assert.deepEqual(
    [written.ranks, written.batchPerRank, written.name],
    [best.devices, best.batchPerRank, "tiny_tuned"],
  );
  assert.match(readFileSync(join(folder, "best.yaml"), "utf8"), /samples\/s measured here/);
  assert.equal(written.data.path, texts);
  const ledger: Ledger = readLedger(join(folder, "ledger.jsonl"));
  const measured = trials.filter((t) => t.expected !== null && t.got !== null).length;
  assert.equal(ledger.predictions.length, trials.length - 1);
  assert.equal(ledgerScore(ledger).scored, measured);
  assert.equal(ledger.predictions[0].metric, "samplesPerSecond");
});
