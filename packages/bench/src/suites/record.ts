// The format of result files: when and on what a suite ran, and per row every contestant's samples, medians and ratios.
import { existsSync, mkdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import type { Hardware, Spread } from "../harness/index.js";

const packageRoot = fileURLToPath(new URL("../../", import.meta.url));

/** Root of the checkout: above this package, or the working directory where only built packages were copied. */
export const repository = existsSync(join(packageRoot, "../../bench/results"))
  ? join(packageRoot, "../..")
  : process.cwd();

/** Scripts of the peers. A checkout has them; a built package that is copied elsewhere may not. */
export const peerFolder = [join(packageRoot, "peers"), join(repository, "packages/bench/peers")].find(existsSync) ?? "";

export const resultFolder = join(repository, "bench/results");

/** Samples of one round in milliseconds, and the share of the cores that other processes used meanwhile. */
export interface RoundSamples {
  samples: number[];
  foreign: number;
}

export interface ContestantTimes {
  ms: number;
  spread?: Spread;
  rounds?: RoundSamples[];
  /** Facts that the contestant reports: kernels, a profile, the seconds of the first call. */
  info?: Record<string, unknown>;
  check?: unknown;
  /** Cold starts: one entry per process. */
  starts?: { peakBytes: number }[];
  /** Date of an earlier run that the time was taken from. */
  measured?: string;
}

export interface TimeRatio {
  name: string;
  /** The peer's time divided by Weft's; above 1 Weft is faster. */
  ratio: number;
  min?: number;
  max?: number;
  /** Required ratio; null where the ratio is only reported. */
  wanted: number | null;
  met: boolean | null;
}

export interface RowResult {
  id: string;
  title: string;
  /** Why the result is wrong; a wrong result has no time. */
  wrong: string | null;
  /** Contestants that did not run, with the reason. */
  problems: Record<string, string>;
  times: Record<string, ContestantTimes>;
  ratios: Record<string, TimeRatio>;
  limit?: { ms: number; met: boolean };
  flops?: number;
  bytes?: number;
  /** Figures that others published for the same work on their own hardware. */
  published?: PublishedFigures;
}

export type PublishedFigures = { by: string } & Record<string, string | number>;

/** What every result file starts with. */
export interface RecordHead {
  kind: string;
  device: string;
  at: string;
  hardware: Hardware & { gpu?: string };
  versions: Record<string, unknown>;
  settings: Record<string, unknown>;
  absent: Record<string, string>;
}

export interface ContestRecord extends RecordHead {
  rows: RowResult[];
}

/** JSON with five digits per number and lists of numbers on one line, without the path of the checkout. */
export function recordText(value: unknown): string {
  const rounded = (_: string, v: unknown): unknown =>
    typeof v === "number" && !Number.isInteger(v) ? Number(v.toPrecision(5)) : v;
  const text = JSON.stringify(value, rounded, 1);
  const root = join(repository, "/");
  return `${text.replace(/\[\n[\s\d.,e+-]+\]/g, (list) => list.replace(/\s+/g, "")).replaceAll(root, "")}\n`;
}

/** Writes a record; suites call this after every row, so that an interrupted run loses no finished row. */
export function saveRecord(path: string | null, record: unknown): void {
  if (path === null) return;
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, recordText(record));
}

/**
 * Checks a record of any suite: the head is complete, every number is finite (JSON has null for NaN), and no list of
 * samples is empty.
 *
 * @returns what is wrong, one line per problem
 */
export function recordProblems(value: unknown): string[] {
  const problems: string[] = [];
  const record = value as Partial<RecordHead>;
  for (const key of ["kind", "device", "at"] as const)
    if (typeof record?.[key] !== "string" || record[key] === "") problems.push(`${key} is missing`);
  if (Number.isNaN(Date.parse(record?.at ?? ""))) problems.push(`at is no date: ${record?.at}`);
  for (const key of ["hardware", "versions", "settings", "absent"] as const)
    if (typeof record?.[key] !== "object" || record[key] === null) problems.push(`${key} is missing`);
  const timeKey = /^(ms|median|samples|.*(Ms|Seconds|seconds))$/;
  const walk = (at: unknown, path: string): void => {
    if (typeof at === "number" && !Number.isFinite(at)) problems.push(`${path} is ${at}`);
    if (Array.isArray(at) && at.length === 0 && /(^|\.)(samples|rounds)$/.test(path)) problems.push(`${path} is empty`);
    if (typeof at !== "object" || at === null) return;
    for (const [key, inner] of Object.entries(at)) {
      if (inner === null && timeKey.test(key)) problems.push(`${path}.${key} has no value`);
      walk(inner, path === "" ? key : `${path}.${key}`);
    }
  };
  walk(value, "");
  return problems;
}
