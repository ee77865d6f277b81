// The training step of the GPU table through the trainer itself (loader threads, uploads, metrics, records, checks),
// against the trainer's own program in a bare loop and against the bare step of the GPU suite, in one process. The texts
// are generated, as many and as long as those of AG News.
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import * as weft from "@weft/core";
import { mean, median } from "@weft/formats/stats";
import * as trainer from "@weft/train";
import { checkConfig, resolveConfig } from "@weft/train/internal/commands";
import * as data from "@weft/train/internal/data";
import { halfOf, makeModel } from "@weft/train/internal/model";
import { makeOptimizer } from "@weft/train/internal/optimizer";
import { freshState, StepExecutables } from "@weft/train/internal/step";
import { textStep } from "@weft/train/internal/text-task";
import { spreadOf } from "../harness/index.js";
import { classifierSizes, classifierStep } from "./classifier.js";
import type { Context, Suite } from "./context.js";
import { hash } from "./inputs.js";
import { recordedSteps, temporaryFolder } from "./weft-runs.js";

type Size = "small" | "large" | "tiny";
type Compute = "tf32" | "bfloat16" | "float32";

/** Made-up news of 8 to 68 words in four classes, as train.csv. */
function makeNews(folder: string, rows: number): string {
  const path = join(folder, "news");
  mkdirSync(path);
  let drawn = 0;
  const next = (): number => hash(drawn++, 777) / 2 ** 32;
  const lines = Array.from({ length: rows }, () => {
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

class TrainerOnGpu {
  readonly #folder = temporaryFolder("train-gpu");
  readonly #news: string;

  constructor(
    readonly context: Context,
    readonly windows: number,
  ) {
    process.env.WEFT_DATASETS = join(this.#folder, "home");
    this.#news = makeNews(this.#folder, context.quick ? 200 : 20975);
  }

  /** Steps per window; short steps are read back less often, as the trainer does. */
  every(size: Size): number {
    return { small: 256, large: 64, tiny: 4 }[size];
  }

  #config(size: Size, compute: Compute, name: string): trainer.Config {
    const { vocabulary, width, heads, layers, feedForward, length, batch } = classifierSizes[size];
    const raw = {
      name,
      device: this.context.device,
      model: {
        vocab_size: vocabulary,
        d_model: width,
        n_heads: heads,
        num_layers: layers,
        dim_feedforward: feedForward,
        max_seq_len: length,
        dropout: 0.1,
      },
      data: { dataset: "ag_news", path: this.#news },
      training: { epochs: 1000, batch_per_rank: batch, max_steps: this.windows * this.every(size), evaluate: false },
      optimizer: { type: "adam", learning_rate: 3e-4 },
      precision: { compute },
      logging: { every_steps: this.every(size) },
    };
    return resolveConfig(checkConfig(raw, "bench"), { output: join(this.#folder, name) });
  }

  /** Milliseconds per step of each window of a run, without the windows that compile and choose algorithms. */
  async throughTrainer(size: Size, compute: Compute, round: number) {
    const every = this.every(size);
    const config = this.#config(size, compute, `${size}-${compute}-${round}`);
    const { losses } = await trainer.train(config, { readEvery: every });
    const [steps] = recordedSteps(config.output);
    rmSync(config.output, { recursive: true });
    const means = (key: "durationUs" | "dataWaitUs"): number[] =>
      Array.from({ length: this.windows }, (_, w) =>
        mean(steps.slice(w * every, (w + 1) * every).map((s) => s[key] / 1e3)),
      ).slice(this.windows > 2 ? 2 : 0);
    return { ms: means("durationUs"), dataWaitMs: means("dataWaitUs"), losses };
  }

  /** Milliseconds per call in rounds that end when the device is done. */
  #bare(step: () => void, every: number): number[] {
    const { device } = weft.session();
    for (let i = 0; i < 5; i++) step();
    device.synchronize();
    return Array.from({ length: Math.max(3, this.windows - 2) }, () => {
      const start = performance.now();
      for (let i = 0; i < every; i++) step();
      device.synchronize();
      return (performance.now() - start) / every;
    });
  }

  /** The trainer's own program on one batch that stays on the device. */
  async ownProgram(size: Size, compute: Compute) {
    const config = this.#config(size, compute, "bare");
    const { optimizer, scaling } = makeOptimizer(config, this.windows * this.every(size));
    const model = makeModel(config, 4, "float32", halfOf(config));
    const options = {
      task: textStep(model, { dropout: true, labelSmoothing: 0, dtype: "float32" }),
      optimizer,
      scaling,
      group: trainer.singleRank,
      dtype: "float32" as const,
      seed: 1,
      gradientClip: undefined,
      bucketBytes: Number.POSITIVE_INFINITY,
      window: this.every(size),
    };
    const programs = new StepExecutables(options);
    let state = freshState(options, weft.jit((k: weft.Tensor) => model.init(k))(weft.key(1)));
    state = { ...state, optimizer: weft.treeMap((t) => t.realize(), state.optimizer) };
    const tokenizer = data.hashTokenizer(classifierSizes[size].vocabulary);
    const set = await data.openTokens(data.findSplit("ag_news", "train", this.#news), tokenizer);
    const rows = config.batchPerRank;
    const order = { globalBatch: rows, seed: 1, lengths: config.lengths, shuffle: true };
    const place = { rank: 0, ranks: 1, accumulation: 1, rows, loaders: 0, prefetch: 2 };
    const loader = data.openLoader(set, { ...order, ...place }, { epoch: 0, index: 0 });
    const batch = loader.next();
    const packed = weft.tensor(batch.data, { shape: [rows, data.headColumns + batch.length], dtype: "int32" });
    loader.close();
    const own = { inputs: packed, rows, share: 1, stop: null };
    const ms = this.#bare(() => {
      state = programs.whole(state, own);
    }, this.every(size));
    return { ms, kernels: programs.kernels(state, own).length };
  }

  /** The step of the GPU suite. */
  tableStep(size: Size, compute: Compute): number[] {
    const made = classifierStep(classifierSizes[size], compute === "bfloat16" ? "bf16" : compute);
    let { params, state } = made;
    const key = weft.key(3);
    return this.#bare(() => {
      const [p, s, loss] = made.step(params, state, made.x, made.y, key);
      loss.dispose();
      [params, state] = [p, s];
    }, this.every(size));
  }

  async row(size: Size, compute: Compute) {
    const first = await this.throughTrainer(size, compute, 0);
    const program = await this.ownProgram(size, compute);
    const table = this.tableStep(size, compute);
    const second = await this.throughTrainer(size, compute, 1);
    const through = [...first.ms, ...second.ms];
    const quarter = Math.max(1, first.losses.length >> 2);
    const losses = [mean(first.losses.slice(0, quarter)), mean(first.losses.slice(-quarter))];
    if (!first.losses.every(Number.isFinite) || (!this.context.quick && !(losses[1] < losses[0] + 0.05)))
      throw new Error(`the loss went from ${losses[0]} to ${losses[1]}`);
    weft.collectGarbage();
    weft.session().device.trim();
    const [stepMs, bareMs, tableMs] = [through, program.ms, table].map(median);
    return {
      size,
      precision: compute,
      at: new Date().toISOString(),
      stepMs,
      bareMs,
      tableMs,
      /** What data, metrics and logging add to the trainer's own program, and what that adds to the bare step. */
      overhead: stepMs / bareMs - 1,
      checks: bareMs / tableMs - 1,
      dataWaitMs: median([...first.dataWaitMs, ...second.dataWaitMs]),
      kernels: program.kernels,
      losses,
      samples: { through: spreadOf(through), bare: spreadOf(program.ms), table: spreadOf(table) },
    };
  }
}

const suite: Suite = {
  defaults: { device: "cuda" },
  options: { windows: { value: "8", help: "windows of steps per run" } },
  async run(context) {
    const device = weft.setDevice(context.device);
    const runs = new TrainerOnGpu(context, context.quick ? 2 : context.number("windows"));
    type Row = Awaited<ReturnType<TrainerOnGpu["row"]>>;
    const { record, save } = context.open("train-gpu", { rows: [] as Row[] }, { merge: true });
    record.hardware.gpu = device.name;
    const table: [Size, Compute][] = context.quick
      ? [["tiny", "float32"]]
      : [
          ["small", "tf32"],
          ["small", "bfloat16"],
          ["large", "tf32"],
          ["large", "bfloat16"],
        ];
    const order = table.map(([size, compute]) => `${size}-${compute}`);
    for (const { id, size, compute } of context.choose(
      table.map(([size, compute]) => ({ id: `${size}-${compute}`, size, compute })),
    )) {
      const row = await runs.row(size, compute);
      const idOf = (r: Row): string => `${r.size}-${r.precision}`;
      record.rows = [...record.rows.filter((r) => idOf(r) !== id), row];
      record.rows.sort((a, b) => order.indexOf(idOf(a)) - order.indexOf(idOf(b)));
      save();
      console.log(JSON.stringify(row));
    }
  },
};

export default suite;
