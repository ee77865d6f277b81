// weft train: trains the model of a configuration, on one device or several.
import type { Command } from "commander";
import { WeftError } from "weft";
import { loadConfig, train } from "weft/train";
import { attempt, CommandError, Progress, significant, warn } from "../terminal/index.js";

interface Options {
  devices?: number;
  data?: string;
  output?: string;
  device?: string;
  maxSteps?: number;
  epochs?: number;
  seed?: number;
  resume?: boolean;
  json?: boolean;
}

const help = `
Examples:
  weft train configs/synthetic.yaml                          made-up data: try this first
  weft train configs/ag_news_small.yaml --devices 2          two ranks, gradients summed between them
  weft train configs/ag_news_small.yaml --data data/ag_news  with your own copy of the data
  weft train configs/ag_news_small.yaml --resume             go on where a run was interrupted
  weft scale --devices 1,2 -- weft train configs/ag_news_small.yaml --devices {n}

Writes runs/NAME: config.yaml, metrics.csv, rank0.jsonl (one line a step), checkpoints. SIGTERM and Ctrl-C write a
checkpoint and end the run.`;

const whole = (value: string): number => {
  const number = Number(value);
  if (!Number.isInteger(number) || number < 1) throw new CommandError(`"${value}" is not a whole number above 0`, 2);
  return number;
};

export function add(program: Command): void {
  program
    .command("train")
    .description("Train a text classifier from a configuration.")
    .argument("<config>", "a YAML file, such as those in configs/")
    .option("--devices <n>", "ranks to train on", whole)
    .option("--data <dir>", "folder that holds the data set's splits")
    .option("--output <dir>", "folder of the run (runs/NAME)")
    .option("--device <name>", "cpu, cuda, cuda:1, reference")
    .option("--max-steps <n>", "end after so many steps", whole)
    .option("--epochs <n>", "instead of the configuration's", whole)
    .option("--seed <n>", "instead of the configuration's", whole)
    .option("--resume", "go on from the newest checkpoint of the run")
    .option("--json", "the result as JSON on standard output")
    .addHelpText("after", help)
    .action((config: string, options: Options) => attempt(() => run(config, options)));
}

async function run(file: string, options: Options): Promise<void> {
  try {
    const config = loadConfig(file, options);
    const abort = new AbortController();
    const stop = (): void => abort.abort();
    process.on("SIGTERM", stop);
    process.on("SIGINT", stop);
    const progress = new Progress();
    const say = (text: string): void => {
      progress.clear();
      if (!options.json) process.stdout.write(`${text}\n`);
    };
    try {
      const result = await train(config, {
        resume: options.resume === true,
        signal: abort.signal,
        onStep: (e) =>
          progress.update(
            `epoch ${e.epoch}/${e.epochs}  loss ${e.loss.toFixed(4)}  ${significant(e.samplesPerSecond)} samples/s`,
            e.step,
            e.steps,
          ),
        onEpoch: (row) =>
          say(
            `epoch ${row.epoch}  train loss ${row.trainLoss.toFixed(4)}  ${row.seconds.toFixed(1)} s` +
              (row.valLoss === null
                ? ""
                : `  test loss ${row.valLoss.toFixed(4)}  accuracy ${row.valAccuracy?.toFixed(4)}`),
          ),
        onNote: (text) => warn(text),
      });
      progress.clear();
      if (options.json) process.stdout.write(`${JSON.stringify(result)}\n`);
      else say(`${result.status} after ${result.steps} steps; the run is in ${result.output}`);
    } finally {
      process.off("SIGTERM", stop);
      process.off("SIGINT", stop);
    }
  } catch (error) {
    if (error instanceof WeftError) throw new CommandError(error.message);
    throw error;
  }
}
