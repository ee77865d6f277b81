// Plans a study: its runs, their order and their folders.
import { mkdirSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { RunFile, StudyFile } from "@weft/formats";

/** One run of a planned study. */
export interface PlannedRun {
  id: string;
  devices: number;
  repeat: number;
  order: number;
  /** Warm-up run before the measured ones; not part of the study. */
  warmup: boolean;
}

/** A study that cannot be planned or submitted; the message names the remedy. */
export class PlanError extends Error {}

/**
 * Plans the runs. Every repeat covers all counts, and every second one in reverse order, so that a slow drift of the machine
 * biases no count.
 */
export function planRuns(counts: readonly number[], repeats: number, warmupRuns = 0): PlannedRun[] {
  if (counts.length === 0) throw new PlanError("no device counts were given; write --devices 1,2,4");
  const sorted = [...new Set(counts)].sort((a, b) => a - b);
  for (const count of sorted)
    if (!Number.isInteger(count) || count < 1) throw new PlanError(`${count} is not a device count`);
  if (!Number.isInteger(repeats) || repeats < 1)
    throw new PlanError(`--repeats ${repeats} is not a count of 1 or more`);
  const runs: PlannedRun[] = [];
  for (let i = 0; i < warmupRuns; i++)
    runs.push({ id: `warmup${i}`, devices: sorted[0], repeat: i, order: runs.length, warmup: true });
  for (let repeat = 0; repeat < repeats; repeat++)
    for (const devices of repeat % 2 === 0 ? sorted : [...sorted].reverse())
      runs.push({ id: `n${devices}-r${repeat}`, devices, repeat, order: runs.length, warmup: false });
  return runs;
}

/** `{n}` in any argument becomes the device count. */
export function fillTemplate(command: readonly string[], devices: number): string[] {
  return command.map((part) => part.replaceAll("{n}", String(devices)));
}

export function checkTemplate(
  command: readonly string[],
  counts: readonly number[],
  launcherPlacesCount: boolean,
): void {
  if (command.length === 0)
    throw new PlanError("no command was given; write it behind --, e.g. weft scale --devices 1,2 -- ./job {n}");
  if (!launcherPlacesCount && counts.length > 1 && !command.some((part) => part.includes("{n}")))
    throw new PlanError(
      `the command has no {n}, so it would run the same way at every count; put {n} where the device count belongs: ${command.join(" ")}`,
    );
}

/** Creates a new folder for a study. If the name is taken, a number is appended. */
export function createStudyFolder(parent: string, name: string): string {
  if (!/^[^/\\\p{Cc}]+$/u.test(name) || /^\.*$/.test(name) || Buffer.byteLength(name) > 200)
    throw new PlanError(
      `--name ${JSON.stringify(name.slice(0, 80))} is not the name of a folder: up to 200 bytes, without / and control characters`,
    );
  try {
    mkdirSync(parent, { recursive: true });
  } catch (error) {
    throw new PlanError(`${parent} is not a folder that studies can be written to: ${(error as Error).message}`);
  }
  for (let i = 1; i < 1000; i++) {
    const folder = join(parent, i === 1 ? name : `${name}-${i}`);
    try {
      mkdirSync(folder);
      mkdirSync(join(folder, "runs"));
      return folder;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
    }
  }
  throw new PlanError(`${join(parent, name)} and 999 names after it are taken`);
}

/** 2026-11-15T10-21-05 in local time: sorts by time and is a valid file name everywhere. */
export function studyName(now: Date): string {
  const two = (value: number): string => String(value).padStart(2, "0");
  const day = `${now.getFullYear()}-${two(now.getMonth() + 1)}-${two(now.getDate())}`;
  return `${day}T${two(now.getHours())}-${two(now.getMinutes())}-${two(now.getSeconds())}`;
}

/** Writes JSON atomically. */
export function writeJson(path: string, value: unknown): void {
  const temporary = `${path}.${process.pid}.tmp`;
  writeFileSync(temporary, `${JSON.stringify(value, null, 1)}\n`);
  renameSync(temporary, path);
}

export const studyFilePath = (folder: string): string => join(folder, "study.json");
export const runFolder = (folder: string, id: string): string => join(folder, "runs", id);

/** The folder for the traces of a run (WEFT_TRACE_DIR). */
export const traceFolder = (home: string): string => join(home, "traces");

export function writeStudyFile(folder: string, study: StudyFile): void {
  writeJson(studyFilePath(folder), study);
}

export function writeRunFile(folder: string, run: RunFile): void {
  writeJson(join(runFolder(folder, run.id), "run.json"), run);
}
