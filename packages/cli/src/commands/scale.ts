// weft scale: runs a command at several device counts, measures it and analyzes the result.
import { join } from "node:path";
import { type Analysis, analyzeStudy, attachTraces } from "@weft/lab/internal/diagnosis";
import { studyFromScaleDirectory } from "@weft/lab/internal/import";
import { performanceReport, verdictExitCode, writeReport } from "@weft/lab/internal/report";
import {
  type FollowOptions,
  followStudy,
  lastLines,
  launchers,
  PlanError,
  runStudy,
  type SlurmSite,
  type StudyEvent,
  type StudyLauncher,
  type StudyOptions,
  type StudyResult,
  submitStudy,
} from "@weft/lab/internal/runner";
import { type Command, InvalidArgumentError, Option } from "commander";
import {
  attempt,
  CommandError,
  failed,
  ProgressLine,
  parseCounts,
  printJson,
  printLines,
  printText,
  significant,
  warn,
  withProgress,
  wrongUsage,
} from "../terminal/index.js";

interface Options {
  devices?: number[];
  repeats: number;
  launcher: StudyLauncher;
  name?: string;
  out: string;
  timeLimit?: number;
  warmup?: number;
  warmupRuns: number;
  sampleSeconds: number;
  probe: boolean;
  pictures: boolean;
  json?: boolean;
  dryRun?: boolean;
  attach?: string;
  partition?: string;
  account?: string;
  qos?: string;
  modules?: string[];
  venv?: string;
  slurmTime?: string;
  cpusPerDevice?: number;
  gpusPerDevice?: number;
  memory?: string;
  devicesPerNode?: number;
  slurmOption?: string[];
}

const help = `
Examples:
  weft scale --devices 1,2,4 -- torchrun --nproc_per_node={n} train.py
  weft scale --devices 1 2 --repeats 3 --launcher torchrun -- python train.py --epochs 3
  weft scale --devices 1,2,4 --launcher sbatch --partition gpu --modules cuda/12.4 --venv .venv \\
      --gpus-per-device 1 --cpus-per-device 8 --time-limit 30m -- torchrun --nproc_per_node={n} train.py
  weft scale --attach runs/2026-11-15T10-21-05      follow a submitted study again after a lost connection

{n} stands for the device count. Every study gets a new folder under --out; nothing is ever overwritten. The job's code is
not changed: a probe on PYTHONPATH sees its steps, batches and options. Ctrl-C ends every process that was started.`;

const positive = (what: string) => (value: string) => {
  const number = Number(value);
  if (!Number.isFinite(number) || number <= 0) throw new InvalidArgumentError(`${what} should be above 0`);
  return number;
};

const whole = (what: string) => (value: string) => {
  const number = Number(value);
  if (!Number.isInteger(number) || number < 0) throw new InvalidArgumentError(`${what} should be a whole number`);
  return number;
};

const units: Record<string, number> = { s: 1, m: 60, h: 3600, "": 1 };

/** 90, 90s, 30m, 2h, 01:30:00. */
function duration(value: string): number {
  const clock = /^(?:(\d+):)?(\d+):(\d+)$/.exec(value);
  const ofClock = clock === null ? null : Number(clock[1] ?? 0) * 3600 + Number(clock[2]) * 60 + Number(clock[3]);
  if (ofClock !== null) return positive("a time limit")(String(ofClock));
  const plain = /^(\d+(?:\.\d+)?)\s*([smh]?)$/.exec(value);
  if (plain === null) throw new InvalidArgumentError("write seconds, or 90s, 30m, 2h, 01:30:00");
  return positive("a time limit")(String(Number(plain[1]) * units[plain[2]]));
}

