// Imports record files (docs/lab-format.md) into a run. An unfinished last line, an unknown record or an impossible time is
// left out and counted.
import { parseRecord, type RunLogRecord, type Workload, workloadSchema } from "@weft/formats/internal";
import type { RankInfo, Run } from "../model/index.js";
import { type ProblemLog, readLines } from "./lines.js";

/** Ranks of a run by number, so that a file of many ranks is read in linear time. */
const rankTables = new WeakMap<Run, Map<number, RankInfo>>();

function rankOf(run: Run, rank: number): RankInfo {
  let table = rankTables.get(run);
  if (table === undefined) {
    table = new Map(run.ranks.map((r) => [r.rank, r]));
    rankTables.set(run, table);
  }
  let info = table.get(rank);
  if (info === undefined) {
    info = { rank, facts: {} };
    table.set(rank, info);
    run.ranks.push(info);
  }
  return info;
}

interface Target {
  run: Run;
  path: string;
  line: number;
  problems: ProblemLog;
  /** Rank of the file, for records without a rank. */
  rank: number | undefined;
}

type Taker<T extends RunLogRecord["type"]> = (record: Extract<RunLogRecord, { type: T }>, target: Target) => void;

/** A copy without the envelope fields. */
function body<T extends object>(record: T): Omit<T, "v" | "type" | "t"> {
  const { v, type, t, ...rest } = record as T & { v: unknown; type: unknown; t: unknown };
  return rest as Omit<T, "v" | "type" | "t">;
}

const takers: { [T in RunLogRecord["type"]]: Taker<T> } = {
  run: (record, { run }) => {
    const { devices, nodes, repeat, order, command, launcher, machine, workload, label } = record;
    if (devices >= 1) run.devices = devices;
    Object.assign(run, {
      id: record.id,
      ...(label !== undefined && { label }),
      ...(nodes !== undefined && { nodes }),
      ...(repeat !== undefined && { repeat }),
      ...(order !== undefined && { order }),
      ...(command !== undefined && { command }),
      ...(launcher !== undefined && { launcher }),
      ...(machine !== undefined && { machine }),
      ...(record.t !== undefined && { startedAt: record.t }),
    });
    Object.assign(run.workload, workload);
  },
  rank: (record, { run }) => {
    Object.assign(rankOf(run, record.rank), body(record));
  },
  facts: (record, { run, rank }) => {
    const info = rankOf(run, record.rank ?? rank ?? 0);
    Object.assign(info.facts, record.facts);
  },
  step: (record, { run, path, line, problems }) => {
    if (record.durationUs <= 0) {
      problems.add(path, "negative-time", `step left out: ${record.durationUs} us is not a duration`, line);
      return;
    }
    run.steps.push(body(record));
  },
  epoch: (record, { run, path, line, problems, rank }) => {
    if (record.seconds <= 0) {
      problems.add(path, "negative-time", `epoch left out: ${record.seconds} s is not a duration`, line);
      return;
    }
    if (record.t !== undefined) {
      const { from, until } = run.training ?? { from: record.t, until: record.t };
      run.training = { from: Math.min(from, record.t - record.seconds), until: Math.max(until, record.t) };
    }
    const writer = record.rank ?? rank;
    run.epochs.push({ ...body(record), line, ...(writer !== undefined && { rank: writer }) });
  },
  sample: (record, { run }) => {
    run.samples.push({
      t: record.t,
      ...(record.host !== undefined && { host: record.host }),
      ...(record.devices !== undefined && { devices: record.devices }),
    });
  },
  event: (record, { run, rank }) => {
    const writer = record.rank ?? rank;
    run.events.push({
      name: record.name,
      level: record.level ?? "info",
      ...(record.t !== undefined && { t: record.t }),
      ...(writer !== undefined && { rank: writer }),
      ...(record.message !== undefined && { message: record.message }),
      ...(record.data !== undefined && { data: record.data }),
    });
  },
  end: (record, { run, rank }) => {
    const writer = record.rank ?? rank;
    if (record.figures !== undefined) run.figures = { ...run.figures, ...record.figures };
    // The end record of a rank describes that rank; only the runner's end record describes the run.
    if (writer !== undefined && run.status !== "unknown") return;
    if (writer !== undefined && record.status === "ok") return;
    run.status = record.status;
    if (record.exitCode !== undefined) run.exitCode = record.exitCode;
    if (record.seconds !== undefined && writer === undefined) run.seconds = record.seconds;
    if (record.message !== undefined) run.message = record.message;
  },
};

/** Reads one record file into a run; returns the number of records. */
export function readRecords(path: string, run: Run, problems: ProblemLog, rank?: number): number {
  let taken = 0;
  for (const { text, number, complete } of readLines(path)) {
    if (text.trim() === "") continue;
    const parsed = parseRecord(text);
    if (!parsed.ok) {
      const half = !complete && parsed.problem === "not valid JSON";
      problems.add(
        path,
        half ? "truncated-line" : "bad-record",
        half ? "half-written last line left out" : parsed.problem,
        number,
      );
      continue;
    }
    for (const field of parsed.dropped)
      problems.add(path, "bad-field", `${field} of a ${parsed.record.type} record left out: not a valid value`, number);
    (takers[parsed.record.type] as Taker<RunLogRecord["type"]>)(parsed.record as never, {
      run,
      path,
      line: number,
      problems,
      rank,
    });
    taken++;
  }
  return taken;
}

/** Number of processes that shared the work, where the records say it. */
function processesOf(run: Run): number | undefined {
  const sizes = run.ranks.flatMap((r) => r.worldSize ?? r.facts.worldSize ?? []);
  if (sizes.length > 0) return sizes.reduce((a, b) => Math.max(a, b));
  // The probe finds no world size in a process that was started by no launcher: it is the only one.
  return run.ranks.length === 1 && run.ranks[0]!.facts.framework !== undefined ? 1 : undefined;
}

/** Fills in missing workload fields from the facts of rank 0 (or of the first rank that wrote). */
export function adoptFacts(run: Run): void {
  run.ranks.sort((a, b) => a.rank - b.rank);
  const facts = run.ranks[0]?.facts;
  if (facts === undefined) return;
  const processes = processesOf(run);
  if (processes !== undefined && processes > 0) run.processes = processes;
  const workload = run.workload as Record<string, unknown>;
  for (const key of Object.keys(workloadSchema.shape) as (keyof Workload)[])
    if (workload[key] === undefined && facts[key] !== undefined) workload[key] = facts[key];
}
