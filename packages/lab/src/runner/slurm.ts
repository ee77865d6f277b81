// Runs studies through sbatch: writes one job script per run, submits them as a chain (no two runs overlap), follows them and
// collects their results. All state is in the study's folder, so that following can resume after a lost connection.
import { execFile } from "node:child_process";
import { appendFileSync, existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import {
  formatRecord,
  type MachineFacts,
  type RunFile,
  type RunLogRecord,
  type StudyFile,
} from "@weft/formats/internal";
import { launcherRow, nodesFor } from "./launchers.js";
import { describeMachine } from "./machine.js";
import { PlanError, type PlannedRun, runFolder, studyFilePath, writeJson, writeRunFile } from "./plan.js";
import { probeMessage, probeState } from "./probe.js";
import { jobScript } from "./slurm-script.js";
import { createStudy, type StudyEvent, type StudyOptions, type StudyResult } from "./study.js";

const run = promisify(execFile);

interface Submission {
  v: 1;
  probe: boolean;
  jobs: { id: string; job: string; planned: PlannedRun }[];
}

const submissionPath = (folder: string): string => join(folder, "slurm.json");

/** Writes the scripts (and with `submit` submits them). Returns the study's folder. */
export async function submitStudy(options: StudyOptions, submit = true): Promise<string> {
  const machine: MachineFacts = { ...describeMachine() };
  if (options.site.partition !== undefined) machine.slurmPartition = options.site.partition;
  const { folder, plan } = createStudy(options, machine);
  options.on?.({ kind: "study", folder, runs: plan.length });
  const submission: Submission = { v: 1, probe: options.probe, jobs: [] };
  let previous: string | null = null;
  for (const planned of plan) {
    const home = planned.warmup ? join(folder, "warmup", planned.id) : runFolder(folder, planned.id);
    mkdirSync(home, { recursive: true });
    const command = launcherRow("sbatch").command(options.command, planned.devices, options.site);
    const script = jobScript({
      name: `weft-${planned.id}`,
      home,
      cwd: options.cwd,
      command,
      devices: planned.devices,
      site: options.site,
      probe: options.probe,
      sampleSeconds: options.sampleSeconds,
      ...(options.timeLimit === undefined ? {} : { timeLimit: options.timeLimit }),
    });
    const path = join(home, "job.sh");
    writeFileSync(path, script, { mode: 0o755 });
    if (!submit) continue;
    const job = await sbatch(path, previous);
    previous = job;
    submission.jobs.push({ id: planned.id, job, planned });
    writeJson(submissionPath(folder), submission);
    const file: RunFile = {
      v: 1,
      id: planned.id,
      devices: planned.devices,
      repeat: planned.repeat,
      order: planned.order,
      command,
      nodes: nodesFor(planned.devices, options.site),
      status: "running",
      job,
    };
    if (!planned.warmup) writeRunFile(folder, file);
  }
  return folder;
}

async function sbatch(script: string, after: string | null): Promise<string> {
  const dependency = after === null ? [] : [`--dependency=afterany:${after}`];
  try {
    const { stdout } = await run("sbatch", ["--parsable", ...dependency, script]);
    return stdout.trim().split(";")[0];
  } catch (error) {
    const failure = error as NodeJS.ErrnoException & { stderr?: string };
    if (failure.code === "ENOENT") throw new PlanError("sbatch was not found: is this a machine with SLURM?");
    throw new PlanError(`sbatch refused ${script}: ${(failure.stderr ?? failure.message).trim()}`);
  }
}

/** Options of `followStudy`. */
export interface FollowOptions {
  on?: (event: StudyEvent) => void;
  signal?: AbortSignal;
  pollSeconds?: number;
}

/** Follows a submitted study until all its jobs have ended, and collects the results of each. */
export async function followStudy(folder: string, options: FollowOptions = {}): Promise<StudyResult> {
  if (!existsSync(submissionPath(folder)))
    throw new PlanError(`${folder} holds no submitted study (no slurm.json); name the folder that weft scale printed`);
  const submission = JSON.parse(readFileSync(submissionPath(folder), "utf8")) as Submission;
  const study = JSON.parse(readFileSync(studyFilePath(folder), "utf8")) as StudyFile;
  const notify = options.on ?? (() => {});
  const files: RunFile[] = [];
  const running = new Set<string>();
  const waiting = [...submission.jobs];
  while (waiting.length > 0) {
    if (options.signal?.aborted) {
      await cancel(waiting.map((entry) => entry.job));
      for (const entry of waiting) collect(folder, study, submission, entry, "CANCELLED", files, notify);
      return { folder, runs: files, canceled: true };
    }
    const states = await jobStates(waiting.map((entry) => entry.job));
    for (const entry of [...waiting]) {
      const state = states.get(entry.job) ?? "UNKNOWN";
      if (state === "RUNNING" && !running.has(entry.id)) {
        running.add(entry.id);
        notify({
          kind: "started",
          run: entry.planned,
          index: submission.jobs.indexOf(entry),
          of: submission.jobs.length,
          command: study.command,
        });
      }
      if (!ended(state)) continue;
      waiting.splice(waiting.indexOf(entry), 1);
      collect(folder, study, submission, entry, state, files, notify);
    }
    if (waiting.length > 0) await pause((options.pollSeconds ?? 2) * 1000, options.signal);
  }
  return { folder, runs: files, canceled: false };
}

function pause(ms: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal?.addEventListener(
      "abort",
      () => {
        clearTimeout(timer);
        resolve();
      },
      { once: true },
    );
  });
}

