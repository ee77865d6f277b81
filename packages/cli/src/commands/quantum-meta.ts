// weft quantum meta: meta-trains a policy over a distribution of noise environments.

import { existsSync, mkdirSync } from "node:fs";
import { basename, join } from "node:path";
import { setImmediate } from "node:timers/promises";
import { key, session, setDevice } from "@weft/core";
import { readText } from "@weft/formats/file";
import {
  type Baseline,
  cacheStats,
  compareBaselines,
  drawTasks,
  type MetaPreset,
  type MetaSettings,
  MetaTrainer,
  type MetaValidation,
  parseMetaFile,
  presetNames,
  withError,
} from "@weft/quantum/internal";
import type { Command } from "commander";
import {
  attempt,
  CommandError,
  csv,
  failed,
  ProgressLine,
  printJson,
  printText,
  size,
  table,
  time,
  translationNote,
  warn,
  writeFiles,
  wrongUsage,
} from "../terminal/index.js";
import { engineWork } from "./engine-work.js";

interface Options {
  set?: string[];
  preset?: string;
  iterations?: string;
  seed?: string;
  device?: string;
  out?: string;
  resume?: boolean;
  explain?: boolean;
  baselines?: boolean;
  adapt?: string;
  json?: boolean;
}

const help = `
Examples:
  weft quantum meta                                  the published task, preset "training"
  weft quantum meta --preset debug                   small and quick
  weft quantum meta meta.yaml --out runs/meta        metrics, curves, charts, a checkpoint
  weft quantum meta meta.yaml --out runs/meta --resume
  weft quantum meta meta.yaml --explain              integration steps and their estimated error
  weft quantum meta --baselines                      compare with robust pulses and GRAPE per task

meta.yaml (all keys are optional):
  preset: training                                   # training, evaluation or debug
  problem: {kind: flip, segments: 60, duration: 1}   # or kind: cz
  tasks: {kind: rates, dephasing: [0.02, 0.15], relaxation: [0.01, 0.08]}
  inner: {steps: 5, rate: 0.01}
  order: 1                                           # 2: differentiates through the adaptation
  integration: {training: {tolerance: 1.0e-5}, evaluation: {tolerance: 1.0e-9}}
All keys: docs/meta.md.`;

export default function add(program: Command): void {
  program
    .command("meta")
    .description("Meta-train a policy over a distribution of noise environments.")
    .argument("[file]", "settings file, YAML")
    .option("--preset <name>", presetNames.join(", "))
    .option("--iterations <n>", "override the number of iterations")
    .option("--seed <n>", "override the seed")
    .option("--device <name>", "cpu, cuda, cuda:1, reference")
    .option("--out <dir>", "write metrics, curves, charts and the checkpoint to this folder")
    .option("--resume", "continue from the checkpoint in --out")
    .option("--explain", "print the integration steps and exit")
    .option("--baselines", "compare with robust pulses and GRAPE per task")
    .option("--adapt <steps>", "number of steps of the adaptation curves")
    .option("--set <key=value...>", "override keys of the file: inner.steps=3")
    .option("--json", "write the result as JSON to standard output")
    .addHelpText("after", help)
    .action((file: string | undefined, options: Options) => attempt(() => engineWork(() => run(file, options))));
}

function whole(option: string, value: string | undefined): number | undefined {
  if (value === undefined) return undefined;
  const number = Number(value);
  if (value.trim() === "" || !Number.isInteger(number) || number < 0)
    throw new CommandError(`${option} ${value} is not a whole number`, wrongUsage);
  return number;
}

async function makeTrainer(file: string | undefined, options: Options): Promise<MetaTrainer> {
  const iterations = whole("--iterations", options.iterations);
  const seed = whole("--seed", options.seed);
  if (options.preset !== undefined && !(presetNames as readonly string[]).includes(options.preset))
    throw new CommandError(`--preset ${options.preset}: known are ${presetNames.join(", ")}`, wrongUsage);
  const overrides: MetaSettings = {
    ...(options.preset !== undefined && { preset: options.preset as MetaPreset }),
    ...(iterations !== undefined && { iterations }),
    ...(seed !== undefined && { seed }),
  };
  if (options.resume) {
    if (options.out === undefined) throw new CommandError("--resume needs --out, the folder of the run", wrongUsage);
    const path = join(options.out, checkpointName);
    if (existsSync(path)) return MetaTrainer.resume(path, iterations === undefined ? {} : { iterations });
    warn(`${path} does not exist: starting a new run`);
  }
  const text = file === undefined ? "" : readText(file);
  const name = file === undefined ? "weft quantum meta" : basename(file);
  const files = { set: options.set, onTranslated: translationNote(name) };
  return new MetaTrainer(await engineWork(async () => parseMetaFile(text, name, overrides, files), wrongUsage));
}

const checkpointName = "checkpoint.safetensors";

async function run(file: string | undefined, options: Options): Promise<void> {
  if (options.device !== undefined) setDevice(options.device);
  const trainer = await makeTrainer(file, options);
  if (options.explain) {
    const kernels = trainer.kernels().length;
    const text = `${trainer.explain()}\none iteration: ${trainer.config.batch} tasks, ${trainer.config.inner.steps} steps each, one program of ${kernels} kernels on ${session().device.name}`;
    if (options.json) printJson({ training: trainer.training, evaluation: trainer.evaluation, kernels });
    else printText(`${text}\n`);
    return;
  }
  for (const warning of [...trainer.training.warnings, ...trainer.evaluation.warnings]) warn(warning);
  const seconds = await train(trainer, options);
  const curves = adaptation(trainer, whole("--adapt", options.adapt) ?? trainer.config.inner.steps);
  const baselines = options.baselines ? compareBaselines(trainer) : [];
  if (options.out !== undefined) await write(options.out, trainer, curves, baselines);
  const result = {
    device: session().device.name,
    iterations: trainer.iteration,
    seconds,
    validation: trainer.validations.at(-1) ?? null,
    best: bestOf(trainer.validations),
    curves,
    baselines,
    cache: cacheStats(),
  };
  if (options.json) printJson(result);
  else printText(`${report(trainer, curves, baselines, seconds)}\n`);
}

