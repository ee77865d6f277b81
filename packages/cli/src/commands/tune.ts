// weft tune: finds fast settings of a configuration by short measured runs, guided by the lab's cost formulas.
import { spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, isAbsolute, join, relative, resolve } from "node:path";
import { type LedgerPrediction, makePrediction, recordPredictions, scorePrediction } from "@weft/lab/internal/ledger";
import { MachineWitness } from "@weft/lab/internal/runner";
import { type RawConfig, readConfig, showConfig } from "@weft/train/internal/commands";
import type { Command } from "commander";
import {
  addSet,
  attempt,
  CommandError,
  formerOutput,
  ProgressLine,
  parseCount,
  parseCounts,
  percent,
  printJson,
  printText,
  significant,
  table,
  translationNote,
  withOut,
  wrongUsage,
} from "../terminal/index.js";
import { engineWork } from "./engine-work.js";
import { ledgerPath } from "./studies.js";
import { type SearchResult, type Settings, searchSettings, type Trial, type TrialMeasurement } from "./tune-search.js";

interface Options {
  set?: string[];
  devices?: number[];
  data?: string;
  device?: string;
  steps: number;
  probes: number;
  keepBatch?: boolean;
  out?: string;
  ledger?: string;
  json?: boolean;
}

const help = `
Examples:
  weft tune configs/ag_news_small.yaml --devices 2
  weft tune configs/ag_news_small.yaml --devices 2 --keep-batch   only changes that keep the training curve
  weft tune configs/ag_news_large.yaml --devices 8 --probes 12 --steps 40

Varies per-rank batch, accumulation, precision (on GPUs), buckets, loaders and the number of devices, one at a time: the
change with the largest predicted gain is measured, and kept if confirmed. Every prediction is recorded in the ledger with
its outcome. A larger batch changes training: adjust the learning rate, or use --keep-batch.`;

export default function add(program: Command): void {
  const command = program
    .command("tune")
    .description("Find the fastest settings of a training configuration by short measured runs.")
    .argument("<config>", "a YAML file, such as those in configs/")
    .option("--devices <n>", "maximum number of devices", parseCounts)
    .option("--data <dir>", "folder that holds the data set's splits")
    .option("--device <name>", "cpu, cuda, reference")
    .option("--steps <n>", "measured steps of the given configuration; others use as many samples", parseCount, 30)
    .option("--probes <n>", "maximum number of runs", parseCount, 8)
    .option("--keep-batch", "keep the global batch")
    .addOption(formerOutput("file"))
    .option("--out <file>", "file for the best configuration (NAME_tuned.yaml)")
    .option("--ledger <file>", "the ledger (default: .weft/ledger.jsonl, or WEFT_LEDGER)")
    .option("--json", "trials and result as JSON on standard output");
  addSet(command, "model.dropout=0.2")
    .addHelpText("after", help)
    .action((config: string, options: Options) => attempt(() => engineWork(() => run(config, withOut(options)))));
}

const settingsOf = (raw: RawConfig): Settings => ({
  devices: raw.distributed.devices,
  batchPerRank:
    raw.training.batch_per_rank ??
    Math.ceil((raw.training.global_batch as number) / (raw.distributed.devices * raw.training.accumulation)),
  accumulation: raw.training.accumulation,
  precision: raw.precision.compute,
  bucketMb: raw.distributed.bucket_mb,
  loaders: raw.data.loaders,
});

/** The configuration with these settings; with a fixed global batch the per-rank batch is adjusted. */
function withSettings(raw: RawConfig, s: Settings, keepBatch: boolean): RawConfig {
  const changed = structuredClone(raw);
  const before = settingsOf(raw);
  changed.distributed.devices = s.devices;
  changed.distributed.bucket_mb = s.bucketMb;
  changed.data.loaders = s.loaders;
  if (s.loaders === 0) delete changed.data.prefetch;
  changed.precision.compute = s.precision as RawConfig["precision"]["compute"];
  changed.training.accumulation = s.accumulation;
  if (keepBatch) {
    changed.training.global_batch =
      raw.training.global_batch ?? before.batchPerRank * before.devices * before.accumulation;
    delete changed.training.batch_per_rank;
  } else {
    changed.training.batch_per_rank = s.batchPerRank;
    delete changed.training.global_batch;
  }
  return changed;
}

