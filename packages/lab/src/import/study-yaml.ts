// study.yaml: which run directories make up which study, and what is known of the work. Every key is checked, because a
// mistyped `batch_per_rank` would silently switch off the most important check.
import { existsSync, statSync } from "node:fs";
import { basename, join } from "node:path";
import { emptyRun, type Run, type Study, type Workload } from "../model/index.js";
import { ImportError, ProblemLog } from "./lines.js";
import { readMetricsCsv } from "./metrics-csv.js";
import { adoptFacts, readRecords } from "./records.js";

type Kind = "count" | "number" | "string" | "boolean";

/** YAML key -> field of Workload, and what it must be. */
const workloadKeys: Record<string, { field: keyof Workload; kind: Kind }> = {
  dataset: { field: "dataset", kind: "string" },
  samples: { field: "datasetSamples", kind: "count" },
  batch_per_rank: { field: "batchPerRank", kind: "count" },
  accumulation: { field: "accumulation", kind: "count" },
  steps_per_epoch: { field: "stepsPerEpoch", kind: "count" },
  drop_last: { field: "dropLast", kind: "boolean" },
  sequence_length: { field: "sequenceLength", kind: "count" },
  model: { field: "model", kind: "string" },
  parameters: { field: "parameters", kind: "count" },
  gradient_bytes: { field: "gradientBytes", kind: "count" },
  precision: { field: "precision", kind: "string" },
  learning_rate: { field: "learningRate", kind: "number" },
  optimizer: { field: "optimizer", kind: "string" },
  seed: { field: "seed", kind: "number" },
  scaling: { field: "scaling", kind: "string" },
};
const machineKeys: Record<string, Kind> = { cores: "count", devices_per_node: "count", loader_workers: "count" };
const studyKeys = ["name", "runs", "warmup", ...Object.keys(workloadKeys), ...Object.keys(machineKeys)];
const runKeys = [
  "dir",
  "file",
  "devices",
  "nodes",
  "id",
  "label",
  ...Object.keys(workloadKeys),
  ...Object.keys(machineKeys),
];

const isKind: Record<Kind, (value: unknown) => boolean> = {
  count: (value) => Number.isInteger(value) && (value as number) >= 0,
  number: (value) => typeof value === "number" && Number.isFinite(value),
  string: (value) => typeof value === "string",
  boolean: (value) => typeof value === "boolean",
};

type Fields = Record<string, unknown>;
const isFields = (value: unknown): value is Fields =>
  typeof value === "object" && value !== null && !Array.isArray(value);

function nearest(key: string, known: readonly string[]): string {
  const plain = (s: string) => s.toLowerCase().replaceAll(/[^a-z]/g, "");
  const same = known.find(
    (k) => plain(k) === plain(key) || plain(k).startsWith(plain(key)) || plain(key).startsWith(plain(k)),
  );
  return same === undefined ? `known keys: ${known.join(", ")}` : `did you mean ${same}?`;
}

function checkKeys(fields: Fields, known: readonly string[], where: string, path: string, problems: ProblemLog): void {
  for (const key of Object.keys(fields))
    if (!known.includes(key))
      problems.add(path, `unknown-key:${key}`, `${where}: ${key} is not a key here; ${nearest(key, known)}`);
}

function readWorkload(fields: Fields, where: string, path: string): Workload {
  const workload: Fields = {};
  for (const [key, { field, kind }] of Object.entries(workloadKeys)) {
    const value = fields[key];
    if (value === undefined || value === null) continue;
    if (!isKind[kind](value))
      throw new ImportError(`${path}: ${where}: ${key} must be a ${kind}, is ${JSON.stringify(value)}`);
    workload[field] = value;
  }
  if (workload["scaling"] !== undefined && workload["scaling"] !== "strong" && workload["scaling"] !== "weak")
    throw new ImportError(
      `${path}: ${where}: scaling must be strong or weak, is ${JSON.stringify(workload["scaling"])}`,
    );
  return workload as Workload;
}

function readMachine(fields: Fields, run: Run, where: string, path: string): void {
  for (const [key, kind] of Object.entries(machineKeys))
    if (fields[key] !== undefined && !isKind[kind](fields[key]))
      throw new ImportError(`${path}: ${where}: ${key} must be a ${kind}, is ${JSON.stringify(fields[key])}`);
  const { cores, devices_per_node: devicesPerNode, loader_workers: loaderWorkers } = fields;
  if (cores !== undefined || devicesPerNode !== undefined)
    run.machine = {
      ...run.machine,
      ...(cores !== undefined && { cores: cores as number }),
      ...(devicesPerNode !== undefined && { devicesPerNode: devicesPerNode as number }),
    };
  if (loaderWorkers === undefined) return;
  for (let rank = 0; rank < run.devices; rank++) {
    const info = run.ranks.find((r) => r.rank === rank);
    if (info === undefined) run.ranks.push({ rank, facts: { loaderWorkers: loaderWorkers as number } });
    else info.facts.loaderWorkers ??= loaderWorkers as number;
  }
}

