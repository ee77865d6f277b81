// `node bench/train-gpu.mjs`: the training step of the GPU table through the trainer itself (loader threads, uploads, metrics,
// records, checks) against the trainer's own program in a bare loop and against the bare step of bench/gpu.mjs, in one
// process. The texts are made up, as many and as long as AG News'. Writes results/train-gpu.json.
// Options: --only small,large  --precisions tf32,bfloat16  --windows 8  --device cuda  --out FILE
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import * as weft from "@weft/core";
import * as trainer from "@weft/train";
import * as data from "@weft/train/data";
import { median, summary } from "./lib/stats.mjs";
import { classifierStep, sizes } from "./weft/classifier-step.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const { values: options } = parseArgs({
  options: {
    only: { type: "string", default: "small,large" },
    precisions: { type: "string", default: "tf32,bfloat16" },
    windows: { type: "string", default: "8" },
    every: { type: "string" },
    device: { type: "string", default: "cuda" },
    out: { type: "string", default: join(here, "results/train-gpu.json") },
  },
});
const windows = Number(options.windows);
/** Steps of a window: short ones are asked for less often, as the trainer does by itself. */
const everyOf = (size) => (options.every === undefined ? { small: 256, large: 64 }[size] : Number(options.every));
const folder = mkdtempSync(join(tmpdir(), "weft-bench-train-gpu-"));
process.on("exit", () => rmSync(folder, { recursive: true, force: true }));
process.env.WEFT_DATA = join(folder, "home");
const device = weft.setDevice(options.device);
/** Parts of the trainer that are not public: the bare loop runs the very program that a run does. */
const part = (name) => import(new URL(`./${name}.js`, import.meta.resolve("@weft/train")));
const [{ makeModel, halfOf }, { makeOptimizer }, { makePrograms, freshState }] = await Promise.all(
  ["model", "optimizer", "step"].map(part),
);

/** 20,975 made-up news of 8 to 68 words in four classes, as train.csv. */
function makeNews() {
  const path = join(folder, "news");
  mkdirSync(path);
  let state = 777;
  const next = () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
  const lines = Array.from({ length: 20975 }, () => {
    const label = Math.floor(next() * 4);
    const words = Array.from({ length: 8 + Math.floor(next() * 60) }, () => {
      const word = Math.floor(next() ** 2 * 20000);
      return `w${next() < 0.2 ? 20000 + label * 50 + (word % 50) : word}`;
    });
    return `"${label + 1}","${words.slice(0, 6).join(" ")}","${words.slice(6).join(" ")}"`;
  });
  writeFileSync(join(path, "train.csv"), `${lines.join("\n")}\n`);
  return path;
}
const news = makeNews();

function configOf(size, precision, name) {
  const { vocabulary, width, heads, layers, feedForward, length, batch } = sizes[size];
  const raw = {
    name,
    device: options.device,
    model: {
      vocab_size: vocabulary,
      d_model: width,
      n_heads: heads,
      num_layers: layers,
      dim_feedforward: feedForward,
      max_seq_len: length,
      dropout: 0.1,
    },
    data: { dataset: "ag_news", path: news },
    training: { epochs: 1000, batch_per_rank: batch, max_steps: windows * everyOf(size), evaluate: false },
    optimizer: { type: "adam", learning_rate: 3e-4 },
    precision: { compute: precision },
    logging: { every_steps: everyOf(size) },
  };
  return trainer.resolveConfig(trainer.checkConfig(raw, "bench"), { output: join(folder, name) });
}

/** Milliseconds a step of each window of a run, without those that compile and choose algorithms. */
async function throughTrainer(size, precision, round) {
  const every = everyOf(size);
  const config = configOf(size, precision, `${size}-${precision}-${round}`);
  const { losses } = await trainer.train(config, { readEvery: every });
  const steps = readFileSync(join(config.output, "rank0.jsonl"), "utf8")
    .trimEnd()
    .split("\n")
    .map((line) => JSON.parse(line))
    .filter(({ type }) => type === "step");
  rmSync(config.output, { recursive: true });
  const means = (key) =>
    Array.from({ length: windows }, (_, w) => {
      const own = steps.slice(w * every, (w + 1) * every);
      return own.reduce((sum, s) => sum + s[key], 0) / own.length / 1e3;
    }).slice(windows > 2 ? 2 : 0);
  return { ms: means("durationUs"), dataWaitMs: means("dataWaitUs"), losses };
}

/** Milliseconds a run of `step`, in rounds that end when the device is done. */
function bare(step, every) {
  for (let i = 0; i < 5; i++) step();
  device.synchronize();
  return Array.from({ length: Math.max(3, windows - 2) }, () => {
    const start = performance.now();
    for (let i = 0; i < every; i++) step();
    device.synchronize();
    return (performance.now() - start) / every;
  });
}

