// Runs a study on this machine: one run after the other in the planned order, each sampled, limited in time and cleaned up. Records
// are written as they occur, so that an interrupted study keeps its data.
import { appendFileSync, mkdirSync } from "node:fs";
import { join, resolve } from "node:path";
import {
  formatRecord,
  type MachineFacts,
  type RunFile,
  type RunLogRecord,
  type StudyFile,
} from "@weft/formats/internal";
import { launcherRow, type SlurmSite, type StudyLauncher } from "./launchers.js";
import { describeMachine } from "./machine.js";
import { lastTraceback } from "./output.js";
import {
  checkTemplate,
  createStudyFolder,
  type PlannedRun,
  planRuns,
  runFolder,
  studyName,
  traceFolder,
  writeRunFile,
  writeStudyFile,
} from "./plan.js";
import { probeEnvironment, probeMessage, probeShutOut, probeState } from "./probe.js";
import { type Exit, endAll, RunProcesses, start } from "./processes.js";
import { Sampler } from "./sampler.js";
import { MachineWitness } from "./witness.js";

/** Options of a study. */
export interface StudyOptions {
  name?: string;
  command: string[];
  counts: number[];
  repeats: number;
  launcher: StudyLauncher;
  /** Folder that holds the studies; each gets a new folder in it. */
  parent: string;
  cwd: string;
  env: Record<string, string | undefined>;
  site: SlurmSite;
  /** Seconds that one run may take. */
  timeLimit?: number;
  /** Steps or epochs at the start of every run that are excluded. */
  warmup?: number;
  /** Whole runs at the smallest count before the measured ones. */
  warmupRuns: number;
  sampleSeconds: number;
  probe: boolean;
  /** Seconds between asking a run to end and killing it. */
  graceSeconds?: number;
  signal?: AbortSignal;
  on?: (event: StudyEvent) => void;
}

/** Progress of a study, for display. */
export type StudyEvent =
  | { kind: "study"; folder: string; runs: number }
  | { kind: "started"; run: PlannedRun; index: number; of: number; command: string[] }
  | { kind: "ended"; run: PlannedRun; file: RunFile; index: number; of: number }
  | { kind: "note"; run?: PlannedRun; level: "info" | "warning" | "error"; message: string };

/** The folder and the runs of a study. */
export interface StudyResult {
  folder: string;
  runs: RunFile[];
  canceled: boolean;
}

/** Creates the folder and study.json, for local and submitted studies. */
export function createStudy(options: StudyOptions, machine: MachineFacts): { folder: string; plan: PlannedRun[] } {
  checkTemplate(options.command, options.counts, launcherRow(options.launcher).placesCount);
  const plan = planRuns(options.counts, options.repeats, options.warmupRuns);
  const folder = createStudyFolder(resolve(options.parent), options.name ?? studyName(new Date()));
  const study: StudyFile = {
    v: 1,
    name: options.name ?? folder.split("/").pop()!,
    command: options.command,
    counts: [...new Set(options.counts)].sort((a, b) => a - b),
    repeats: options.repeats,
    launcher: options.launcher,
    machine,
    createdAt: Date.now() / 1000,
  };
  if (options.warmup !== undefined) study.warmup = options.warmup;
  writeStudyFile(folder, study);
  return { folder, plan };
}

/** Runs a study on this machine. */
export async function runStudy(options: StudyOptions): Promise<StudyResult> {
  const machine = describeMachine();
  const { folder, plan } = createStudy(options, machine);
  const notify = options.on ?? (() => {});
  notify({ kind: "study", folder, runs: plan.length });
  noteBeforehand(options, machine, notify);
  const files: RunFile[] = [];
  for (const [index, run] of plan.entries()) {
    if (options.signal?.aborted) break;
    const file = await oneRun(options, machine, folder, run, index, plan.length, notify);
    if (!run.warmup) files.push(file);
  }
  return { folder, runs: files, canceled: options.signal?.aborted ?? false };
}

