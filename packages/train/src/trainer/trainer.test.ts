// Training on one rank: it learns, is reproducible, resumes exactly, accumulates gradients, and reports errors.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import * as weft from "@weft/core";
import { save } from "@weft/core/io";
import { recordSchema, runFileSchema, unknownFields } from "@weft/formats/internal";
import { scratch } from "../data/testkit.js";
import { checkpointSteps, findCheckpoint } from "./checkpoint.js";
import { type RankGroup, singleRank } from "./group.js";
import { SampleCounter } from "./sample-counter.js";
import { type ConfigParts, tiny } from "./testkit.js";
import { train } from "./train.js";
import type { TrainOptions, TrainResult } from "./trainer.js";

const folder = scratch();
weft.setDevice(weft.CpuDevice.available() ? "cpu" : "reference");
const run = (name: string, parts: ConfigParts = {}, options: TrainOptions = {}): Promise<TrainResult> =>
  train(tiny(folder, name, parts), options);

function checked(schema: typeof recordSchema | typeof runFileSchema, text: string): Record<string, unknown> {
  const value = JSON.parse(text) as Record<string, unknown>;
  assert.ok(schema.safeParse(value).success, text);
  assert.deepEqual(unknownFields(schema, value), [], text);
  return value;
}

/** The records of a run. Records and run.json must match their schemas exactly. */
function lines(name: string): Record<string, unknown>[] {
  checked(runFileSchema, readFileSync(join(folder, name, "run.json"), "utf8"));
  return readFileSync(join(folder, name, "rank0.jsonl"), "utf8")
    .trimEnd()
    .split("\n")
    .map((line) => checked(recordSchema, line));
}

test("training reduces the loss; metrics.csv and the records are complete", async () => {
  const { epochs, losses, steps } = await run("learns", {
    training: { epochs: 6 },
    data: { loaders: 1, train_limit: 800 },
  });
  assert.equal(steps, 6 * 40);
  assert.equal(losses.length, steps);
  assert.ok(epochs[5].trainLoss < 0.5 * epochs[0].trainLoss, JSON.stringify(epochs));
  assert.ok((epochs[5].valAccuracy ?? 0) > 0.7, `accuracy ${epochs[5].valAccuracy}`);
  const csv = readFileSync(join(folder, "learns", "metrics.csv"), "utf8")
    .trimEnd()
    .split("\n");
  assert.equal(csv[0], "epoch,train_loss,train_time,val_loss,val_acc");
  assert.equal(csv.length, 7);
  assert.deepEqual(csv[6].split(",").map(Number), [
    6,
    epochs[5].trainLoss,
    epochs[5].seconds,
    epochs[5].valLoss,
    epochs[5].valAccuracy,
  ]);
  const records = lines("learns");
  const taken = records.filter((r) => r.type === "step");
  assert.equal(taken.length, steps);
  assert.deepEqual(
    taken.map((r) => r.step),
    losses.map((_, i) => i),
  );
  assert.deepEqual(
    taken.map((r) => r.loss),
    losses,
  );
  assert.equal(
    taken.reduce((n, r) => n + (r.samples as number), 0),
    6 * 800,
  );
  for (const r of taken)
    assert.ok(
      (r.dataWaitUs as number) >= 0 &&
        (r.computeUs as number) > 0 &&
        (r.computeUs as number) <= (r.durationUs as number),
    );
  assert.equal(records.at(-1)?.status, "ok");
  assert.equal(taken.filter((r) => r.compile === true).length, 0, "all was compiled before the first step");
  const compiled = records.find((r) => r.type === "facts" && "compileSeconds" in (r.facts as object));
  assert.ok(compiled !== undefined);
  const [first, last] = [taken[0].learningRate, taken[2].learningRate] as number[];
  assert.ok(Math.abs(first - 0.01 / 3) < 1e-12 && Math.abs(last - 0.01) < 1e-12, "warm-up over 3 steps");
  assert.deepEqual(checkpointSteps(join(folder, "learns")), [200, 240], "the last two are kept");
});