/** The configuration with its paths rewritten relative to another folder. */
function movedTo(raw: RawConfig, from: string, to: string): RawConfig {
  const moved = structuredClone(raw);
  const relocated = (path: string): string => (isAbsolute(path) ? path : relative(to, resolve(from, path)) || ".");
  if (moved.data.path !== undefined) moved.data.path = relocated(moved.data.path);
  if (moved.data.tokenizer !== "hash") moved.data.tokenizer = relocated(moved.data.tokenizer);
  return moved;
}

async function run(file: string, options: Options): Promise<void> {
  if (options.devices !== undefined && options.devices.length !== 1)
    throw new CommandError("--devices takes one count here: the most devices that may be used", wrongUsage);
  const { raw, base } = readConfig(file, { set: options.set, onTranslated: translationNote(file) });
  const maxDevices = options.devices?.[0] ?? raw.distributed.devices;
  const from = { ...settingsOf(raw), devices: Math.min(raw.distributed.devices, maxDevices) };
  const folder = mkdtempSync(join(tmpdir(), "weft-tune-"));
  const abort = new AbortController();
  const stop = (): void => abort.abort();
  process.on("SIGINT", stop);
  process.on("SIGTERM", stop);
  const progress = new ProgressLine();
  const ledger = ledgerPath(options.ledger);
  const promises = new Map<Trial, LedgerPrediction>();
  const budget = options.steps * from.batchPerRank * from.devices * from.accumulation;
  let probe = 0;
  try {
    const result = await searchSettings(from, {
      maxDevices,
      probes: options.probes,
      leastGain: 0.02,
      keepGlobalBatch: options.keepBatch === true,
      precisions: (options.device ?? raw.device ?? "cpu").startsWith("cuda") ? ["tf32", "bfloat16"] : [],
      measure: (settings) => {
        progress.note(`run ${++probe} of at most ${options.probes}`);
        const place = join(folder, `probe-${probe}`);
        const changed = movedTo(withSettings(raw, settings, options.keepBatch === true), base, place);
        return measure(changed, settings, budget, place, options, abort.signal);
      },
      onPromise: (trial, now) => {
        const promise = makePrediction({
          study: `tune ${raw.name}`,
          finding: trial.what,
          metric: "samplesPerSecond",
          devices: trial.settings.devices,
          from: now.samplesPerSecond,
          to: (trial.expected as { samplesPerSecond: number }).samplesPerSecond,
          interval: trial.expected?.interval ?? null,
          unit: "samples/s",
          reason: trial.expected?.reason ?? "",
          basedOn: [now.run],
        });
        recordPredictions(ledger, [promise]);
        promises.set(trial, promise);
      },
      onTrial: (trial) => {
        progress.clear();
        const promise = promises.get(trial);
        if (promise !== undefined && trial.got !== null)
          scorePrediction(ledger, promise, trial.got.samplesPerSecond, [trial.got.run]);
        if (!options.json) printText(`${line(trial)}\n`);
      },
    });
    const target = options.out ?? `${raw.name}_tuned.yaml`;
    const best = movedTo(withSettings(raw, result.best, options.keepBatch === true), base, dirname(resolve(target)));
    const { output: _, ...tuned } = { ...best, name: `${raw.name}_tuned` };
    writeFileSync(
      target,
      `# ${raw.name} tuned by weft tune: ${significant(result.now.samplesPerSecond)} samples/s measured here.\n${showConfig(tuned)}`,
    );
    if (options.json) printJson({ ...result, config: target, ledger, disturbances: [...disturbances] }, 0);
    else printText(`\n${summary(result, target, ledger)}\n`);
  } finally {
    process.off("SIGINT", stop);
    process.off("SIGTERM", stop);
    progress.clear();
    rmSync(folder, { recursive: true, force: true });
  }
}

function line(trial: Trial): string {
  const expected = trial.expected === null ? "" : `expected ${significant(trial.expected.samplesPerSecond)}, `;
  if (trial.got === null) return `${trial.what}: ${expected}failed: ${trial.failed ?? ""}`;
  return `${trial.what}: ${expected}got ${significant(trial.got.samplesPerSecond)} samples/s${trial.expected === null ? "" : trial.kept ? "  kept" : "  not kept"}`;
}