function noteBeforehand(options: StudyOptions, machine: MachineFacts, notify: (event: StudyEvent) => void): void {
  const shut = options.probe ? probeShutOut(options.command) : null;
  if (shut !== null) notify({ kind: "note", level: "warning", message: `the probe will be kept out: ${shut}` });
  const most = Math.max(...options.counts);
  const gpus = machine.devices?.length ?? 0;
  if (gpus === 0)
    notify({
      kind: "note",
      level: "info",
      message: "no GPU was found here: processor and memory are sampled, GPUs are not",
    });
  else if (most > gpus)
    notify({ kind: "note", level: "warning", message: `${most} devices were asked for and ${gpus} GPUs are here` });
}

async function oneRun(
  options: StudyOptions,
  machine: MachineFacts,
  folder: string,
  run: PlannedRun,
  index: number,
  of: number,
  notify: (event: StudyEvent) => void,
): Promise<RunFile> {
  const home = runHome(folder, run);
  const command = launcherRow(options.launcher).command(options.command, run.devices, options.site);
  const records = join(home, "records.jsonl");
  const write = (record: RunLogRecord): void => appendFileSync(records, formatRecord(record));
  const file: RunFile = {
    v: 1,
    id: run.id,
    devices: run.devices,
    repeat: run.repeat,
    order: run.order,
    command,
    startedAt: Date.now() / 1000,
    status: "running",
    machine,
  };
  if (run.warmup) mkdirSync(home, { recursive: true });
  else writeRunFile(folder, file);
  write({
    v: 1,
    type: "run",
    t: file.startedAt!,
    id: run.id,
    devices: run.devices,
    repeat: run.repeat,
    order: run.order,
    command,
    launcher: options.launcher,
    machine,
  });
  notify({ kind: "started", run, index, of, command });

  const mark = `${process.pid}-${Date.now()}-${run.id}`;
  const began = performance.now();
  const { pid, exit } = start({
    command,
    cwd: options.cwd,
    env: {
      ...options.env,
      ...(options.probe ? probeEnvironment(home, options.env) : {}),
      WEFT_DEVICES: String(run.devices),
      WEFT_TRACE_DIR: traceFolder(home),
    },
    stdout: join(home, "stdout.log"),
    stderr: join(home, "stderr.log"),
    mark,
  });
  const processes = new RunProcesses(mark, pid);
  const sampler = new Sampler(processes, options.sampleSeconds * 1000, write, (machine.devices?.length ?? 0) > 0);
  sampler.start();
  const witness = new MachineWitness({ own: () => processes.list(), gpus: (machine.devices?.length ?? 0) > 0 });
  let outcome: Outcome;
  try {
    outcome = await waitFor(exit, processes, options);
  } finally {
    sampler.stop();
    const { disturbance, ...seen } = witness.report();
    if (disturbance !== null) {
      write({
        v: 1,
        type: "event",
        t: Date.now() / 1000,
        name: "machine-disturbed",
        level: "warning",
        message: disturbance,
        data: seen,
      });
      notify({ kind: "note", run, level: "warning", message: `${run.id}: ${disturbance}` });
    }
  }
  const seconds = (performance.now() - began) / 1000;
  // Also after success: a process that outlives its run would take time from the next one.
  const left = processes.list().length;
  if (left > 0) {
    await endAll(processes, (options.graceSeconds ?? 5) * 1000);
    if (outcome.status === "ok")
      write({
        v: 1,
        type: "event",
        t: Date.now() / 1000,
        name: "left-behind",
        level: "warning",
        message: `${left} processes were still running when the command ended; they were stopped`,
      });
  }
  noteClockJump(file, seconds, write);
  const error = outcome.status === "ok" ? lastTraceback(join(home, "stderr.log")) : null;
  if (error !== null) {
    const message = `the command ended with exit code 0, but its error output holds a traceback: ${error}`;
    write({ v: 1, type: "event", t: Date.now() / 1000, name: "error-in-output", level: "warning", message });
    notify({ kind: "note", run, level: "warning", message: `${run.id}: ${message}` });
  }
  if (options.probe) {
    const message = probeMessage(probeState(home), command);
    if (message !== null && outcome.status === "ok") {
      write({ v: 1, type: "event", t: Date.now() / 1000, name: "probe-silent", level: "warning", message });
      notify({ kind: "note", run, level: "warning", message: `${run.id}: ${message}` });
    }
  }
  Object.assign(file, outcome, { endedAt: Date.now() / 1000, seconds });
  write({
    v: 1,
    type: "end",
    t: file.endedAt!,
    status: outcome.status,
    seconds,
    ...(outcome.exitCode === undefined ? {} : { exitCode: outcome.exitCode }),
    ...(outcome.signal === undefined ? {} : { signal: outcome.signal }),
    ...(outcome.message === undefined ? {} : { message: outcome.message }),
  });
  if (!run.warmup) writeRunFile(folder, file);
  notify({ kind: "ended", run, file, index, of });
  return file;
}