/** The trainer's own program on one batch that stays on the device. */
async function ownProgram(size, precision) {
  const config = configOf(size, precision, "bare");
  const { optimizer, scaling } = makeOptimizer(config, windows * everyOf(size));
  const model = makeModel(config, 4, "float32", halfOf(config));
  const stepOptions = {
    model,
    optimizer,
    scaling,
    group: trainer.alone,
    dtype: "float32",
    dropout: true,
    labelSmoothing: 0,
    gradientClip: undefined,
    bucketBytes: Number.POSITIVE_INFINITY,
    window: everyOf(size),
  };
  const programs = makePrograms(stepOptions);
  let state = freshState(stepOptions, weft.jit((k) => model.init(k))(weft.key(1)));
  state = { ...state, optimizer: weft.treeMap((t) => t.realize(), state.optimizer) };
  const set = await data.openTokens(data.findSplit("ag_news", "train", news), data.hashTokenizer(20000));
  const rows = config.batchPerRank;
  const loader = data.openLoader(
    set,
    {
      globalBatch: rows,
      seed: 1,
      lengths: config.lengths,
      shuffle: true,
      rank: 0,
      ranks: 1,
      accumulation: 1,
      rows,
      loaders: 0,
      prefetch: 2,
    },
    { epoch: 0, index: 0 },
  );
  const batch = loader.next();
  const packed = weft.tensor(batch.data, { shape: [rows, data.headColumns + batch.length], dtype: "int32" });
  loader.close();
  const ms = bare(() => {
    state = programs.whole(state, packed);
  }, everyOf(size));
  return { ms, kernels: programs.whole.kernels(state, packed).length };
}

/** The step of bench/gpu.mjs. */
function tableStep(size, precision) {
  const made = classifierStep(sizes[size], { precision: precision === "bfloat16" ? "bf16" : precision });
  let { params, state } = made;
  const key = weft.key(3);
  return bare(() => {
    const [p, s, loss] = made.step(params, state, made.x, made.y, key);
    loss.dispose();
    [params, state] = [p, s];
  }, everyOf(size));
}

async function row(size, precision) {
  const started = performance.now();
  const first = await throughTrainer(size, precision, 0);
  const program = await ownProgram(size, precision);
  const table = tableStep(size, precision);
  const second = await throughTrainer(size, precision, 1);
  const through = [...first.ms, ...second.ms];
  const quarter = Math.max(1, first.losses.length >> 2);
  const mean = (list) => list.reduce((a, b) => a + b, 0) / list.length;
  const losses = [mean(first.losses.slice(0, quarter)), mean(first.losses.slice(-quarter))];
  if (!first.losses.every(Number.isFinite) || !(losses[1] < losses[0] + 0.05))
    throw new Error(`the loss went from ${losses[0]} to ${losses[1]}`);
  const [stepMs, bareMs, tableMs] = [through, program.ms, table].map((list) => median(list));
  weft.collectGarbage();
  device.trim?.();
  return {
    size,
    precision,
    stepMs,
    bareMs,
    tableMs,
    /** What data, metrics and logging add to the trainer's own program, and what this adds to the bare step. */
    overhead: stepMs / bareMs - 1,
    checks: bareMs / tableMs - 1,
    dataWaitMs: median([...first.dataWaitMs, ...second.dataWaitMs]),
    kernels: program.kernels,
    losses,
    samples: { through: summary(through), bare: summary(program.ms), table: summary(table) },
    seconds: (performance.now() - started) / 1e3,
  };
}

const failed = [];
/** What is not measured now stays, and each row is on disk when it is known: a machine may be lent for a minute only. */
const rows = existsSync(options.out) ? JSON.parse(readFileSync(options.out, "utf8")).rows : [];
const order = ({ size, precision }) => `${size === "small" ? 0 : 1}${precision === "tf32" ? 0 : 1}`;
function keep(done) {
  const same = ({ size, precision }) => size === done.size && precision === done.precision;
  rows.splice(0, rows.length, ...rows.filter((r) => !same(r)), { ...done, at: new Date().toISOString() });
  rows.sort((a, b) => (order(a) < order(b) ? -1 : 1));
  save();
}
function save() {
  const report = {
    benchmark: "trainer on the GPU",
    at: new Date().toISOString(),
    hardware: { device: device.context?.name ?? device.name },
    versions: { node: process.version },
    settings: { windows, every: { small: everyOf("small"), large: everyOf("large") } },
    rows,
    failed,
  };
  mkdirSync(dirname(options.out), { recursive: true });
  writeFileSync(options.out, `${JSON.stringify(report, null, 1)}\n`);
}
for (const size of options.only.split(","))
  for (const precision of options.precisions.split(","))
    try {
      const done = await row(size, precision);
      keep(done);
      console.log(JSON.stringify(done));
    } catch (error) {
      failed.push({ size, precision, error: String(error?.stack ?? error).slice(0, 1000) });
      console.log(JSON.stringify(failed.at(-1)));
    }
save();
process.exit(failed.length === 0 ? 0 : 1);
