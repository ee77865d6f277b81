// Imports the directory of `weft scale` (study.json, runs/ID/...) as a study. Interrupted runs, ranks without records and
// unfinished lines are reported.
import { existsSync, readdirSync, statSync } from "node:fs";
import { basename, join } from "node:path";
import { lenientParser, type RunFile, runFileSchema, type StudyFile, studyFileSchema } from "@weft/formats/internal";
import { listSome } from "@weft/formats/text";
import { emptyRun, type Run, type Study } from "../model/index.js";
import { ImportError, ProblemLog, readImport } from "./lines.js";
import { readMetricsCsv } from "./metrics-csv.js";
import { adoptFacts, readRecords } from "./records.js";

/** Reads a JSON file, with or without the byte order mark of Windows programs; an error names the file. */
export function readJsonFile(path: string): unknown {
  const text = readImport(path)
    .toString("utf8")
    .replace(/^\ufeff/, "");
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new ImportError(`${path}: not valid JSON (${(error as Error).message})`);
  }
}

const parseRunFile = lenientParser(runFileSchema.partial());
const parseStudyFile = lenientParser(studyFileSchema.partial());

/** Reads run.json; fields that cannot be used are left out and reported. */
function readRunFile(path: string, problems: ProblemLog): Partial<RunFile> {
  const parsed = parseRunFile(readJsonFile(path));
  if (!parsed.ok) throw new ImportError(`${path}: not a JSON object`);
  for (const field of parsed.dropped) problems.add(path, "bad-field", `${field} left out: not a valid value`);
  return parsed.value;
}

/** Reads study.json; fields that cannot be used are left out and reported. */
function readStudyFile(path: string, problems: ProblemLog): Partial<StudyFile> {
  const parsed = parseStudyFile(readJsonFile(path));
  if (!parsed.ok || parsed.value.v !== 1) throw new ImportError(`${path}: not a study file of version 1`);
  for (const field of parsed.dropped) problems.add(path, "bad-field", `${field} left out: not a valid value`);
  return parsed.value;
}

const rankFile = /^rank(\d+)\.jsonl$/;

/** Reads one run directory. `study` gives defaults; a run directory is also readable without its study. */
export function readScaleRun(directory: string, study: Partial<StudyFile> = {}): Run {
  const problems = new ProblemLog();
  const id = basename(directory);
  const file = join(directory, "run.json");
  let head: Partial<RunFile> = {};
  if (existsSync(file))
    try {
      head = readRunFile(file, problems);
    } catch (error) {
      problems.add(file, "bad-record", (error as Error).message);
    }
  const run = emptyRun(head.id ?? id, head.devices ?? 0, { kind: "scale", path: directory });
  Object.assign(run.workload, study.workload, head.workload);
  if (study.machine !== undefined || head.machine !== undefined) run.machine = { ...study.machine, ...head.machine };
  for (const key of ["repeat", "order", "command", "nodes", "startedAt", "seconds", "exitCode", "message"] as const)
    if (head[key] !== undefined) Object.assign(run, { [key]: head[key] });
  if (study.launcher !== undefined) run.launcher = study.launcher;
  // A pipe or a folder under the name of a file is no record: reading one would fail or never end.
  const names = readdirSync(directory).filter(
    (name) => statSync(join(directory, name), { throwIfNoEntry: false })?.isFile() === true,
  );
  if (names.includes("records.jsonl")) readRecords(join(directory, "records.jsonl"), run, problems);
  const ranks = names.flatMap((name) => {
    const match = rankFile.exec(name);
    return match === null ? [] : [Number(match[1])];
  });
  for (const rank of ranks.sort((a, b) => a - b))
    readRecords(join(directory, `rank${rank}.jsonl`), run, problems, rank);
  if (names.includes("metrics.csv") && run.epochs.length === 0)
    run.epochs = readMetricsCsv(join(directory, "metrics.csv"), problems).epochs;
  if (head.status === "running" && run.status === "unknown") {
    problems.add(file, "cut-off", "the run never wrote its end: it was cut off, or still runs");
  } else if (head.status !== undefined && head.status !== "running") run.status = head.status;
  if (!(run.devices >= 1)) {
    const world = run.ranks.find((r) => r.worldSize !== undefined)?.worldSize;
    if (world === undefined) {
      problems.add(file, "no-devices", "neither run.json nor a record says how many devices; run left out");
      return Object.assign(run, { problems: problems.list(), devices: 0 });
    }
    run.devices = world;
  }
  adoptFacts(run);
  const present = new Set(ranks);
  const expected = Math.max(run.processes ?? run.devices, ranks.length);
  const missing =
    ranks.length === 0 ? [] : Array.from({ length: expected }, (_, k) => k).filter((k) => !present.has(k));
  if (missing.length > 0)
    problems.add(directory, "missing-ranks", `no records of rank ${listSome(missing)} of ${expected}`);
  run.problems = problems.list();
  return run;
}

/** Reads the directory of `weft scale` as a study. */
export function studyFromScaleDirectory(directory: string): Study {
  const path = join(directory, "study.json");
  const problems = new ProblemLog();
  const head = readStudyFile(path, problems);
  const home = join(directory, "runs");
  const directories = existsSync(home)
    ? readdirSync(home, { withFileTypes: true }).filter((entry) => entry.isDirectory())
    : [];
  const runs = directories
    .map((entry) => readScaleRun(join(home, entry.name), head))
    .flatMap((run) => {
      if (run.devices >= 1) return [run];
      for (const p of run.problems) problems.add(p.file, p.id, p.message, p.line);
      return [];
    })
    .sort((a, b) => (a.order ?? 0) - (b.order ?? 0) || a.devices - b.devices);
  // A copied folder still has the id of the run that it was copied from.
  const seen = new Set<string>();
  for (const run of runs) {
    if (seen.has(run.id)) run.id = basename(run.source.path);
    seen.add(run.id);
  }
  if (runs.length === 0) problems.add(path, "empty-study", "no runs");
  for (const count of head.counts ?? [])
    if (!runs.some((run) => run.devices === count))
      problems.add(path, `missing-count:${count}`, `no run at ${count} devices, though the study asked for it`);
  return {
    name: head.name ?? basename(directory),
    path: directory,
    runs,
    ...(head.warmup !== undefined && { warmup: head.warmup }),
    ...(head.machine !== undefined && { machine: head.machine }),
    ...(head.command !== undefined && { command: head.command }),
    ...(head.launcher !== undefined && { launcher: head.launcher }),
    problems: problems.list(),
  };
}