test("epochs are evaluated on held-out training rows, and the test split once at the end", async () => {
  const data = { validation: 0.2, train_limit: 200, test_limit: 60 };
  const result = await run("held", { data, training: { epochs: 3 } });
  const { test: recorded, workload } = JSON.parse(readFileSync(join(folder, "held", "run.json"), "utf8")) as {
    test: { accuracy: number };
    workload: { datasetSamples: number };
  };
  assert.equal(workload.datasetSamples, 160, "a fifth is held out");
  assert.equal(result.steps, 3 * 8);
  assert.deepEqual(recorded, result.test);
  // 40 held-out rows and 60 test rows: accuracies are multiples of these shares.
  for (const { valAccuracy } of result.epochs) assert.ok(Number.isInteger(Math.round(valAccuracy! * 40 * 1e6) / 1e6));
  assert.ok(Number.isInteger(Math.round(result.test!.accuracy! * 60 * 1e6) / 1e6));
  // All training rows, and the test split after each epoch: another curve and no final evaluation.
  const without = await run("none-held", { data: { ...data, validation: 0 }, training: { epochs: 3 } });
  assert.equal(without.steps, 3 * 10);
  assert.equal(without.test, null);
  assert.notDeepEqual(without.losses.slice(0, 8), result.losses.slice(0, 8));
  // A run cannot be resumed with another held-out part.
  await assert.rejects(
    run("held", { data: { ...data, validation: 0.3 }, training: { epochs: 4 } }, { resume: true }),
    /training data or the tokenizer differ/,
  );
});

test("the same seed gives the same curve for any number of loaders, another seed another curve", async () => {
  const [a, b, c] = [
    await run("same-a"),
    await run("same-b", { data: { loaders: 2 } }),
    await run("same-c", { seed: 8 }),
  ];
  assert.deepEqual(a.losses, b.losses);
  assert.notDeepEqual(a.losses, c.losses);
  assert.deepEqual(
    a.epochs.map((e) => e.valLoss),
    b.epochs.map((e) => e.valLoss),
  );
});

test("results read per window equal those read per step, and a non-finite step is still named", async () => {
  const parts: ConfigParts = { checkpoint: { every_steps: 5 } };
  const [once, windowed] = [await run("read-1", parts), await run("read-7", parts, { readEvery: 7 })];
  assert.deepEqual(windowed.losses, once.losses);
  assert.deepEqual(
    windowed.epochs.map((e) => e.trainLoss),
    once.epochs.map((e) => e.trainLoss),
  );
  const steep: ConfigParts = { optimizer: { type: "sgd", learning_rate: 1e20, warmup_steps: 0 } };
  const stepOf = async (name: string, options: TrainOptions): Promise<string | undefined> => {
    const error = await run(name, steep, options).then(
      () => null,
      (e: Error) => e,
    );
    return /^step (\d+): .*first bad tensor is [^.]*/.exec(error?.message ?? "")?.[0];
  };
  const named = await stepOf("steep-1", {});
  assert.ok(named !== undefined);
  assert.equal(await stepOf("steep-7", { readEvery: 7 }), named);
});

test("a stopped run writes a checkpoint and resumes with the same curve", async () => {
  const parts: ConfigParts = { data: { length_buckets: [16, 32] }, optimizer: { schedule: "cosine" } };
  const whole = await run("whole", parts);
  const abort = new AbortController();
  const stopped = await run("cut", parts, { signal: abort.signal, onStep: (e) => e.step === 7 && abort.abort() });
  assert.deepEqual([stopped.status, stopped.steps], ["stopped", 8]);
  await assert.rejects(run("cut", parts), /holds a run already \(step 8\); continue it with --resume/);
  await assert.rejects(
    run("cut", { ...parts, seed: 1 }, { resume: true }),
    /cannot be resumed .* seed was 7 and is 1 now/,
  );
  await assert.rejects(
    run("cut", { ...parts, training: { global_batch: 10 } }, { resume: true }),
    /the global batch was 20 and is 10 now/,
  );
  const rest = await run("cut", parts, { resume: true });
  assert.deepEqual([...stopped.losses, ...rest.losses], whole.losses);
  assert.deepEqual(
    rest.epochs.map(({ seconds: _, ...row }) => row),
    whole.epochs.map(({ seconds: _, ...row }) => row),
  );
  const steps = lines("cut").filter((r) => r.type === "step");
  assert.deepEqual(
    steps.map((r) => r.step),
    whole.losses.map((_, i) => i),
  );
});

