// weft predict: predictions at other device counts, each with an interval or the reason why there is none, from measured points,
// a study, MLPerf logs, or one device (a trace or a run).
import { existsSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { PointSet } from "@weft/formats/internal";
import { plainText, shortNumber } from "@weft/formats/text";
import { studyPoints } from "@weft/lab/internal/diagnosis";
import { readJsonFile } from "@weft/lab/internal/import";
import { predict, readPoints, type ScalingPredictions } from "@weft/lab/internal/predict";
import { predictionChart, renderPng, renderSvg, verdictExitCodes } from "@weft/lab/internal/report";
import { type Command, InvalidArgumentError } from "commander";
import {
  attempt,
  CommandError,
  csv,
  failed,
  parseCounts,
  printJson,
  printText,
  table,
  warn,
  writeFiles,
  wrongUsage,
} from "../terminal/index.js";
import { labWork } from "./lab-work.js";
import { predictConfigurations } from "./predict-configurations.js";
import { type Cost, costsOf, costText, positiveNumber } from "./predict-cost.js";
import { isMlperfLog, pointsOfLogs, predictOne } from "./predict-from.js";
import { analyzeAll, loadStudies } from "./studies.js";

export interface PredictCommandOptions {
  at?: number[];
  globalBatch?: number[];
  devicesPerNode?: string;
  study?: string;
  from?: string[];
  batch?: string;
  parameters?: string;
  link?: string;
  allreduce?: string;
  price?: string;
  watts?: string;
  json?: boolean;
  out?: string;
}

const help = `
Examples:
  weft predict points.json --at 8,16,64
  weft predict points.json --at 512 --global-batch 8192     points that carry their batch: strong and weak scaling
  weft predict points.json --at 16 --devices-per-node 8     nothing was measured beyond a node: it will not guess
  weft predict points.json --at 64 --price 2.5/h --watts 700
  weft predict experiments/ --study IMDB --at 8 16          from a study, if it is valid
  weft predict --from trace.json.gz --batch 32 --parameters 110e6 --link nvlink3 --at 2,4,8
  weft predict --from runs/one/runs/n1-r0 --allreduce curve.json --at 4
  weft predict configurations.csv      tensor, data and pipeline parallelism: rows with a time predict those without
  weft predict --from 8gpu/result_0.txt 64gpu/result_0.txt --at 512 --global-batch 4096     MLPerf logs

points.json:
  {"metric": "throughput", "points": [[1, 364.3], [4, 1432.7]]}
  {"points": [{"devices": 8, "throughput": 7759.6, "globalBatch": 768, "devicesPerNode": 8}, ...]}
  metric "seconds" means the time for the same work, say an epoch; points may repeat a count, and the spread then widens
  the interval.`;

export default function add(program: Command): void {
  program
    .command("predict")
    .description("Predict throughput or time at other device counts, with 80% intervals.")
    .argument("[path]", "points.json, a study, or a CSV file of configurations")
    .option("--at <counts...>", "device counts: 8,16 or 8 16", parseCounts)
    .option(
      "--global-batch <batches...>",
      "samples per step over all devices: one for all counts, or one each",
      batches,
    )
    .option("--devices-per-node <n>", "devices in one node")
    .option("--study <name>", "the study to use when a path contains several")
    .option("--from <files...>", "one device (a trace, a run directory, records) or MLPerf logs, instead of a path")
    .option("--batch <n>", "with --from a trace: samples of one device per step")
    .option("--parameters <n>", "with --from: number of trainable parameters, or a list of the sizes of each")
    .option("--link <name>", "with --from: the link between the devices, e.g. nvlink3, nvlink4, pcie4")
    .option("--allreduce <file>", 'with --from: measured all-reduces, {"devices": 4, "curve": [[bytes, us], ...]}')
    .option("--price <amount>", "price of one device per hour: 2.5/h; prints the cost")
    .option("--watts <n>", "power of one device; prints the energy")
    .option("--json", "the predictions as JSON on standard output")
    .option("--out <dir>", "write predictions.json, .csv, .svg and .png into a directory")
    .addHelpText("after", help)
    .action((path: string | undefined, options: PredictCommandOptions) => attempt(() => run(path, options)));
}

function batches(value: string, previous: number[] | undefined): number[] {
  const list = previous ?? [];
  for (const part of value.split(/[\s,]+/).filter((p) => p !== "")) {
    const batch = Number(part);
    if (!(Number.isFinite(batch) && batch > 0))
      throw new InvalidArgumentError(`"${part}" is not a number of samples above 0`);
    list.push(batch);
  }
  return list;
}

/** Reads points from a file, or from the valid counts of a study. */
async function pointsOf(path: string, options: PredictCommandOptions): Promise<unknown> {
  if (!existsSync(path)) throw new CommandError(`${path} does not exist`);
  if (statSync(path).isFile() && path.endsWith(".json") && !path.endsWith("study.json"))
    return labWork(() => readJsonFile(path));
  const studies = await loadStudies([path], options.study === undefined ? {} : { datasets: [options.study] });
  if (studies.length !== 1)
    throw new CommandError(
      `${path} holds ${studies.length} studies (${studies.map((s) => s.name).join(", ")}): choose one with --study`,
      wrongUsage,
    );
  const [analysis] = analyzeAll(studies);
  const { status, disturbance } = analysis!.report;
  if (status === "not valid" || status === "undecided") {
    const first = analysis!.report.findings[0]!;
    throw new CommandError(
      `${studies[0]!.name} is ${status} as a scaling result (${first.id}): nothing is predicted from it; weft diagnose says why`,
      verdictExitCodes[status],
    );
  }
  if (disturbance !== null)
    warn(`${studies[0]!.name}: ${disturbance} while it was measured; the intervals do not know that`);
  const perNode = studies[0]!.machine?.devicesPerNode;
  const set = studyPoints(analysis!.verdict);
  if (set.metric === "throughput")
    warn(`${studies[0]!.name}: weak scaling; predicted is the work per second, in epochs of the smallest count`);
  return { ...set, ...(perNode !== undefined && { devicesPerNode: perNode }) } satisfies PointSet;
}

async function run(path: string | undefined, options: PredictCommandOptions): Promise<void> {
  if ((path === undefined) === (options.from === undefined))
    throw new CommandError(
      "give either a path (points.json or a study) or --from (a trace, a run or MLPerf logs)",
      wrongUsage,
    );
  if (path?.endsWith(".csv")) return predictConfigurations(path, options);
  if (options.at === undefined) throw new CommandError("--at is missing: the device counts to predict", wrongUsage);
  const price = positiveNumber("price", options.price);
  const watts = positiveNumber("watts", options.watts);
  if (options.from !== undefined && !isMlperfLog(options.from[0]!)) return predictOne(options.from, options);
  const where = path ?? options.from!.join(", ");
  const value = path === undefined ? await labWork(() => pointsOfLogs(options.from!)) : await pointsOf(path, options);
  const perNode = options.devicesPerNode === undefined ? undefined : Number(options.devicesPerNode);
  if (perNode !== undefined && !(Number.isInteger(perNode) && perNode > 0))
    throw new CommandError(`--devices-per-node ${options.devicesPerNode} is not a count of 1 or more`, wrongUsage);
  const given = perNode === undefined || typeof value !== "object" ? value : { ...value, devicesPerNode: perNode };
  const points = await labWork(() => readPoints(given, where));
  const result = await labWork(() =>
    predict(points, options.at!, options.globalBatch === undefined ? {} : { globalBatch: options.globalBatch }),
  );
  for (const problem of result.problems) warn(problem);
  // Power that the points state is better than a figure of the data sheet.
  const measuredWatts = points.samples.findLast((s) => s.watts !== null)?.watts ?? undefined;
  const costs = costsOf(result, price, watts ?? measuredWatts);
  const output = { ...result, ...(costs.length > 0 && { costs }) };
  const withBatches = result.predictions.some((p) => p.globalBatch !== null);
  if (options.out !== undefined)
    writeFiles(options.out, {
      "predictions.json": `${JSON.stringify(output, null, 2)}\n`,
      "predictions.csv": csv(
        ["devices", `${result.metric}`, "low_80", "high_80", "reason", ...(withBatches ? ["global_batch"] : [])],
        result.predictions.map((p) => [
          p.devices,
          p.value,
          p.interval?.[0] ?? null,
          p.interval?.[1] ?? null,
          p.reason,
          ...(withBatches ? [p.globalBatch] : []),
        ]),
      ),
    });
  if (options.out !== undefined && points.samples.length > 0) {
    const toUnit = (x: number): number => (points.metric === "seconds" ? 1 / x : x);
    const measured = points.samples.map((s) => ({ devices: s.devices, value: toUnit(s.mean) }));
    const svg = await renderSvg(predictionChart(result, measured).spec);
    writeFiles(options.out, { "predictions.svg": svg });
    writeFileSync(join(options.out, "predictions.png"), await renderPng(svg));
  }
  if (options.json) printJson(output);
  else printText(`${plainText(show(result, costs))}\n`);
  if (result.predictions.every((p) => p.value === null)) process.exitCode = failed;
}

function show(result: ScalingPredictions, costs: readonly Cost[]): string {
  const unit = result.metric === "seconds" ? "seconds" : "throughput";
  const batch = result.predictions.some((p) => p.globalBatch !== null);
  const rows = result.predictions.map((p) => [
    String(p.devices),
    ...(batch ? [p.globalBatch === null ? "-" : shortNumber(p.globalBatch)] : []),
    p.value === null ? "-" : shortNumber(p.value),
    p.interval === null ? "-" : `${shortNumber(p.interval[0])} to ${shortNumber(p.interval[1])}`,
  ]);
  const reasons = result.predictions.map((p) => `  ${p.devices}: ${p.reason}`);
  const laws = result.descriptions.map((d) => [d.law, ...d.values.map((v) => shortNumber(v.value))]);
  const header = ["devices", ...(batch ? ["global batch"] : []), unit, "80% interval"];
  const parts = [table(header, rows, 0), `${reasons.join("\n")}\n  ${result.calibration}`];
  if (costs.length > 0) parts.push(costText(costs, result.metric));
  if (laws.length > 0)
    parts.push(
      `Textbook laws fitted to the same points:\n${table(["law", ...result.predictions.map((p) => String(p.devices))], laws)}`,
    );
  return parts.join("\n\n");
}