/** The file that holds a run's measurements. */
function measurements(base: string): string | null {
  if (!existsSync(base)) return null;
  if (statSync(base).isFile()) return base;
  return ["metrics.csv", "records.jsonl"].map((name) => join(base, name)).find(existsSync) ?? null;
}

function readRun(
  fields: Fields,
  study: Fields,
  root: string,
  path: string,
  where: string,
  problems: ProblemLog,
): Run | null {
  checkKeys(fields, runKeys, where, path, problems);
  const place = fields["dir"] ?? fields["file"];
  if (typeof place !== "string")
    throw new ImportError(`${path}: ${where}: needs dir (a directory with metrics.csv) or file`);
  const devices = fields["devices"];
  if (!Number.isInteger(devices) || (devices as number) < 1)
    throw new ImportError(
      `${path}: ${where} (${place}): devices must be a positive integer, is ${JSON.stringify(devices)}`,
    );
  const nodes = fields["nodes"];
  if (nodes !== undefined && !(Number.isInteger(nodes) && (nodes as number) >= 1))
    throw new ImportError(
      `${path}: ${where} (${place}): nodes must be a positive integer, is ${JSON.stringify(nodes)}`,
    );
  const source = measurements(join(root, place));
  if (source === null) {
    problems.add(
      path,
      `missing-run:${place}`,
      `${where}: ${join(root, place)} has no metrics.csv or records.jsonl; run left out`,
    );
    return null;
  }
  const id = typeof fields["id"] === "string" ? fields["id"] : basename(place);
  const csv = source.endsWith(".csv");
  const run = emptyRun(id, devices as number, { kind: csv ? "metrics.csv" : "jsonl", path: source });
  const own = new ProblemLog();
  if (csv) run.epochs = readMetricsCsv(source, own).epochs;
  else readRecords(source, run, own);
  run.id = id;
  run.devices = devices as number;
  run.problems.push(...own.list());
  if (nodes !== undefined) run.nodes = nodes as number;
  if (typeof fields["label"] === "string") run.label = fields["label"];
  run.workload = { ...run.workload, ...readWorkload(study, where, path), ...readWorkload(fields, where, path) };
  readMachine({ ...pick(study, machineKeys), ...pick(fields, machineKeys) }, run, where, path);
  adoptFacts(run);
  if (run.status === "unknown" && run.epochs.length + run.steps.length > 0) run.status = "ok";
  return run;
}

const pick = (fields: Fields, keys: Record<string, unknown>): Fields =>
  Object.fromEntries(Object.keys(keys).flatMap((key) => (fields[key] === undefined ? [] : [[key, fields[key]]])));

/** `value` is the parsed YAML, `root` the directory that its paths are relative to. */
export function studiesFromYaml(value: unknown, root: string, path: string): Study[] {
  const list = isFields(value) ? value["studies"] : undefined;
  if (!Array.isArray(list))
    throw new ImportError(
      `${path}: expected "studies:" with a list of {name, samples, batch_per_rank, runs: [{dir, devices}]}`,
    );
  return list.map((entry: unknown, i): Study => {
    if (!isFields(entry)) throw new ImportError(`${path}: studies[${i}] must be a mapping`);
    const name = typeof entry["name"] === "string" ? entry["name"] : `study ${i + 1}`;
    const where = `study ${name}`;
    const problems = new ProblemLog();
    checkKeys(entry, studyKeys, where, path, problems);
    const warmup = entry["warmup"];
    if (warmup !== undefined && !isKind.count(warmup))
      throw new ImportError(`${path}: ${where}: warmup must be a count, is ${JSON.stringify(warmup)}`);
    const runs = entry["runs"] ?? [];
    if (!Array.isArray(runs)) throw new ImportError(`${path}: ${where}: runs must be a list of {dir, devices}`);
    const read = runs.flatMap((fields: unknown, k): Run[] => {
      if (!isFields(fields)) throw new ImportError(`${path}: ${where}: runs[${k}] must be a mapping {dir, devices}`);
      const run = readRun(fields, entry, root, path, `${where}, run ${k + 1}`, problems);
      return run === null ? [] : [run];
    });
    if (read.length === 0) problems.add(path, "empty-study", `${where}: no runs`);
    return {
      name,
      path,
      runs: read,
      ...(warmup !== undefined && { warmup: warmup as number }),
      problems: problems.list(),
    };
  });
}