test("accumulated micro-steps equal the whole batch, also for an uneven last batch", async () => {
  const double: ConfigParts = { precision: { compute: "float64" }, model: { dropout: 0.1 } };
  const whole = await run("acc-1", double);
  const micro = await run("acc-4", { ...double, training: { accumulation: 3 } });
  whole.losses.forEach((loss, i) => {
    assert.ok(Math.abs(micro.losses[i] - loss) <= 1e-10 * loss, `step ${i}: ${micro.losses[i]}, ${loss}`);
  });
  // 210 rows in steps of 20: the last step has 10.
  const steps = lines("acc-4").filter((r) => r.type === "step");
  assert.equal(steps[10].samples, 10);
});

test("pre-norm and learned positions train too", async () => {
  const { losses } = await run("pre", {
    model: { norm: "pre", positions: "learned", activation: "gelu" },
    training: { epochs: 3 },
  });
  assert.ok(losses.at(-1)! < losses[0]);
  const names = Object.keys(
    (await weft.io.load(join(findCheckpoint(join(folder, "pre"))!.folder, "model.safetensors"))) as object,
  );
  assert.ok(names.includes("positions.weight") && names.includes("encoder.norm.weight"));
});

test("ranks that train on the same samples are detected at the end of the epoch", () => {
  // Two ranks that both act as rank 0 and train on the same samples.
  const both: RankGroup = { ...singleRank, size: 2, sum: (t) => t.add(t) };
  const counter = new SampleCounter(4, both, () => {});
  counter.count([0, 2]);
  assert.throws(
    () => counter.close(0),
    /epoch 1: sample \d+ was used [02] times over 2 ranks, not once.*the run is not valid/,
  );
});

test("with a step limit the epoch reports its steps; resuming without a run is noted", async () => {
  const notes: string[] = [];
  const epochs: number[][] = [];
  await train(tiny(folder, "limited", { training: { epochs: 2, global_batch: 20, max_steps: 14 } }), {
    resume: true,
    onNote: (note) => notes.push(note),
    onEpoch: (row, taken, of) => epochs.push([row.epoch, taken, of]),
  });
  assert.deepEqual(epochs, [
    [1, 11, 11],
    [2, 3, 11],
  ]);
  assert.match(notes.join(), /there is no run in .*limited yet; it starts from the beginning/);
  const rest = await train(tiny(folder, "limited", { training: { epochs: 2, global_batch: 20, max_steps: 22 } }), {
    resume: true,
  });
  assert.deepEqual(
    rest.epochs.map(({ epoch }) => epoch),
    [1, 2],
  );
});

test("a batch larger than the data, an empty data set and a missing path are errors", async () => {
  await assert.rejects(
    run("bad-1", { training: { global_batch: 500 } }),
    /training\.global_batch 500 is larger than the data set of 210 rows/,
  );
  const perRank = tiny(folder, "bad-1b", { training: { epochs: 1, global_batch: undefined, batch_per_rank: 300 } });
  await assert.rejects(
    train(perRank),
    /batch of 300 \(training\.batch_per_rank 300 x 1 rank x accumulation 1\) is larger than the data set of 210 rows/,
  );
  const empty = join(folder, "empty");
  mkdirSync(empty);
  writeFileSync(join(empty, "train.jsonl"), "\n");
  await assert.rejects(run("bad-2", { data: { dataset: "imdb", path: empty } }), /train\.jsonl: the data set is empty/);
  assert.equal(existsSync(join(folder, "bad-1")), false, "nothing is left behind");
});