/** Warm-up runs have their own folder, so that they are never read as measurements. */
function runHome(folder: string, run: PlannedRun): string {
  const home = run.warmup ? join(folder, "warmup", run.id) : runFolder(folder, run.id);
  mkdirSync(home, { recursive: true });
  return home;
}

interface Outcome {
  status: "ok" | "failed" | "timeout" | "canceled";
  exitCode?: number;
  signal?: string;
  message?: string;
}

async function waitFor(exit: Promise<Exit>, processes: RunProcesses, options: StudyOptions): Promise<Outcome> {
  const grace = (options.graceSeconds ?? 5) * 1000;
  let timer: NodeJS.Timeout | undefined;
  const limit = new Promise<"timeout">((resolve) => {
    if (options.timeLimit !== undefined) timer = setTimeout(() => resolve("timeout"), options.timeLimit * 1000);
  });
  let onAbort = (): void => {};
  const aborted = new Promise<"canceled">((resolve) => {
    onAbort = () => resolve("canceled");
    if (options.signal?.aborted) resolve("canceled");
    else options.signal?.addEventListener("abort", onAbort, { once: true });
  });
  try {
    const first = await Promise.race([exit, limit, aborted]);
    if (first === "timeout" || first === "canceled") {
      await endAll(processes, grace);
      await Promise.race([exit, new Promise((resolve) => setTimeout(resolve, 2000))]);
      return first === "timeout"
        ? { status: "timeout", message: `stopped after its limit of ${options.timeLimit} s` }
        : { status: "canceled", message: "stopped by the user" };
    }
    return outcomeOf(first);
  } finally {
    clearTimeout(timer);
    options.signal?.removeEventListener("abort", onAbort);
  }
}

function outcomeOf(exit: Exit): Outcome {
  if (exit.error !== undefined) return { status: "failed", message: exit.error };
  if (exit.signal !== null)
    return { status: "failed", signal: exit.signal, message: `the command was ended by ${exit.signal}` };
  if (exit.code !== 0)
    return { status: "failed", exitCode: exit.code ?? 1, message: `the command ended with exit code ${exit.code}` };
  return { status: "ok", exitCode: 0 };
}

const jumpSeconds = 2;

/** Durations come from the monotonic clock; where the wall clock disagrees, wall times cannot be trusted. */
function noteClockJump(file: RunFile, seconds: number, write: (record: RunLogRecord) => void): void {
  const wall = Date.now() / 1000 - file.startedAt!;
  if (Math.abs(wall - seconds) > jumpSeconds)
    write({
      v: 1,
      type: "event",
      t: Date.now() / 1000,
      name: "clock-jump",
      level: "warning",
      message: `the wall clock moved by ${(wall - seconds).toFixed(1)} s against the monotonic one during this run; its wall times are off, its durations are not`,
    });
}