function summary({ best, start, now, trials }: SearchResult, target: string, ledger: string): string {
  const rows = Object.entries(best).map(([name, value]) => [
    name,
    String(trials[0].settings[name as keyof Settings]),
    String(value),
  ]);
  const gain = (now.samplesPerSecond / start.samplesPerSecond - 1) * 100;
  const verdict =
    gain < 1
      ? "No change was faster than the given configuration."
      : `${significant(start.samplesPerSecond)} -> ${significant(now.samplesPerSecond)} samples/s, measured (+${percent(gain)}).`;
  const doubt =
    disturbances.size === 0
      ? ""
      : `\nDISTURBED in ${disturbances.size} of ${trials.length} runs (${[...disturbances][0]}): cannot say whether these settings are best; tune again on a quiet machine.`;
  return `${table(["setting", "given", "best"], rows)}\n\n${verdict}${doubt}\n${target} is written; predictions and outcomes are in ${ledger}`;
}

/** What disturbed the runs of this command. */
const disturbances = new Set<string>();

/** Runs the trainer for a few steps in child processes and summarizes the records of steps without compilation. */
async function measure(
  raw: RawConfig,
  settings: Settings,
  budget: number,
  folder: string,
  options: Options,
  signal: AbortSignal,
): Promise<TrialMeasurement> {
  mkdirSync(folder, { recursive: true });
  const config = structuredClone(raw);
  config.training.evaluate = false;
  config.data.validation = 0;
  delete config.data.test_limit;
  const globalBatch = raw.training.global_batch ?? settings.batchPerRank * settings.devices * settings.accumulation;
  // Steps that compile are excluded: there is at least one per length.
  const steps = Math.max(6, Math.ceil(budget / globalBatch)) + (config.data.length_buckets?.length ?? 1);
  config.training.epochs = 1000;
  const file = join(folder, "config.yaml");
  const output = join(folder, "run");
  writeFileSync(file, showConfig(config));
  const args = ["train", file, "--max-steps", String(steps), "--out", output, "--json"];
  if (options.data !== undefined) args.push("--data", options.data);
  if (options.device !== undefined) args.push("--device", options.device);
  const witness = new MachineWitness({ gpus: (options.device ?? raw.device ?? "cpu").startsWith("cuda") });
  await spawned(args, signal);
  const { disturbance } = witness.report();
  if (disturbance !== null) disturbances.add(disturbance);
  return readSteps(output, settings.devices);
}

function spawned(args: string[], signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const child = spawn(process.execPath, [process.argv[1], ...args], { stdio: ["ignore", "ignore", "pipe"] });
    const onAbort = (): void => {
      child.kill("SIGTERM");
    };
    signal.addEventListener("abort", onAbort, { once: true });
    let tail = "";
    child.stderr.on("data", (chunk: Buffer) => {
      tail = `${tail}${chunk.toString("utf8")}`.slice(-1500);
    });
    child.on("error", reject);
    child.on("close", (code) => {
      signal.removeEventListener("abort", onAbort);
      if (signal.aborted) reject(new CommandError("stopped"));
      else if (code === 0) resolve();
      else reject(new CommandError(tail.trim().split("\n").slice(-2).join(" / ")));
    });
  });
}

interface StepLine {
  type: string;
  compile?: true;
  durationUs: number;
  dataWaitUs: number;
  /** Absent where collectives are not timed: on GPUs. */
  commUs?: number;
  exposedCommUs?: number;
  samples: number;
  facts?: { parameters?: number; parameterElements?: number[] };
}

function readSteps(folder: string, devices: number): TrialMeasurement {
  const all = readdirSync(folder)
    .filter((name) => /^rank\d+\.jsonl$/.test(name))
    .sort()
    .map((name) =>
      readFileSync(join(folder, name), "utf8")
        .trimEnd()
        .split("\n")
        .map((text) => JSON.parse(text) as StepLine),
    );
  const steady = all.map((records) => records.filter((r) => r.type === "step" && r.compile !== true));
  if (all.length !== devices || steady.some((steps) => steps.length < 3))
    throw new CommandError("the run was too short to measure; give more --steps");
  const sum = (pick: (r: StepLine) => number): number => steady.flat().reduce((n, r) => n + pick(r), 0);
  const count = steady.flat().length;
  const mean = (pick: (r: StepLine) => number): number => sum(pick) / count;
  const facts = all[0].find((r) => r.type === "facts")?.facts;
  return {
    samplesPerSecond: (sum((r) => r.samples) * 1e6) / (sum((r) => r.durationUs) / devices),
    parts: {
      stepUs: mean((r) => r.durationUs),
      dataUs: mean((r) => r.dataWaitUs),
      commUs: mean((r) => r.commUs ?? 0),
      exposedUs: mean((r) => r.exposedCommUs ?? 0),
    },
    parameterElements: facts?.parameterElements ?? [facts?.parameters ?? 0],
    run: folder,
  };
}