test("a non-finite loss names the step and the first non-finite tensor, and keeps the last checkpoint", async () => {
  const parts: ConfigParts = {
    checkpoint: { every_steps: 4 },
    optimizer: { type: "sgd", learning_rate: 1e20, warmup_steps: 0 },
  };
  await assert.rejects(
    run("nan", parts),
    /step \d+: the loss is .*the first bad tensor is .*There is no checkpoint yet.*smaller learning_rate/s,
  );
  // One parameter of a good checkpoint is corrupted: the error names the step and the tensor.
  await run("nan-2", { training: { max_steps: 11 }, checkpoint: { every_steps: 4 } });
  const found = findCheckpoint(join(folder, "nan-2"))!;
  const file = join(found.folder, "model.safetensors");
  const dict = (await weft.io.load(file)) as Record<string, weft.Tensor>;
  const name = "encoder.layers.0.linear1.bias";
  const hash = (): string => createHash("sha256").update(readFileSync(file)).digest("hex");
  const before = hash();
  await save(file, { ...dict, [name]: dict[name].mul(Number.NaN) });
  const sums = join(found.folder, "SHA256SUMS");
  writeFileSync(sums, readFileSync(sums, "utf8").replace(before, hash()));
  await assert.rejects(
    run("nan-2", { checkpoint: { every_steps: 4 } }, { resume: true }),
    new RegExp(`step 12: the loss is NaN.*first bad tensor is parameter ${name}.*step-00000011`, "s"),
  );
  assert.equal(lines("nan-2").at(-1)?.status, "failed");
});

test("a damaged checkpoint is skipped in favor of the previous one", async () => {
  await run("damaged", { checkpoint: { keep: 3 } });
  const place = join(folder, "damaged", "checkpoints");
  const newest = readdirSync(place).sort().at(-1)!;
  writeFileSync(join(place, newest, "state.json"), "{ half");
  const notes: string[] = [];
  const { steps } = await run("damaged", { checkpoint: { keep: 3 } }, { resume: true, onNote: (n) => notes.push(n) });
  assert.equal(steps, 22);
  assert.match(notes.join("\n"), /skipped a damaged checkpoint/);
  rmSync(place, { recursive: true });
});

test("a clock that is set back during a run gives no negative times", async (t) => {
  const now = Date.now.bind(Date);
  let back = 0;
  t.mock.method(Date, "now", () => now() - (back += 60_000));
  await run("clock", { training: { epochs: 1, max_steps: 4 } });
  const end = lines("clock").at(-1)!;
  assert.ok(end.type === "end" && Number(end.seconds) >= 0, JSON.stringify(end));
});

test("a full disk while writing a checkpoint leaves the previous one intact", () => {
  const script = `
    import { train } from ${JSON.stringify(fileURLToPath(new URL("./train.js", import.meta.url)))};
    import { tiny } from ${JSON.stringify(fileURLToPath(new URL("./testkit.js", import.meta.url)))};
    const config = tiny(${JSON.stringify(folder)}, "full", { checkpoint: { every_steps: 5 }, training: { max_steps: Number(process.argv[1]), evaluate: false, epochs: 2, global_batch: 20 }, data: { test_limit: undefined } });
    train(config, { resume: true }).then((r) => console.log("steps", r.steps), (e) => { console.log(e.message); process.exitCode = 1; });`;
  const go = (steps: number, limit: string): { status: number | null; stdout: string; stderr: string } =>
    spawnSync("bash", ["-c", `${limit} exec "$0" --input-type=module -e "$1" ${steps}`, process.execPath, script], {
      encoding: "utf8",
    });
  assert.match(go(5, "").stdout, /steps 5/);
  // Limits files to 8 KiB, so that writing the 24 KiB model fails as on a full disk.
  const full = go(10, "ulimit -f 8;");
  assert.equal(full.status, 1, full.stdout + full.stderr);
  assert.match(full.stdout, /the checkpoint of step 10 could not be written: .*the one of step 5 is untouched/);
  assert.deepEqual(readdirSync(join(folder, "full", "checkpoints")), ["step-00000005"]);
  assert.match(go(10, "").stdout, /steps 10/);
});