export default function add(program: Command): void {
  program
    .command("scale")
    .description("Run a command at several device counts, measure it, and analyze how it scales.")
    .argument("[command...]", "the command, behind --; {n} stands for the device count")
    .option("--devices <counts...>", "device counts: 1,2,4 or 1 2 4", parseCounts)
    .option("--repeats <n>", "runs at each count", whole("--repeats"), 1)
    .addOption(new Option("--launcher <how>", "how the command is started").choices(launchers).default("local"))
    .option("--name <name>", "name of the study (and its folder)")
    .option("--out <dir>", "folder that holds the studies", "runs")
    .option("--time-limit <time>", "time limit of one run: 90s, 30m, 2h", duration)
    .option("--warmup <n>", "steps or epochs to exclude at the start of each run", whole("--warmup"))
    .option("--warmup-runs <n>", "warm-up runs before the measured ones", whole("--warmup-runs"), 0)
    .option("--sample-seconds <s>", "sampling interval of utilization", positive("--sample-seconds"), 1)
    .option("--no-probe", "do not inject the probe into the job")
    .option("--no-pictures", "write the report without charts")
    .option("--attach <dir>", "follow a submitted study")
    .option("--dry-run", "write the study's folder and job scripts without submitting (sbatch)")
    .option("--partition <name>", "SLURM partition")
    .option("--account <name>", "SLURM account")
    .option("--qos <name>", "SLURM quality of service")
    .option("--modules <names...>", "modules to load in the job")
    .option("--venv <dir>", "virtual environment to activate in the job")
    .option("--slurm-time <hh:mm:ss>", "SLURM's own time limit")
    .option("--cpus-per-device <n>", "cores for each device", whole("--cpus-per-device"))
    .option("--gpus-per-device <n>", "GPUs for each device", whole("--gpus-per-device"))
    .option("--memory <size>", "memory of a node, as SLURM writes it")
    .option("--devices-per-node <n>", "devices that fit on one node", whole("--devices-per-node"))
    .option("--slurm-option <options...>", "further SLURM options as they are, e.g. --slurm-option=--exclusive")
    .option("--json", "the analysis as JSON on standard output")
    .addHelpText("after", help)
    .action((command: string[], options: Options) => attempt(() => run(command, options)));
}

async function run(command: string[], options: Options): Promise<void> {
  const abort = new AbortController();
  // A lost terminal (SIGHUP) must not cancel submitted jobs; Ctrl-C and SIGTERM cancel everything.
  const submits = options.attach !== undefined || options.launcher === "sbatch";
  const stop = (): void => abort.abort();
  const leave = (): void => {
    if (submits) process.exit(failed);
    abort.abort();
  };
  process.on("SIGINT", stop);
  process.on("SIGTERM", stop);
  process.on("SIGHUP", leave);
  try {
    const result = await measure(command, options, abort.signal);
    if (result === null) return;
    await judge(result, options);
    if (result.canceled) throw new CommandError(`stopped; what was measured is in ${result.folder}`);
  } catch (error) {
    if (error instanceof PlanError) throw new CommandError(error.message, wrongUsage);
    throw error;
  } finally {
    process.off("SIGINT", stop);
    process.off("SIGTERM", stop);
    process.off("SIGHUP", leave);
  }
}

async function measure(command: string[], options: Options, signal: AbortSignal): Promise<StudyResult | null> {
  const show = reporter(options.json === true);
  const follow: FollowOptions = { signal, on: show };
  if (options.attach !== undefined) return followStudy(options.attach, follow);
  if (options.devices === undefined)
    throw new CommandError("no device counts were given; write --devices 1,2,4", wrongUsage);
  const study: StudyOptions = {
    command,
    counts: options.devices,
    repeats: options.repeats,
    launcher: options.launcher,
    parent: options.out,
    cwd: process.cwd(),
    env: process.env,
    site: siteOf(options),
    warmupRuns: options.warmupRuns,
    sampleSeconds: options.sampleSeconds,
    probe: options.probe,
    signal,
    on: show,
    ...(options.name !== undefined && { name: options.name }),
    ...(options.timeLimit !== undefined && { timeLimit: options.timeLimit }),
    ...(options.warmup !== undefined && { warmup: options.warmup }),
  };
  if (options.launcher !== "sbatch") {
    if (options.dryRun) throw new CommandError("--dry-run writes job scripts: it needs --launcher sbatch", wrongUsage);
    return runStudy(study);
  }
  const folder = await submitStudy(study, !options.dryRun);
  if (options.dryRun) {
    printLines(`${folder}\n`);
    return null;
  }
  warn(`submitted; if this connection is lost: weft scale --attach ${folder}`);
  return followStudy(folder, follow);
}