const unfinished = new Set([
  "PENDING",
  "RUNNING",
  "CONFIGURING",
  "COMPLETING",
  "SUSPENDED",
  "REQUEUED",
  "RESIZING",
  "STAGE_OUT",
  "SIGNALING",
]);
const ended = (state: string): boolean => !unfinished.has(state);

/** squeue lists pending and running jobs, scontrol recently ended ones; a job that neither lists has ended. */
async function jobStates(jobs: readonly string[]): Promise<Map<string, string>> {
  const states = new Map<string, string>();
  try {
    const { stdout } = await run("squeue", [
      "--noheader",
      "--states=all",
      "--format=%i %T",
      `--jobs=${jobs.join(",")}`,
    ]);
    for (const line of stdout.trim().split("\n")) {
      const [job, state] = line.trim().split(/\s+/);
      if (state !== undefined) states.set(job, state);
    }
  } catch (error) {
    const text = String((error as { stderr?: string }).stderr ?? "");
    // Purged jobs are "invalid"; any other error means that the controller did not answer.
    if (!/invalid job id/i.test(text)) return new Map(jobs.map((job) => [job, "PENDING"]));
  }
  for (const job of jobs) if (!states.has(job)) states.set(job, await finalState(job));
  return states;
}

async function finalState(job: string): Promise<string> {
  try {
    const { stdout } = await run("scontrol", ["show", "job", "--oneliner", job]);
    return /JobState=(\w+)/.exec(stdout)?.[1] ?? "UNKNOWN";
  } catch {
    return "UNKNOWN";
  }
}

async function cancel(jobs: readonly string[]): Promise<void> {
  try {
    await run("scancel", [...jobs]);
  } catch {
    // Jobs that have ended cannot be canceled.
  }
}

interface ExitFile {
  exitCode: number;
  startedAt: number;
  endedAt: number;
  stopped: number;
  host: string;
}

function readExit(home: string): ExitFile | null {
  try {
    return JSON.parse(readFileSync(join(home, "exit.json"), "utf8")) as ExitFile;
  } catch {
    return null;
  }
}

/** The outcome of a run from its SLURM state and, where it exists, its exit.json. */
function outcome(state: string, exit: ExitFile | null): Pick<RunFile, "status" | "exitCode" | "message"> {
  if (state === "CANCELLED") return { status: "canceled", message: "the job was canceled" };
  if (state === "TIMEOUT" || (exit?.stopped === 1 && state !== "COMPLETED"))
    return { status: "timeout", message: "the job reached its time limit" };
  if (exit === null)
    return state === "UNKNOWN"
      ? { status: "unknown", message: "SLURM no longer knows the job and it left no exit.json" }
      : { status: "failed", message: `the job ended as ${state} before its command did` };
  if (exit.exitCode !== 0)
    return { status: "failed", exitCode: exit.exitCode, message: `the command ended with exit code ${exit.exitCode}` };
  return { status: "ok", exitCode: 0 };
}

function collect(
  folder: string,
  study: StudyFile,
  submission: Submission,
  entry: Submission["jobs"][number],
  state: string,
  files: RunFile[],
  notify: (event: StudyEvent) => void,
): void {
  const planned = entry.planned;
  if (planned.warmup) return;
  const home = runFolder(folder, planned.id);
  const exit = readExit(home);
  const file = JSON.parse(readFileSync(join(home, "run.json"), "utf8")) as RunFile;
  Object.assign(file, outcome(state, exit));
  if (exit !== null)
    Object.assign(file, { startedAt: exit.startedAt, endedAt: exit.endedAt, seconds: exit.endedAt - exit.startedAt });
  if (file.machine === undefined && exit !== null)
    file.machine = {
      host: exit.host,
      ...(study.machine?.slurmPartition === undefined ? {} : { slurmPartition: study.machine.slurmPartition }),
    };
  const records = join(home, "records.jsonl");
  if (!existsSync(records)) {
    const lines: RunLogRecord[] = [
      {
        v: 1,
        type: "run",
        id: planned.id,
        devices: planned.devices,
        repeat: planned.repeat,
        order: planned.order,
        command: file.command,
        launcher: "sbatch",
      },
    ];
    if (submission.probe && file.status === "ok") {
      const message = probeMessage(probeState(home), file.command);
      if (message !== null) {
        lines.push({ v: 1, type: "event", name: "probe-silent", level: "warning", message });
        notify({ kind: "note", run: planned, level: "warning", message: `${planned.id}: ${message}` });
      }
    }
    appendFileSync(records, lines.map(formatRecord).join(""));
    if (existsSync(join(home, "samples.jsonl"))) appendFileSync(records, readFileSync(join(home, "samples.jsonl")));
    const end: RunLogRecord = { v: 1, type: "end", status: file.status === "running" ? "unknown" : file.status };
    if (file.seconds !== undefined) end.seconds = file.seconds;
    if (file.exitCode !== undefined) end.exitCode = file.exitCode;
    if (file.message !== undefined) end.message = file.message;
    appendFileSync(records, formatRecord(end));
  }
  writeRunFile(folder, file);
  files.push(file);
  notify({ kind: "ended", run: planned, file, index: submission.jobs.indexOf(entry), of: submission.jobs.length });
}
