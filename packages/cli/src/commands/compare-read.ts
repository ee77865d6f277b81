// Reads what `weft compare` compares: a training run, a quantum result or a benchmark, as settings and measured rows.
import { existsSync, statSync } from "node:fs";
import { basename, join } from "node:path";
import { readText } from "@weft/formats/file";
import { plainText } from "@weft/formats/text";
import { parseYaml } from "@weft/formats/yaml";
import { CommandError } from "../terminal/index.js";

/** One measured quantity: a single value, or its samples. */
export interface MeasuredRow {
  name: string;
  values: number[];
  /** Which direction is better; null if neither is. */
  better: "lower" | "higher" | null;
  unit: "seconds" | "share" | "number";
}

/** One side of a comparison. */
export interface ComparedThing {
  kind: "training" | "quantum result" | "benchmark";
  path: string;
  /** Settings by dotted key. */
  settings: Map<string, unknown>;
  rows: MeasuredRow[];
  /** Why what was measured is not of a whole run: it failed, was stopped, or still runs. */
  unfinished?: string;
}

const mostBytes = 5e8;

const read = (path: string): string => readText(path, mostBytes);

function readJson(path: string): unknown {
  try {
    return JSON.parse(read(path)) as unknown;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== undefined || error instanceof CommandError) throw error;
    throw new CommandError(
      `${path} is neither the folder of a run nor a JSON file (of weft quantum run --json, weft bench or a benchmark): ${(error as Error).message.split("\n")[0]}`,
    );
  }
}

const isMapping = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" && value !== null && !Array.isArray(value);
const isNumber = (value: unknown): value is number => typeof value === "number" && Number.isFinite(value);

/** Calls `leaf` for every value below, by dotted key; entries of lists are named by their label, size or number. */
function walk(value: unknown, prefix: string, leaf: (key: string, value: unknown) => void, depth = 8): void {
  const isSamples = Array.isArray(value) && value.every(isNumber);
  if (depth === 0 || isSamples || typeof value !== "object" || value === null) {
    leaf(prefix, value);
    return;
  }
  const entries = Array.isArray(value)
    ? value.map((part: unknown, i): [string, unknown] => {
        const named = isMapping(part) ? [part.id, part.label, part.name, part.size, part.devices] : [];
        return [String(named.find((name) => name !== undefined) ?? i), part];
      })
    : Object.entries(value);
  for (const [name, part] of entries) walk(part, prefix === "" ? name : `${prefix}.${name}`, leaf, depth - 1);
}

/** Columns of a CSV file with a header and numbers. */
function columns(path: string): Map<string, number[]> {
  const [header = "", ...lines] = read(path).trimEnd().split(/\r?\n/);
  return new Map(
    header.split(",").map((name, i) => [
      name,
      lines
        .map((line) => line.split(",")[i] ?? "")
        .filter((text) => text !== "")
        .map(Number)
        .filter(Number.isFinite),
    ]),
  );
}

const row = (
  name: string,
  values: readonly (number | null | undefined)[],
  better: MeasuredRow["better"],
  unit: MeasuredRow["unit"] = "number",
): MeasuredRow => ({ name, values: values.filter(isNumber), better, unit });

/** Keys that name a run rather than change it. */
const names = new Set(["name", "output"]);

const unfinishedText = (status: unknown, message: unknown): string =>
  `${status === "running" ? "has no end (it runs, or was killed)" : plainText(String(status))}${typeof message === "string" ? `: ${plainText(message)}` : ""}`;

function training(path: string): ComparedThing {
  const settings = new Map<string, unknown>();
  walk(parseYaml(readText(join(path, "config.yaml"))), "", (key, value) => {
    if (!names.has(key)) settings.set(key, value);
  });
  const metrics = columns(join(path, "metrics.csv"));
  const last = (name: string): number | undefined => metrics.get(name)?.at(-1);
  const file = readJson(join(path, "run.json")) as {
    test?: { accuracy?: number; loss?: number };
    seconds?: number;
    status?: string;
    message?: string;
  };
  const isWhole = file.status === undefined || file.status === "ok";
  const records = join(path, "rank0.jsonl");
  const steps = existsSync(records)
    ? read(records)
        .split("\n")
        .filter((line) => line.includes('"type":"step"'))
        .flatMap((line) => {
          try {
            return [JSON.parse(line) as { durationUs?: number; samples?: number }];
          } catch {
            return []; // A line that was cut.
          }
        })
        // The first steps compile and warm up.
        .slice(3)
    : [];
  const seconds = steps.flatMap((s) => (isNumber(s.durationUs) ? [s.durationUs / 1e6] : []));
  return {
    kind: "training",
    path,
    settings,
    rows: [
      row("test accuracy", [file.test?.accuracy], "higher", "share"),
      row("test loss", [file.test?.loss], "lower"),
      row("validation accuracy", [last("val_acc")], "higher", "share"),
      row("validation loss", [last("val_loss")], "lower"),
      row("training loss", [last("train_loss")], "lower"),
      row("time of a step", seconds, "lower", "seconds"),
      row("time of an epoch", metrics.get("train_time") ?? [], "lower", "seconds"),
      row("time of the run", isWhole ? [file.seconds] : [], "lower", "seconds"),
    ],
    ...(!isWhole && { unfinished: unfinishedText(file.status, file.message) }),
  };
}