function siteOf(options: Options): SlurmSite {
  return {
    ...(options.partition !== undefined && { partition: options.partition }),
    ...(options.account !== undefined && { account: options.account }),
    ...(options.qos !== undefined && { qos: options.qos }),
    ...(options.modules !== undefined && { modules: options.modules.flatMap((names) => names.split(",")) }),
    ...(options.venv !== undefined && { venv: options.venv }),
    ...(options.slurmTime !== undefined && { time: options.slurmTime }),
    ...(options.cpusPerDevice !== undefined && { cpusPerDevice: options.cpusPerDevice }),
    ...(options.gpusPerDevice !== undefined && { gpusPerDevice: options.gpusPerDevice }),
    ...(options.memory !== undefined && { memory: options.memory }),
    ...(options.devicesPerNode !== undefined && { devicesPerNode: options.devicesPerNode }),
    ...(options.slurmOption !== undefined && { extra: options.slurmOption }),
  };
}

function reporter(quiet: boolean): (event: StudyEvent) => void {
  const progress = new ProgressLine();
  const report = (text: string): void => {
    progress.clear(false);
    if (!quiet) printText(text);
  };
  return (event) => {
    switch (event.kind) {
      case "study":
        report(`study in ${event.folder}: ${event.runs} runs`);
        return;
      case "started":
        progress.update(
          `${event.index + 1}/${event.of}  ${event.run.id}  running ${event.command.join(" ")}`,
          event.index,
          event.of,
        );
        return;
      case "ended": {
        const seconds = event.file.seconds === undefined ? "" : `  ${significant(event.file.seconds)} s`;
        const message = event.file.message === undefined ? "" : `  ${event.file.message}`;
        report(`${event.index + 1}/${event.of}  ${event.run.id}  ${event.file.status}${seconds}${message}`);
        return;
      }
      case "note":
        if (event.level !== "info") warn(event.message);
        return;
      default:
        event satisfies never;
    }
  };
}

async function judge(result: StudyResult, options: Options): Promise<void> {
  for (const file of result.runs.filter((run) => run.status === "failed" || run.status === "timeout")) {
    const log = join(result.folder, "runs", file.id, "stderr.log");
    const tail = lastLines(log, 8)
      .map((line) => `  ${line}`)
      .join("\n")
      .trimEnd();
    warn(
      `${file.id} (${file.devices} device${file.devices === 1 ? "" : "s"}) ${file.status}: ${file.message ?? ""}${tail === "" ? "" : `\n${tail}`}`,
    );
  }
  const analysis = await withProgress(async (progress): Promise<Analysis> => {
    const study = studyFromScaleDirectory(result.folder);
    await attachTraces(study, progress.update.bind(progress));
    progress.clear();
    const judged = analyzeStudy(study);
    const onFile = progress.update.bind(progress);
    await writeReport([judged], join(result.folder, "report"), { pictures: options.pictures, onFile });
    return judged;
  });
  if (options.json) printJson({ folder: result.folder, studies: [analysis.report] }, 0);
  else printText(`\n${performanceReport([analysis.report])}\nreport in ${join(result.folder, "report")}\n`);
  if (!result.canceled && result.runs.every((run) => run.status !== "ok"))
    throw new CommandError("no run ended well; there is nothing to judge");
  process.exitCode = verdictExitCode([analysis.report]);
}
