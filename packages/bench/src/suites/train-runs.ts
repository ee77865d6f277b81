// Whole trainings with `weft train`: by a shipped configuration ("full"), the same training on one worker and on two
// ("workers", the accuracies must agree within half a point), and settings of the small AG News model judged by held-out
// rows ("settings", for a GPU), and compressed gradients ("compression").
import { spawnSync } from "node:child_process";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Context, Suite } from "./context.js";
import { repository } from "./record.js";
import { recordedSteps, runEnvironment, temporaryFolder, textConfig, weftCommand } from "./weft-runs.js";

function weftTrain(context: Context, folder: string, args: (string | number)[]): void {
  const data = context.text("data");
  const line = [weftCommand, "train", ...args, ...(data === undefined ? [] : ["--data", data])].map(String);
  const env = context.quick ? runEnvironment(folder) : process.env;
  const done = spawnSync(process.execPath, line, { stdio: ["ignore", 2, 2], env });
  if (done.status !== 0) throw new Error(`weft ${line.slice(1, 5).join(" ")} ended with ${done.status}`);
}

/** Path of the shipped configuration, or of a tiny one. */
function configPath(context: Context, folder: string): string {
  if (!context.quick) return join(repository, "configs", `${context.text("config")}.yaml`);
  const path = join(folder, "tiny.yaml");
  const training = { epochs: 2, batch_per_rank: 4 };
  writeFileSync(path, JSON.stringify(textConfig(folder, "tiny", 64, { training }), null, 2));
  return path;
}

const testResult = (run: string): { accuracy: number; loss: number } | null =>
  (JSON.parse(readFileSync(join(run, "run.json"), "utf8")) as { test?: { accuracy: number; loss: number } }).test ??
  null;

/** A full training, outside continuous integration; --from takes a run that is done. */
function fullTraining(context: Context, folder: string): void {
  const name = context.quick ? "tiny" : context.text("config")!;
  const run = context.text("from") ?? (context.quick ? join(folder, "full") : join("runs", name));
  if (context.text("from") === undefined) {
    const resume = context.flag("resume") ? ["--resume"] : [];
    weftTrain(context, folder, [configPath(context, folder), "--device", context.device, "--out", run, ...resume]);
  }
  const lines = readFileSync(join(run, "metrics.csv"), "utf8").trimEnd().split("\n").slice(1);
  const epochs = lines.map((line) => {
    const [epoch, trainLoss, seconds, valLoss, valAccuracy] = line.split(",").map(Number);
    return { epoch, trainLoss, seconds, valLoss, valAccuracy };
  });
  const test = testResult(run);
  const best = epochs.reduce((a, b) => (b.valAccuracy > a.valAccuracy ? b : a));
  const hidden = /^(\s*(?:path|output|tokenizer)): .*\/.*$/gm;
  const { record, save } = context.open(
    `training-${name}-${context.device}`,
    {
      name,
      config: readFileSync(join(run, "config.yaml"), "utf8").replace(hidden, "$1: ..."),
      bestValidation: best.valAccuracy,
      bestEpoch: best.epoch,
      finalValidation: epochs.at(-1)!.valAccuracy,
      testAccuracy: test?.accuracy ?? null,
      testLoss: test?.loss ?? null,
      epochs,
    },
    { always: true },
  );
  save();
  console.log(`${name}: validation ${record.finalValidation}, test ${record.testAccuracy}`);
}

/** The same training and global batch on one worker and on two. */
function workersTraining(context: Context, folder: string): void {
  const shipped = readFileSync(configPath(context, folder), "utf8");
  const globalBatch = context.quick ? 8 : context.number("global-batch");
  const text = shipped
    .replace(/^ {2}batch_per_rank: .*$/m, `  global_batch: ${globalBatch}`)
    .replace(/"batch_per_rank": \d+/, `"global_batch": ${globalBatch}`);
  if (text === shipped) throw new Error(`configs/${context.text("config")}.yaml has no batch_per_rank`);
  const config = join(folder, "workers.yaml");
  writeFileSync(config, text);
  const epochs = context.quick ? 1 : context.number("epochs");
  const runs = [1, 2].map((workers) => {
    const output = join(folder, `workers-${workers}`);
    const how = ["--device", "cpu", "--devices", workers, "--epochs", epochs, "--out", output];
    weftTrain(context, folder, [config, ...how]);
    const test = testResult(output)!;
    const losses = recordedSteps(output)[0].map(({ loss }) => loss);
    return { workers, testAccuracy: test.accuracy, testLoss: test.loss, losses };
  });
  const [one, two] = runs;
  const apart = one.losses.map((loss, i) => Math.abs(two.losses[i] / loss - 1));
  const { record, save } = context.open(
    "train-workers",
    {
      name: context.text("config"),
      epochs,
      globalBatch,
      steps: one.losses.length,
      runs: runs.map(({ losses, ...row }) => ({ ...row, lastLoss: losses.at(-1) })),
      difference: Math.abs(one.testAccuracy - two.testAccuracy),
      /** Largest relative difference of the losses in the first 20 steps, and in all. */
      lossesApart: { first20: Math.max(...apart.slice(0, 20)), all: Math.max(...apart) },
    },
    { always: true },
  );
  save();
  if (record.difference > 0.005 && !context.quick) throw new Error(`accuracies differ by ${record.difference}`);
}

