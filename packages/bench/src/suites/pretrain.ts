// The suite of fine-tuned encoders: configs/encoder_pretrain.yaml pretrains an encoder on the training texts of AG News and IMDB,
// `exportRun` makes a folder of it, and configs/*_finetune.yaml fine-tune it. The test splits are evaluated once, at the end.
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import * as weft from "@weft/core";
import type { Context, Suite } from "./context.js";
import { repository } from "./record.js";
import { makeTexts, temporaryFolder } from "./weft-runs.js";

/** Accuracies of the same data sets without pretraining: configs/ag_news_small.yaml and configs/imdb_small.yaml. */
function fromScratch(dataset: string): number | null {
  const path = join(repository, "bench/results", `training-${dataset}_small-cpu.json`);
  if (!existsSync(path)) return null;
  return (JSON.parse(readFileSync(path, "utf8")) as { testAccuracy: number }).testAccuracy;
}

interface Run {
  name: string;
  steps: number;
  seconds: number;
  firstLoss: number;
  lastLoss: number;
  validation?: (number | null)[];
  testAccuracy?: number | null;
  fromScratch?: number | null;
}

/** A configuration of the repository, at tiny sizes with --quick. */
function configFile(context: Context, folder: string, name: string): string {
  const path = join(repository, "configs", `${name}.yaml`);
  if (!context.quick) return path;
  const text = readFileSync(path, "utf8")
    .replace(/vocab_size: \d+/, "vocab_size: 300")
    .replace(/hidden_size: \d+/, "hidden_size: 16")
    .replace(/num_hidden_layers: \d+/, "num_hidden_layers: 1")
    .replace(/num_attention_heads: \d+/, "num_attention_heads: 2")
    .replace(/intermediate_size: \d+/, "intermediate_size: 16")
    .replace(/max_length: \d+/, "max_length: 24")
    .replace(/epochs: \d+/, "epochs: 1")
    .replace(/global_batch: \d+/, "global_batch: 4");
  const own = join(folder, `${name}.yaml`);
  writeFileSync(own, text);
  return own;
}

const suite: Suite = {
  defaults: { device: "cuda" },
  options: {
    data: { help: "folder that holds the folders ag_news and imdb; the cache of `weft data get` by default" },
    steps: { help: "steps of the pretraining instead of those of the configuration" },
    encoder: { help: "folder of an encoder that was pretrained before" },
    work: { help: "folder of the runs; a temporary one by default" },
  },
  async run(context) {
    const { exportRun, train } = await import("@weft/train");
    const { loadAnyConfig } = await import("@weft/train/internal/config");
    const device = weft.setDevice(context.device);
    const folder = context.text("work") ?? temporaryFolder("pretrain");
    const data = context.quick ? makeTexts(folder, 12, 40) : context.text("data");
    const runs: Run[] = [];
    const { record, save } = context.open("pretrain", { configs: {} as Record<string, string>, runs });
    record.hardware.gpu = device.name;
    const began = performance.now();
    const run = async (name: string, set: string[] = []): Promise<Run> => {
      const config = loadAnyConfig(configFile(context, folder, name), {
        device: context.device,
        output: join(folder, name),
        ...(data !== undefined && { data }),
        set,
      });
      const start = performance.now();
      const done = await train(config, {
        onEpoch: ({ epoch, trainLoss, valAccuracy }) =>
          context.log(
            `${name}: epoch ${epoch}, loss ${trainLoss.toFixed(4)}, accuracy ${valAccuracy}, ${((performance.now() - began) / 1e3).toFixed(0)} s`,
          ),
      });
      record.configs[name] = readFileSync(join(repository, "configs", `${name}.yaml`), "utf8");
      const made: Run = {
        name,
        steps: done.steps,
        seconds: (performance.now() - start) / 1e3,
        firstLoss: done.losses[0],
        lastLoss: done.losses.at(-1) ?? Number.NaN,
        ...(done.test !== null && {
          validation: done.epochs.map(({ valAccuracy }) => valAccuracy),
          testAccuracy: done.test.accuracy,
        }),
      };
      runs.push(made);
      save();
      context.log(JSON.stringify(made));
      return made;
    };
    let encoder = context.text("encoder");
    if (encoder === undefined) {
      const steps = context.text("steps");
      await run("encoder_pretrain", steps === undefined ? [] : [`training.max_steps=${steps}`]);
      encoder = join(folder, "encoder");
      await exportRun(join(folder, "encoder_pretrain"), encoder);
    }
    for (const dataset of context.choose([{ id: "ag_news" }, { id: "imdb" }])) {
      const made = await run(`${dataset.id}_finetune`, [`model.from=${encoder}`]);
      made.fromScratch = fromScratch(dataset.id);
      save();
    }
  },
};

export default suite;