/** Trains. Ctrl-C and SIGTERM stop after the current iteration, with a checkpoint if --out is given. */
async function train(trainer: MetaTrainer, options: Options): Promise<number> {
  const progress = new ProgressLine();
  let stopped = false;
  const stop = (): void => {
    stopped = true;
  };
  process.once("SIGINT", stop);
  process.once("SIGTERM", stop);
  const start = performance.now();
  const save = async (): Promise<void> => {
    if (options.out === undefined) return;
    mkdirSync(options.out, { recursive: true });
    await trainer.save(join(options.out, checkpointName));
  };
  try {
    let last: MetaValidation | null = trainer.validations.at(-1) ?? null;
    for (const validation of trainer.advance()) {
      last = validation ?? last;
      const shown = last === null ? "" : `  F ${last.before.toFixed(5)} -> ${last.after.toFixed(5)}`;
      progress.update(`iteration ${trainer.iteration}${shown}`, trainer.iteration, trainer.config.iterations);
      if (validation !== null) await save();
      // Signal handlers run only between iterations.
      await setImmediate();
      if (stopped) break;
    }
    await save();
  } finally {
    progress.clear();
    process.off("SIGINT", stop);
    process.off("SIGTERM", stop);
  }
  if (stopped) {
    const hint = options.out === undefined ? "" : "; continue with --resume";
    warn(`stopped after ${trainer.iteration} of ${trainer.config.iterations} iterations${hint}`);
    process.exitCode = failed;
  }
  return (performance.now() - start) / 1e3;
}

/** Fidelities of tasks after each step of adaptation. */
export interface Curves {
  steps: number[];
  mean: number[];
  tasks: number[][];
}

function adaptation(trainer: MetaTrainer, steps: number): Curves {
  const tasks = trainer.curves(drawTasks(trainer.config.tasks, key(trainer.config.seed + 20011), 12), steps);
  const points = Array.from({ length: steps + 1 }, (_, k) => k);
  return { steps: points, mean: points.map((k) => tasks.reduce((s, t) => s + t[k]!, 0) / tasks.length), tasks };
}

const bestOf = (all: readonly MetaValidation[]): MetaValidation | null =>
  all.reduce<MetaValidation | null>((best, v) => (best === null || v.after > best.after ? v : best), null);

function report(trainer: MetaTrainer, curves: Curves, baselines: readonly Baseline[], seconds: number): string {
  const last = trainer.validations.at(-1);
  const best = bestOf(trainer.validations);
  const lines = [
    trainer.explain(),
    `${trainer.iteration} iterations of ${trainer.config.batch} tasks in ${time(seconds * 1e6)} on ${session().device.name}`,
  ];
  if (last !== undefined && best !== null)
    lines.push(
      `validation: fidelity ${withError(last.after, last.error)} after ${trainer.config.inner.steps} steps ` +
        `(standard deviation over tasks ${last.deviation.toExponential(2)}), ${withError(last.before, last.error)} before: ` +
        `adaptation gain ${withError(last.gain, last.error)}; best ${withError(best.after, best.error)} at iteration ${best.iteration}`,
    );
  lines.push(
    `adaptation, mean of ${curves.tasks.length} fresh tasks: ${curves.mean.map((f, k) => `${k}: ${f.toFixed(6)}`).join("  ")}`,
  );
  if (baselines.length > 0)
    lines.push(
      table(
        ["", "mean fidelity", "deviation", "worst", "time"],
        baselines.map((b) => [
          b.name,
          withError(b.mean, b.error),
          b.deviation.toFixed(6),
          b.worst.toFixed(6),
          time(b.seconds * 1e6),
        ]),
      ),
    );
  const { programs } = cacheStats();
  lines.push(
    `cache: ${programs!.entries} programs, ${size(programs!.bytes)}, ${programs!.hits} hits, ${programs!.misses} misses`,
  );
  return lines.join("\n\n");
}

async function write(
  folder: string,
  trainer: MetaTrainer,
  curves: Curves,
  baselines: readonly Baseline[],
): Promise<void> {
  writeFiles(folder, {
    "metrics.csv": csv(
      ["iteration", "loss"],
      trainer.metrics.map((m) => [m.iteration, m.loss]),
    ),
    "validation.csv": csv(
      ["iteration", "before", "after", "deviation", "gain", "error", "training_error"],
      trainer.validations.map((v) => [v.iteration, v.before, v.after, v.deviation, v.gain, v.error, v.trainingError]),
    ),
    "adaptation.csv": csv(
      ["step", "mean", ...curves.tasks.map((_, i) => `task${i}`)],
      curves.steps.map((k) => [k, curves.mean[k]!, ...curves.tasks.map((t) => t[k]!)]),
    ),
    ...(baselines.length > 0 && { "baselines.json": `${JSON.stringify(baselines, null, 2)}\n` }),
  });
  const { adaptationChart, trainingChart, writePictures } = await import("./quantum-chart.js");
  await writePictures(folder, { adaptation: adaptationChart(curves), training: trainingChart(trainer) });
}
