// Imports study.yaml: which run directories make up which study, and what is known of the work. Unknown keys are reported,
// because a misspelled `batch_per_rank` would silently disable the most important check.
import { existsSync, statSync } from "node:fs";
import { basename, join } from "node:path";
import {
  describeIssue,
  describeUnknownKeys,
  type Workload,
  workloadKeys,
  type YamlRun,
  type YamlStudy,
  yamlRunSchema,
  yamlStudySchema,
} from "@weft/formats/internal";
import { emptyRun, type Run, type Study } from "../model/index.js";
import { ImportError, ProblemLog } from "./lines.js";
import { readMetricsCsv } from "./metrics-csv.js";
import { adoptFacts, readRecords } from "./records.js";

/** The fields of a study or a run that describe its work. */
function readWorkload(fields: YamlStudy | YamlRun): Workload {
  return Object.fromEntries(
    Object.entries(workloadKeys).flatMap(([key, [field]]) => {
      const value = fields[key as keyof typeof workloadKeys];
      return value === undefined || value === null ? [] : [[field, value]];
    }),
  );
}

function addMachine(study: YamlStudy, fields: YamlRun, run: Run): void {
  const cores = fields.cores ?? study.cores ?? undefined;
  const devicesPerNode = fields.devices_per_node ?? study.devices_per_node ?? undefined;
  const loaderWorkers = fields.loader_workers ?? study.loader_workers ?? undefined;
  if (cores !== undefined || devicesPerNode !== undefined)
    run.machine = {
      ...run.machine,
      ...(cores !== undefined && { cores }),
      ...(devicesPerNode !== undefined && { devicesPerNode }),
    };
  if (loaderWorkers === undefined) return;
  if (run.ranks.length === 0) run.ranks.push({ rank: 0, facts: {} });
  for (const info of run.ranks) info.facts.loaderWorkers ??= loaderWorkers;
}

/** The file that holds a run's measurements. */
function measurements(base: string): string | null {
  if (!existsSync(base)) return null;
  if (statSync(base).isFile()) return base;
  return ["metrics.csv", "records.jsonl"].map((name) => join(base, name)).find(existsSync) ?? null;
}

interface Place {
  /** Directory that the paths of the file are relative to. */
  root: string;
  path: string;
  /** Position in the file, for messages. */
  where: string;
  problems: ProblemLog;
}

function noteUnknownKeys(schema: typeof yamlRunSchema | typeof yamlStudySchema, value: object, place: Place): void {
  for (const { key, message } of describeUnknownKeys(schema, value))
    place.problems.add(place.path, `unknown-key:${key}`, `${place.where}: ${message}`);
}

function readRun(fields: YamlRun, study: YamlStudy, { root, path, where, problems }: Place): Run | null {
  const place = fields.dir ?? fields.file ?? null;
  if (place === null) throw new ImportError(`${path}: ${where}: needs dir (a directory with metrics.csv) or file`);
  const source = measurements(join(root, place));
  if (source === null) {
    problems.add(
      path,
      `missing-run:${place}`,
      `${where}: ${join(root, place)} has no metrics.csv or records.jsonl; run left out`,
    );
    return null;
  }
  const id = fields.id ?? basename(place);
  const csv = source.endsWith(".csv");
  const run = emptyRun(id, fields.devices, { kind: csv ? "metrics.csv" : "jsonl", path: source });
  const own = new ProblemLog();
  if (csv) run.epochs = readMetricsCsv(source, own).epochs;
  else readRecords(source, run, own);
  run.id = id;
  run.devices = fields.devices;
  run.problems.push(...own.list());
  if (fields.nodes !== undefined) run.nodes = fields.nodes;
  if (typeof fields.label === "string") run.label = fields.label;
  run.workload = { ...run.workload, ...readWorkload(study), ...readWorkload(fields) };
  addMachine(study, fields, run);
  adoptFacts(run);
  if (run.status === "unknown" && run.epochs.length + run.steps.length > 0) run.status = "ok";
  return run;
}

/**
 * Reads the studies of a study.yaml.
 *
 * @param value The parsed YAML.
 * @param root The directory that its paths are relative to.
 * @param path The file, for messages.
 */
export function studiesFromYaml(value: unknown, root: string, path: string): Study[] {
  const list = (value as { studies?: unknown } | null)?.studies;
  if (!Array.isArray(list))
    throw new ImportError(
      `${path}: expected "studies:" with a list of {name, samples, batch_per_rank, runs: [{dir, devices}]}`,
    );
  return list.map((entry: unknown, i): Study => {
    const name = (entry as { name?: unknown } | null)?.name;
    const where = `study ${typeof name === "string" ? name : i + 1}`;
    const parsed = yamlStudySchema.safeParse(entry);
    if (!parsed.success) throw new ImportError(`${path}: ${where}: ${describeIssue(parsed.error, entry)}`);
    const study = parsed.data;
    const problems = new ProblemLog();
    noteUnknownKeys(yamlStudySchema, entry as object, { root, path, where, problems });
    const runs = (study.runs ?? []).flatMap((fields, k): Run[] => {
      const place = { root, path, where: `${where}, run ${k + 1}`, problems };
      noteUnknownKeys(yamlRunSchema, (entry as { runs: object[] }).runs[k], place);
      const run = readRun(fields, study, place);
      return run === null ? [] : [run];
    });
    if (runs.length === 0) problems.add(path, "empty-study", `${where}: no runs`);
    const { warmup } = study;
    return {
      name: study.name ?? where,
      path,
      runs,
      ...(typeof warmup === "number" && { warmup }),
      problems: problems.list(),
    };
  });
}
