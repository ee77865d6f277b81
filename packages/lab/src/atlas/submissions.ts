// Reads a folder of MLPerf Training results (SUBMITTER/results/SYSTEM/BENCHMARK/result_N.txt) as one submission per system and
// benchmark: medians over its runs, with the files and lines behind them.
import { existsSync, readdirSync } from "node:fs";
import { basename, join } from "node:path";
import { median } from "@weft/formats/stats";
import { ImportError, type MlperfResult, mlperfResult, readJsonFile, readMlperfLog } from "../import/index.js";

/** One run of a submission. */
export interface SubmissionRun extends MlperfResult {
  path: string;
}

/** The runs of one system on one benchmark. */
export interface Submission {
  round: string;
  submitter: string;
  system: string;
  benchmark: string;
  accelerator: string | null;
  devices: number | null;
  devicesPerNode: number | null;
  globalBatch: number | null;
  /** Medians over the runs. */
  throughput: number | null;
  minutes: number | null;
  runs: SubmissionRun[];
}

/** Benchmarks that changed their name between rounds. */
const aliases: Record<string, string> = { ssd: "retinanet", "single-stage-detector": "retinanet" };

const folders = (path: string): string[] =>
  existsSync(path)
    ? readdirSync(path, { withFileTypes: true })
        .filter((entry) => entry.isDirectory())
        .map((entry) => entry.name)
        .sort()
    : [];

const whole = (value: unknown): number | null => {
  const number = Number(value);
  return value !== "" && Number.isInteger(number) && number > 0 ? number : null;
};

function medianOf(values: readonly (number | null)[]): number | null {
  const known = values.filter((v) => v !== null);
  return known.length === 0 ? null : median(known);
}

interface System {
  accelerator: string | null;
  devices: number | null;
  devicesPerNode: number | null;
}

function readSystem(path: string): System {
  const none = { accelerator: null, devices: null, devicesPerNode: null };
  if (!existsSync(path)) return none;
  let value: Record<string, unknown>;
  try {
    value = readJsonFile(path) as Record<string, unknown>;
  } catch {
    return none;
  }
  const nodes = whole(value?.["number_of_nodes"]);
  const perNode = whole(value?.["accelerators_per_node"]);
  const name = value?.["accelerator_model_name"];
  return {
    accelerator: typeof name === "string" ? name : null,
    devices: nodes === null || perNode === null ? null : nodes * perNode,
    devicesPerNode: perNode,
  };
}

/**
 * Reads the submissions of a round.
 *
 * @param directory A checkout of mlcommons/training_results_vX.
 * @param onLog Called before each log with the number of logs before it and of all, for a progress line.
 */
export function readSubmissions(
  directory: string,
  onLog: (path: string, done: number, total: number) => void = () => {},
): Submission[] {
  const round = /v\d+\.\d+/.exec(basename(directory))?.[0] ?? basename(directory);
  const places = folders(directory).flatMap((submitter) => {
    const home = join(directory, submitter);
    return folders(join(home, "results")).flatMap((system) => {
      const facts = readSystem(join(home, "systems", `${system}.json`));
      return folders(join(home, "results", system)).map((benchmark) => {
        const place = join(home, "results", system, benchmark);
        const logs = readdirSync(place)
          .filter((name) => /^result_\d+\.txt$/.test(name))
          .sort()
          .map((name) => join(place, name));
        return { submitter, system, benchmark, facts, logs };
      });
    });
  });
  const total = places.reduce((sum, { logs }) => sum + logs.length, 0);
  let done = 0;
  const submissions = places
    .filter(({ logs }) => logs.length > 0)
    .map(({ submitter, system, benchmark, facts, logs }): Submission => {
      const runs = logs.map((path): SubmissionRun => {
        onLog(path, done++, total);
        return { ...mlperfResult(readMlperfLog(path, facts.devices)), path };
      });
      return {
        round,
        submitter,
        system,
        benchmark: aliases[benchmark] ?? benchmark,
        accelerator: facts.accelerator,
        devices: facts.devices ?? medianOf(runs.map((r) => r.devices)),
        devicesPerNode: facts.devicesPerNode,
        globalBatch: medianOf(runs.map((r) => r.globalBatch)),
        throughput: medianOf(runs.map((r) => r.throughput)),
        minutes: medianOf(runs.map((r) => r.minutes)),
        runs,
      };
    });
  if (submissions.length === 0)
    throw new ImportError(`${directory}: no results found: expected SUBMITTER/results/SYSTEM/BENCHMARK/result_0.txt`);
  return submissions;
}
