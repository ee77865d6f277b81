// Reads paths as studies: detects what each path is (study.yaml, a directory of `weft scale`, metrics.csv, records, a tape) and
// calls the importer for it.
import { existsSync, readdirSync, statSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { parseYaml } from "@weft/formats/yaml";
import { emptyRun, type Study } from "../model/index.js";
import { ImportError, ProblemLog, readImport, readLines } from "./lines.js";
import { readMetricsCsv } from "./metrics-csv.js";
import { adoptFacts, readRecords } from "./records.js";
import { readScaleRun, studyFromScaleDirectory } from "./scale-directory.js";
import { studiesFromYaml } from "./study-yaml.js";
import { runFromTape } from "./tape.js";

/** Options of `readStudies`. @inline */
interface StudyReadOptions {
  /** Overrides the warm-up that the study states. */
  warmup?: number;
  /** Keep only the studies of these names (case does not matter). */
  names?: readonly string[];
}

function readYamlStudy(path: string): Study[] {
  const text = readImport(path, 16 << 20).toString("utf8");
  let value: unknown;
  try {
    value = parseYaml(text);
  } catch (error) {
    throw new ImportError(`${path}: ${(error as Error).message}`);
  }
  return studiesFromYaml(value, dirname(path), path);
}

/** Reads a single file of measurements as a study of one run. */
function singleRun(path: string): Study {
  const problems = new ProblemLog();
  if (path.endsWith(".csv")) {
    const run = emptyRun(basename(dirname(path)) || basename(path), 1, { kind: "metrics.csv", path });
    run.epochs = readMetricsCsv(path, problems).epochs;
    run.problems = problems.list();
    run.devicesUnknown = true;
    if (run.epochs.length > 0) run.status = "ok";
    return { name: run.id, path, runs: [run], problems: [] };
  }
  const first = readLines(path).next().value;
  if (first !== undefined && /"type"\s*:\s*"(instruction|tape)"/.test(first.text)) {
    const run = runFromTape(path);
    return { name: run.id, path, runs: [run], problems: [] };
  }
  const run = emptyRun(basename(path).replace(/\.[^.]*$/, ""), 0, { kind: "jsonl", path });
  readRecords(path, run, problems);
  const stated = run.devices >= 1;
  if (!stated) run.devices = 1;
  adoptFacts(run);
  const world = run.ranks.find((r) => r.worldSize !== undefined)?.worldSize;
  if (world !== undefined && world > run.devices) run.devices = world;
  if (world === undefined && !stated && run.processes === undefined) run.devicesUnknown = true;
  run.problems = problems.list();
  return { name: run.id, path, runs: [run], problems: [] };
}

const template = (names: readonly string[]): string =>
  [
    "studies:",
    "  - name: MyStudy",
    "    samples: 25000          # in the training set",
    "    batch_per_rank: 32",
    "    runs:",
    ...names.slice(0, 4).map((name) => `      - {dir: ${name}, devices: ?}`),
  ].join("\n");

function readDirectory(path: string): Study[] {
  for (const name of ["study.yaml", "study.yml"])
    if (existsSync(join(path, name))) return readYamlStudy(join(path, name));
  if (existsSync(join(path, "study.json"))) return [studyFromScaleDirectory(path)];
  if (existsSync(join(path, "run.json"))) {
    const run = readScaleRun(path);
    return [
      { name: run.id, path, runs: run.devices >= 1 ? [run] : [], problems: run.devices >= 1 ? [] : run.problems },
    ];
  }
  const children = readdirSync(path, { withFileTypes: true })
    .filter((entry) => entry.isDirectory())
    .map((entry) => entry.name)
    .sort();
  const nested = children.filter((name) =>
    ["study.yaml", "study.yml", "study.json"].some((file) => existsSync(join(path, name, file))),
  );
  if (nested.length > 0) return nested.flatMap((name) => readDirectory(join(path, name)));
  const csvs = children.filter((name) => existsSync(join(path, name, "metrics.csv")));
  if (csvs.length > 0)
    throw new ImportError(
      `${path}: ${csvs.length} directories hold a metrics.csv, but nothing says on how many devices each ran.\n` +
        `Write ${join(path, "study.yaml")}:\n\n${template(csvs)}\n`,
    );
  for (const name of ["metrics.csv", "records.jsonl"])
    if (existsSync(join(path, name))) return [singleRun(join(path, name))];
  throw new ImportError(
    `${path}: no study found: expected study.yaml, study.json (made by weft scale) or metrics.csv in it or one level below`,
  );
}

function readPath(path: string): Study[] {
  if (!existsSync(path)) throw new ImportError(`${path}: no such file or directory`);
  if (statSync(path).isDirectory()) return readDirectory(path);
  if (/\.ya?ml$/.test(path)) return readYamlStudy(path);
  if (basename(path) === "study.json") return [studyFromScaleDirectory(dirname(path))];
  if (/\.(csv|jsonl|ndjson|tape)$/.test(path)) return [singleRun(path)];
  throw new ImportError(`${path}: not a study: expected a directory, study.yaml, study.json, .csv or .jsonl`);
}

/** Reads studies from directories, study.yaml, study.json, metrics.csv, record files or tapes. */
export function readStudies(paths: readonly string[], options: StudyReadOptions = {}): Study[] {
  const studies = paths.flatMap(readPath);
  const wanted = options.names?.map((name) => name.toLowerCase());
  const chosen = wanted === undefined ? studies : studies.filter((s) => wanted.includes(s.name.toLowerCase()));
  const unknown =
    options.names?.filter((name) => !studies.some((s) => s.name.toLowerCase() === name.toLowerCase())) ?? [];
  if (unknown.length > 0)
    throw new ImportError(`no study named ${unknown.join(", ")}; there are: ${studies.map((s) => s.name).join(", ")}`);
  if (options.warmup !== undefined) for (const study of chosen) study.warmup = options.warmup;
  return chosen;
}