/** What a run noted about the bytes that a rank receives per step. */
const notedBytes = (run: string): string | null =>
  /a rank receives ([^"]+) per step/.exec(readFileSync(join(run, "rank0.jsonl"), "utf8"))?.[1] ?? null;

/** The same training on two workers with gradients sent as they are, in a half type, and by their largest elements. */
function compressedTraining(context: Context, folder: string): void {
  const config = configPath(context, folder);
  const limit = context.quick ? [] : ["--set", `data.train_limit=${context.number("train-limit")}`];
  const epochs = context.quick ? 1 : context.number("epochs");
  const { record, save } = context.open(
    "train-compression",
    { name: context.text("config"), epochs, trainLimit: context.number("train-limit"), runs: [] as object[] },
    { always: true },
  );
  for (const how of ["none", "bfloat16", "top-k=0.1", "top-k=0.01"]) {
    const output = join(folder, `compressed-${how}`);
    const args = ["--device", "cpu", "--devices", 2, "--epochs", epochs, "--out", output, ...limit];
    weftTrain(context, folder, [config, ...args, ...(how === "none" ? [] : ["--compress", how])]);
    const test = testResult(output)!;
    const losses = recordedSteps(output)[0].map(({ loss }) => loss);
    record.runs.push({
      how,
      testAccuracy: test.accuracy,
      testLoss: test.loss,
      steps: losses.length,
      lastLosses: losses.slice(-20).reduce((a, b) => a + b, 0) / Math.min(20, losses.length),
      receivedPerStep: notedBytes(output),
    });
    save();
  }
}

interface Setting {
  dropout: number;
  std: number;
  decay: number;
  smoothing: number;
  rate: number;
  seed: number;
}

/** As in configs/ag_news_small.yaml. */
const shippedSetting: Setting = { dropout: 0.4, std: 0.1, decay: 0.3, smoothing: 0.1, rate: 5e-4, seed: 42 };
const settings: [string, Partial<Setting>][] = [
  ["shipped", {}],
  ["dropout 0.2", { dropout: 0.2 }],
  ["weight decay 0.05", { decay: 0.05 }],
  ["no label smoothing", { smoothing: 0 }],
  ["learning rate 1e-3", { rate: 1e-3 }],
  ["learning rate 3e-4", { rate: 3e-4 }],
  ["PyTorch's defaults", { dropout: 0.1, std: 1, decay: 0.01, smoothing: 0, rate: 3e-4 }],
  ["embedding_std 0.05", { std: 0.05 }],
  ["another seed", { seed: 7 }],
];

/** The shipped settings and one change at a time; no new setting starts after --limit seconds. */
async function compareSettings(context: Context, folder: string): Promise<void> {
  const path = context.text("data");
  if (path === undefined || !existsSync(path)) throw new Error(`--data ${path}: expected the folder of AG News`);
  const weft = await import("@weft/core");
  const trainer = await import("@weft/train");
  const { checkConfig, resolveConfig } = await import("@weft/train/internal/commands");
  process.env.WEFT_DATASETS ??= join(folder, "home");
  weft.setDevice(context.device);
  const began = performance.now();
  const rows: object[] = [];
  const { record, save } = context.open("train-choose", { share: 0.1, rows }, { always: true });
  record.hardware.gpu = weft.session().device.name;
  for (const [name, change] of settings) {
    if (performance.now() - began > 1e3 * context.number("limit")) break;
    const setting = { ...shippedSetting, ...change };
    const { dropout, std, decay, smoothing, rate, seed } = setting;
    const shape = {
      vocab_size: 20000,
      d_model: 128,
      n_heads: 4,
      num_layers: 2,
      dim_feedforward: 256,
      max_seq_len: 128,
    };
    const raw = {
      name: "choose",
      device: context.device,
      seed,
      model: { ...shape, dropout, embedding_std: std },
      data: { dataset: "ag_news", path, length_buckets: [64, 128], validation: 0.1, test_limit: 1 },
      training: { epochs: 5, batch_per_rank: 32, gradient_clip: 1, label_smoothing: smoothing },
      optimizer: { learning_rate: rate, weight_decay: decay, schedule: "cosine", warmup_steps: 200 },
    };
    const output = join(folder, name.replaceAll(/\W+/g, "-"));
    const { epochs } = await trainer.train(resolveConfig(checkConfig(raw, name), { output }));
    rows.push({ name, setting, validation: epochs.map(({ valAccuracy }) => valAccuracy) });
    save();
  }
}

const suite: Suite = {
  options: {
    config: { value: "ag_news_small", help: "shipped configuration" },
    data: { help: "folder of the data set" },
    from: { help: "full: a finished run to take the figures from" },
    resume: { flag: true, help: "full: continue the run" },
    epochs: { value: "5", help: "workers: epochs" },
    "global-batch": { value: "64", help: "workers: rows per step over all workers" },
    "train-limit": { value: "6000", help: "compression: rows of the training split" },
    limit: { value: "120", help: "settings: seconds after which no new setting starts" },
  },
  async run(context) {
    const folder = temporaryFolder("runs");
    const rows = [
      { id: "full", run: () => fullTraining(context, folder) },
      { id: "workers", run: () => workersTraining(context, folder) },
      { id: "settings", run: () => compareSettings(context, folder) },
      { id: "compression", run: () => compressedTraining(context, folder) },
    ];
    if (context.rows === undefined) throw new Error("--rows: name what to run: full, workers, settings or compression");
    for (const { run } of context.choose(rows)) await run();
  },
};

export default suite;