/** A folder of weft quantum optimize or meta. */
function quantumFolder(path: string): ComparedThing {
  const values = existsSync(join(path, "values.csv")) ? columns(join(path, "values.csv")) : new Map<string, number[]>();
  const validation = existsSync(join(path, "validation.csv"))
    ? columns(join(path, "validation.csv"))
    : new Map<string, number[]>();
  const settings = new Map<string, unknown>();
  return {
    kind: "quantum result",
    path,
    settings,
    rows: [
      row("infidelity", [values.get("infidelity")?.at(-1)], "lower"),
      row("first infidelity", [values.get("infidelity")?.[0]], null),
      row("iterations", [values.get("iteration")?.at(-1) ?? validation.get("iteration")?.at(-1)], "lower"),
      row("fidelity after adaptation", [validation.get("after")?.at(-1)], "higher"),
      row("fidelity before adaptation", [validation.get("before")?.at(-1)], "higher"),
    ],
  };
}

/** JSON of weft quantum run, optimize or meta. */
function quantumFile(path: string, file: Record<string, unknown>): ComparedThing {
  const settings = new Map<string, unknown>();
  const rows: MeasuredRow[] = [];
  walk(file, "", (key, value) => {
    if (/^(spectrum|curves|values|metrics|cache)\b/.test(key)) return;
    if (/^(infidelity|value|error|leaked|nominal)$/.test(key)) rows.push(row(key, [value as number], "lower"));
    else if (/^validation\.after$/.test(key)) rows.push(row("fidelity after adaptation", [value as number], "higher"));
    else if (/^seconds(\.|$)/.test(key)) rows.push(row(key, [value as number], "lower", "seconds"));
    else if (key !== "name") settings.set(key, value);
  });
  return { kind: "quantum result", path, settings, rows };
}

/** A record of weft bench, or a file of bench/results. */
function benchmark(path: string, file: Record<string, unknown>): ComparedThing {
  const settings = new Map<string, unknown>();
  const rows: MeasuredRow[] = [];
  walk(file, "", (key, value) => {
    const timed =
      /(seconds|endToEnd|compute|alone|sameCores|Ms|Us|time)(\.|$)/i.test(key) && !/split|predicted|limit/i.test(key);
    const samples = Array.isArray(value) ? (value as number[]) : isNumber(value) ? [value] : null;
    if (samples !== null && samples.length > 0 && timed) {
      const scale = /Ms(\.|$)/.test(key) ? 1e-3 : /Us(\.|$)/.test(key) ? 1e-6 : 1;
      rows.push(
        row(
          key,
          samples.map((x) => x * scale),
          "lower",
          "seconds",
        ),
      );
    } else if (/accuracy/i.test(key) && samples !== null) rows.push(row(key, samples, "higher", "share"));
    else if (
      /^(hardware|versions|device|precision|suite|settings|coresPerWorker|benchmark)\b/.test(key) &&
      key !== "at"
    )
      settings.set(key, value);
  });
  return { kind: "benchmark", path, settings, rows };
}

/** Reads one side; the files decide what it is. */
export function readCompared(path: string): ComparedThing {
  if (!existsSync(path)) throw new CommandError(`${path} does not exist`);
  if (statSync(path).isDirectory()) {
    const holds = (name: string): boolean => existsSync(join(path, name));
    if (holds("config.yaml") && holds("metrics.csv") && holds("run.json")) return training(path);
    if (holds("values.csv") || holds("validation.csv")) return quantumFolder(path);
    if (holds("bench.json")) return readCompared(join(path, "bench.json"));
    throw new CommandError(
      `${path}: nothing to compare; expected a run of weft train (config.yaml, run.json), a folder of weft quantum ` +
        "(values.csv), or a benchmark (bench.json). Scaling studies: weft analyze",
    );
  }
  const file = readJson(path);
  if (!isMapping(file)) throw new CommandError(`${path}: expected a JSON object`);
  if (file.format === "weft-bench" || file.benchmark !== undefined) return benchmark(path, file);
  if (["infidelity", "value", "validation"].some((key) => key in file)) return quantumFile(path, file);
  throw new CommandError(`${basename(path)}: neither a benchmark nor a result of weft quantum ... --json`);
}
