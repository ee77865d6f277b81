// weft train: trains the model of a configuration, on one device or several. With several it starts one process per
// rank.
import { existsSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { settings } from "@weft/core/internal/settings";
import type { Config, loadConfig, ModuleConfig, TrainResult } from "@weft/train";
import { type Command, Option } from "commander";
import {
  addSet,
  attempt,
  CommandError,
  formerOutput,
  interrupted,
  ProgressLine,
  parseCount,
  parseCounts,
  printJson,
  printLines,
  printText,
  significant,
  translationNote,
  warn,
  withOut,
  wrongUsage,
} from "../terminal/index.js";
import { engineWork } from "./engine-work.js";
import { cliSettings } from "./settings.js";

interface Options {
  devices?: number[];
  minDevices?: number;
  globalBatch?: number;
  memory?: string;
  compress?: string;
  explain?: boolean;
  data?: string;
  out?: string;
  device?: string;
  maxSteps?: number;
  epochs?: number;
  seed?: number;
  evaluate: boolean;
  resume?: boolean;
  tape?: number;
  json?: boolean;
  slurm?: string;
  nodes: number;
  partition?: string;
  account?: string;
  time?: string;
  modules?: string[];
  env?: string[];
  gpusPerRank?: number;
  set?: string[];
  launcher: "local" | "ray";
  ray: string;
}

const help = `
Examples:
  weft train configs/synthetic.yaml                          synthetic data: try this first
  weft train configs/ag_news_small.yaml --devices 2          two ranks, gradients summed between them
  weft train configs/ag_news_small.yaml --data data/ag_news  with a local copy of the data
  weft train configs/my_model.yaml --devices 4 --memory 2GB --explain   how the step is divided, and why
  weft train configs/ag_news_small.yaml --set model.dropout=0.2 training.epochs=3
  weft train configs/ag_news_small.yaml --resume             continue an interrupted run
  weft train configs/ag_news_small.yaml --devices 4 --min-devices 2   continue with the others when a rank dies
  weft train configs/ag_news_small.yaml --devices 4 --launcher ray    ranks as actors of a running Ray cluster
  weft scale --devices 1,2 -- weft train configs/ag_news_small.yaml --devices {n} --max-steps 60 --no-evaluate
  weft train configs/ag_news_large.yaml --devices 8 --slurm job.sh --nodes 2 --partition gpu --gpus-per-rank 1
                                                             writes a job script instead; sbatch job.sh runs it

Writes runs/NAME: config.yaml, metrics.csv, rank0.jsonl (one line per step), checkpoints. SIGTERM and Ctrl-C write a
checkpoint and end the run. Under srun or mpirun each process is a rank.`;

export default function add(program: Command): void {
  const command = program
    .command("train")
    .description("Train the model of a configuration, on one device or several.")
    .argument("<config>", "a YAML file, such as those in configs/")
    .option("--devices <n>", "ranks to train on", parseCounts)
    .option("--min-devices <n>", "after ranks die, continue with at least n ranks, and later with all", parseCount)
    .option("--global-batch <n>", "samples of one step over all ranks, instead of the configuration's", parseCount)
    .option(
      "--memory <size>",
      "memory of one device, such as 2GB, or of each (2GB,1GB): the step is divided so that it fits",
    )
    .option("--compress <how>", "send gradients as bfloat16, float16, or by their largest elements (top-k=0.01)")
    .option("--explain", "print the compared placements of the step, and exit")
    .option("--data <dir>", "folder that holds the data set's splits")
    .option("--out <dir>", "folder of the run (runs/NAME)")
    .addOption(formerOutput("dir"))
    .option("--device <name>", "cpu, cuda, cuda:1, reference")
    .option("--max-steps <n>", "maximum number of steps", parseCount)
    .option("--epochs <n>", "number of epochs, instead of the configuration's", parseCount)
    .option("--seed <n>", "random seed, instead of the configuration's", parseCount)
    .option("--no-evaluate", "do not evaluate: for measurements")
    .option("--resume", "continue from the newest checkpoint of the run")
    .option("--tape <steps>", "record every kernel of the first steps in tape-rankK.jsonl", parseCount)
    .option("--json", "the result as JSON on standard output")
    .addOption(
      new Option("--launcher <kind>", "who starts the ranks: this command, or a Ray cluster")
        .choices(["local", "ray"])
        .default("local"),
    )
    .option("--ray <address>", "address of the Ray cluster", "auto")
    .option("--slurm <file>", "write a SLURM script for this run and exit")
    .option("--nodes <n>", "nodes of the SLURM job", parseCount, 1)
    .option("--partition <name>", "SLURM partition")
    .option("--account <name>", "SLURM account")
    .option("--time <hh:mm:ss>", "SLURM time limit")
    .option("--modules <names...>", "modules to load in the job")
    .option("--env <settings...>", "variables of the job: NAME=value")
    .option("--gpus-per-rank <n>", "GPUs of each rank in the job (SLURM, Ray)", parseCount);
  addSet(command, "optimizer.learning_rate=0.001")
    .addHelpText("after", help)
    .action((config: string, options: Options) => attempt(() => reportOnce(() => run(config, withOut(options)))));
}

/** A rank with a parent reports its error to it, so that it is printed once. */
async function reportOnce(work: () => Promise<void>): Promise<void> {
  try {
    await work();
  } catch (error) {
    const { reportToParent } = await import("@weft/train/internal/commands");
    if (!(error instanceof CommandError) || !reportToParent(error.message)) throw error;
    process.exitCode = error.exitCode;
  }
}

async function run(file: string, options: Options): Promise<void> {
  const { followLauncher, isRank } = await import("@weft/train/internal/commands");
  const { loadAnyConfig } = await import("@weft/train/internal/config");
  await engineWork(async () => {
    const speaks = settings.rank.get() === undefined && ["0", undefined].includes(process.env.SLURM_PROCID);
    const config = loadAnyConfig(file, {
      ...overridesOf(options),
      ...(speaks && { onTranslated: translationNote(file) }),
    });
    checkGpus(config, options);
    if (options.slurm !== undefined) return writeScript(file, config, options, options.slurm);
    if (options.explain === true) return explain(config);
    if (config.ranks > 1 && !isRank()) return startRanks(config, options);
    followLauncher();
    await trainHere(config, options);
  });
}

/** Ranks with GPUs of their own compute on them: each sees its GPU as "cuda". */
function checkGpus(config: Config | ModuleConfig, { gpusPerRank, slurm }: Options): void {
  const isGpu = config.device?.startsWith("cuda") === true;
  const flag = `--gpus-per-rank ${gpusPerRank}`;
  if (gpusPerRank === undefined) {
    if (slurm !== undefined && isGpu)
      throw new CommandError(`device ${config.device} in a SLURM job needs --gpus-per-rank 1`, wrongUsage);
    return;
  }
  if (gpusPerRank > 1)
    throw new CommandError(`${flag}: a rank computes on one GPU; give 1 and --devices as many as GPUs`, wrongUsage);
  config.device ??= "cuda";
  if (config.device !== "cuda")
    throw new CommandError(
      isGpu
        ? `${flag}: each rank sees its own GPU as "cuda"; write device: cuda instead of ${config.device}`
        : `${flag} reserves GPUs and device ${config.device} would not use them; remove one of the two`,
      wrongUsage,
    );
}

/** Prints the plan of the step, without starting ranks. */
async function explain(config: Config | ModuleConfig): Promise<void> {
  const { setDevice } = await import("@weft/core");
  const { explainTraining } = await import("@weft/train/internal/commands");
  const name = config.device ?? settings.device.get();
  if (name !== undefined && name !== "") setDevice(name);
  printText(`${await explainTraining(config)}\n`);
}

/** Output folder: under `weft scale` each run has its own. */
function overridesOf(options: Options): Parameters<typeof loadConfig>[1] {
  if (options.devices !== undefined && options.devices.length !== 1)
    throw new CommandError("--devices takes one count here; weft scale runs several", wrongUsage);
  const measured = cliSettings.probeDir.get();
  const output = options.out ?? (measured === undefined ? undefined : join(measured, "train"));
  const { devices: _, out: __, compress, ...rest } = options;
  return {
    ...rest,
    ...(compress !== undefined && { compression: compress }),
    ...(options.devices !== undefined && { devices: options.devices[0] }),
    ...(output !== undefined && { output }),
  };
}

/** Starts this command once per rank; rank 0 prints. */
async function startRanks(config: Config | ModuleConfig, options: Options): Promise<void> {
  const { launchElastic, launchOnRay } = await import("@weft/train/internal/commands");
  const ray = { ray: options.ray, gpus: options.gpusPerRank };
  const least = options.minDevices ?? config.ranks;
  if (least > config.ranks)
    throw new CommandError(`--min-devices ${least} is more than the ${config.ranks} ranks of the run`, wrongUsage);
  const abort = new AbortController();
  const stop = (): void => abort.abort();
  process.on("SIGTERM", stop);
  process.on("SIGINT", stop);
  try {
    const own = [process.execPath, ...process.execArgv, ...process.argv.slice(1)];
    await launchElastic({
      most: config.ranks,
      least,
      coresPerRank: config.distributed.cores_per_rank,
      command: (size, again) =>
        again
          ? [
              ...without(own, "--devices"),
              "--devices",
              String(size),
              "--global-batch",
              String(config.globalBatch),
              "--resume",
            ]
          : own,
      signal: abort.signal,
      ...(options.launcher === "ray" && { launch: (ranks) => launchOnRay(ranks, ray) }),
      onNote: (text) => warn(text),
    });
  } catch (error) {
    // Ranks get the signal of the terminal too, and end before their first step.
    if (abort.signal.aborted) throw new CommandError("interrupted before the first step", interrupted);
    throw error;
  } finally {
    process.off("SIGTERM", stop);
    process.off("SIGINT", stop);
  }
}

/** Arguments without an option and its value. */
const without = (args: readonly string[], option: string): string[] =>
  args.filter((arg, i) => arg !== option && args[i - 1] !== option && !arg.startsWith(`${option}=`));

async function trainHere(config: Config | ModuleConfig, options: Options): Promise<void> {
  const { session, setDevice } = await import("@weft/core");
  const { joinGroup, singleRank, train } = await import("@weft/train");
  const { localDeviceIndex } = await import("@weft/cluster/internal");
  // A CPU device is a number of cores, for one rank or several, so that device counts are comparable.
  process.env.WEFT_THREADS ??= String(config.distributed.cores_per_rank);
  const name = config.device ?? settings.device.get();
  if (name !== undefined && name !== "")
    setDevice(name === "cuda" && config.ranks > 1 ? `cuda:${localDeviceIndex()}` : name);
  const abort = new AbortController();
  const stop = (): void => abort.abort();
  process.on("SIGTERM", stop);
  // Before the first step there is nothing to save: Ctrl-C ends the process at once, also while it compiles.
  let hasStepped = false;
  const group = config.ranks > 1 ? await joinGroup(config.ranks) : singleRank;
  const progress = new ProgressLine();
  const { tokenizeListeners } = await import("@weft/train/internal/data");
  const tokenizing = new ProgressLine();
  const onTokens = (what: string, done: number, total: number): void => {
    tokenizing.update(what, done, total);
    if (done >= total) tokenizing.clear();
  };
  if (group.rank === 0) tokenizeListeners.add(onTokens);
  const report = (text: string): void => {
    progress.clear(false);
    if (!options.json && group.rank === 0) printText(text);
  };
  const onTest = "data" in config && config.data.validation === 0;
  const probeFolder = cliSettings.probeDir.get();
  const onCores = session().device.traits.usesHostCores;
  const place = onCores ? ` of ${settings.threads.get()} core${settings.threads.get() === 1 ? "" : "s"}` : "";
  report(
    `${config.name}: ${config.ranks} rank${config.ranks === 1 ? "" : "s"}${place}, global batch ${config.globalBatch} = ${config.batchPerRank} per rank` +
      (config.training.accumulation > 1 ? ` x ${config.training.accumulation} micro-steps` : ""),
  );
  try {
    const result = await train(config, {
      group,
      resume: options.resume === true,
      ...(options.tape !== undefined && { tapeSteps: options.tape }),
      signal: abort.signal,
      ...(probeFolder !== undefined && existsSync(probeFolder) && { probeFolder }),
      onStep: (e) => {
        if (!hasStepped) process.on("SIGINT", stop);
        hasStepped = true;
        const speed = `${significant(e.samplesPerSecond)} samples/s`;
        progress.update(`epoch ${e.epoch}/${e.epochs}  loss ${e.loss.toFixed(4)}  ${speed}`, e.step, e.steps);
      },
      onEpoch: (row, taken, of) =>
        report(
          `epoch ${row.epoch}${taken < of ? ` (${taken} of ${of} steps)` : ""}  train loss ${row.trainLoss.toFixed(4)}  ${row.seconds.toFixed(1)} s` +
            (row.valLoss === null
              ? ""
              : `  ${onTest ? "test" : "validation"} loss ${row.valLoss.toFixed(4)}` +
                (row.valAccuracy === null ? "" : `  accuracy ${row.valAccuracy.toFixed(4)}`) +
                (row.valF1 == null ? "" : `  F1 ${row.valF1.toFixed(4)}`) +
                (row.valPearson === undefined ? "" : `  Pearson ${row.valPearson.toFixed(4)}`) +
                (row.valSpearman === undefined ? "" : `  Spearman ${row.valSpearman.toFixed(4)}`)),
        ),
      onNote: (text) => warn(text),
    });
    progress.clear();
    if (result.test !== null) for (const line of testLines(result.test)) report(line);
    if (options.json && group.rank === 0) printJson(result, 0);
    else report(`${result.status} after ${result.steps} steps; the run is in ${result.output}`);
  } finally {
    progress.clear();
    tokenizing.clear();
    tokenizeListeners.delete(onTokens);
    process.off("SIGTERM", stop);
    process.off("SIGINT", stop);
    group.close();
  }
}

/** Classes that are listed with scores of their own. */
const mostListed = 20;

/** The evaluation on the test split, in words. */
function testLines({ loss, accuracy, scores, entities, regression }: NonNullable<TrainResult["test"]>): string[] {
  const show = (value: number): string => value.toFixed(4);
  if (regression !== undefined) {
    const line = ({ mse, mae, r2, pearson, spearman }: Omit<typeof regression, "outputs">): string =>
      `mean squared error ${show(mse)}, absolute ${show(mae)}, R2 ${show(r2)}, Pearson ${show(pearson)}, Spearman ${show(spearman)}`;
    const outputs = Object.entries(regression.outputs);
    const each = outputs.length === 1 || outputs.length > mostListed ? [] : outputs;
    return [`test ${line(regression)}, loss ${show(loss)}`, ...each.map(([name, own]) => `  ${name}: ${line(own)}`)];
  }
  if (accuracy === null) return [`test loss ${show(loss)}`];
  const first = `test accuracy ${show(accuracy)}, loss ${show(loss)}`;
  if (scores === null) return [first];
  const listed = (classes: typeof scores.classes, what: string): string[] => {
    const all = Object.entries(classes);
    return (all.length > mostListed ? [] : all).map(
      ([name, { precision, recall, f1, support }]) =>
        `  ${name}: precision ${precision.toFixed(3)}, recall ${recall.toFixed(3)}, F1 ${f1.toFixed(3)}, ${support} ${what}`,
    );
  };
  if (entities !== undefined)
    return [
      `${first}, entities: precision ${show(entities.precision)}, recall ${show(entities.recall)}, F1 ${show(entities.f1)} (mean of the types ${show(entities.macroF1)})`,
      ...listed(entities.types, "entities"),
    ];
  const overall =
    scores.correlation === null ? `, micro ${show(scores.microF1)})` : `), correlation ${show(scores.correlation)}`;
  return [
    `${first}, F1 ${show(scores.f1)} (weighted ${show(scores.weightedF1)}${overall}`,
    ...listed(scores.classes, "rows"),
  ];
}

/** Options of this command that the ranks of a job need too. */
const passedOn = [
  "data",
  "out",
  "device",
  "maxSteps",
  "epochs",
  "seed",
  "globalBatch",
  "memory",
  "compress",
  "tape",
] as const;

async function writeScript(
  file: string,
  config: Config | ModuleConfig,
  options: Options,
  target: string,
): Promise<void> {
  const { slurmScript } = await import("@weft/train/internal/commands");
  if (config.ranks % options.nodes !== 0)
    throw new CommandError(
      `--devices ${config.ranks} cannot be spread evenly over --nodes ${options.nodes}`,
      wrongUsage,
    );
  const environment = Object.fromEntries(
    (options.env ?? []).map((setting) => {
      const at = setting.indexOf("=");
      if (at < 1) throw new CommandError(`--env ${setting}: write NAME=value`, wrongUsage);
      return [setting.slice(0, at), setting.slice(at + 1)];
    }),
  );
  const values = { ...options, ...(options.gpusPerRank !== undefined && { device: config.device }) };
  const passed = passedOn.flatMap((key) => {
    const value = values[key];
    return value === undefined ? [] : [`--${key.replace(/[A-Z]/g, (c) => `-${c.toLowerCase()}`)}`, String(value)];
  });
  if (!options.evaluate) passed.push("--no-evaluate");
  for (const setting of options.set ?? []) passed.push("--set", setting);
  const script = slurmScript({
    name: config.name,
    command: [file, ...passed],
    nodes: options.nodes,
    ranksPerNode: config.ranks / options.nodes,
    cpusPerRank: config.distributed.cores_per_rank,
    environment,
    ...(options.gpusPerRank !== undefined && { gpusPerRank: options.gpusPerRank }),
    ...(options.partition !== undefined && { partition: options.partition }),
    ...(options.account !== undefined && { account: options.account }),
    ...(options.time !== undefined && { time: options.time }),
    ...(options.modules !== undefined && { modules: options.modules.flatMap((names) => names.split(",")) }),
  });
  writeFileSync(target, script, { mode: 0o755 });
  printLines(`${target}\n`);
}
