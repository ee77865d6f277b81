// weft predict: predictions at other device counts, each with an interval or the reason why there is none.
import { existsSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { PointSet } from "@weft/formats";
import { shortNumber } from "@weft/formats/text";
import {
  predict,
  predictionChart,
  readJson,
  readPoints,
  renderPng,
  renderSvg,
  type ScalingPredictions,
  verdictExitCodes,
} from "@weft/lab/internal";
import type { Command } from "commander";
import { attempt, CommandError, counts, csv, failed, table, warn, writeFiles, wrongUsage } from "../terminal/index.js";
import { analyzeAll, labWork, loadStudies } from "./studies.js";

interface Options {
  at?: number[];
  devicesPerNode?: string;
  study?: string;
  json?: boolean;
  out?: string;
}

const help = `
Examples:
  weft predict points.json --at 8,16,64
  weft predict points.json --at 16 --devices-per-node 8     nothing was measured beyond a node: it will not guess
  weft predict experiments/ --study IMDB --at 8 16          from a study, if it is valid

points.json:
  {"metric": "throughput", "points": [[1, 364.3], [4, 1432.7]]}
  metric "seconds" means the time for the same work, say an epoch; points may repeat a count, and the spread then widens
  the interval.`;

export function add(program: Command): void {
  program
    .command("predict")
    .description("Predict throughput or time at other device counts, with 80% intervals.")
    .argument("<path>", "points.json, or a study")
    .requiredOption("--at <counts...>", "device counts: 8,16 or 8 16", counts)
    .option("--devices-per-node <n>", "devices in one node")
    .option("--study <name>", "the study to use when a path contains several")
    .option("--json", "the predictions as JSON on standard output")
    .option("--out <dir>", "write predictions.json, .csv, .svg and .png into a directory")
    .addHelpText("after", help)
    .action((path: string, options: Options) => attempt(() => run(path, options)));
}

/** Reads points from a file, or from the valid counts of a study. */
async function pointsOf(path: string, options: Options): Promise<unknown> {
  if (!existsSync(path)) throw new CommandError(`${path} does not exist`);
  if (statSync(path).isFile() && path.endsWith(".json") && !path.endsWith("study.json"))
    return labWork(() => readJson(path));
  const studies = await loadStudies([path], options.study === undefined ? {} : { datasets: [options.study] });
  if (studies.length !== 1)
    throw new CommandError(
      `${path} holds ${studies.length} studies (${studies.map((s) => s.name).join(", ")}): choose one with --study`,
      wrongUsage,
    );
  const [analysis] = analyzeAll(studies);
  const { status } = analysis!.report;
  if (status === "not valid" || status === "undecided") {
    const first = analysis!.report.findings[0]!;
    throw new CommandError(
      `${studies[0]!.name} is ${status} as a scaling result (${first.id}): nothing is predicted from it; weft diagnose says why`,
      verdictExitCodes[status],
    );
  }
  const perNode = studies[0]!.machine?.devicesPerNode;
  const set: PointSet = {
    metric: "seconds",
    points: analysis!.verdict.view.counts.flatMap((c) =>
      c.runs.map((r): [number, number] => [c.devices, r.seconds!.mean]),
    ),
    ...(perNode !== undefined && { devicesPerNode: perNode }),
  };
  return set;
}

async function run(path: string, options: Options): Promise<void> {
  const value = await pointsOf(path, options);
  const perNode = options.devicesPerNode === undefined ? undefined : Number(options.devicesPerNode);
  if (perNode !== undefined && !(Number.isInteger(perNode) && perNode > 0))
    throw new CommandError(`--devices-per-node ${options.devicesPerNode} is not a count of 1 or more`, wrongUsage);
  const given = perNode === undefined || typeof value !== "object" ? value : { ...value, devicesPerNode: perNode };
  const points = await labWork(() => readPoints(given, path));
  const result = predict(points, options.at!);
  for (const problem of result.problems) warn(problem);
  if (options.out !== undefined)
    writeFiles(options.out, {
      "predictions.json": `${JSON.stringify(result, null, 2)}\n`,
      "predictions.csv": csv(
        ["devices", `${result.metric}`, "low_80", "high_80", "reason"],
        result.predictions.map((p) => [p.devices, p.value, p.interval?.[0] ?? null, p.interval?.[1] ?? null, p.reason]),
      ),
    });
  if (options.out !== undefined && points.samples.length > 0) {
    const toUnit = (x: number): number => (points.metric === "seconds" ? 1 / x : x);
    const measured = points.samples.map((s) => ({ devices: s.devices, value: toUnit(s.mean) }));
    const svg = await renderSvg(predictionChart(result, measured).spec);
    writeFiles(options.out, { "predictions.svg": svg });
    writeFileSync(join(options.out, "predictions.png"), await renderPng(svg));
  }
  if (options.json) process.stdout.write(`${JSON.stringify(result, null, 2)}\n`);
  else process.stdout.write(`${show(result)}\n`);
  if (result.predictions.every((p) => p.value === null)) process.exitCode = failed;
}

function show(result: ScalingPredictions): string {
  const unit = result.metric === "seconds" ? "seconds" : "throughput";
  const rows = result.predictions.map((p) => [
    String(p.devices),
    p.value === null ? "-" : shortNumber(p.value),
    p.interval === null ? "-" : `${shortNumber(p.interval[0])} to ${shortNumber(p.interval[1])}`,
  ]);
  const reasons = result.predictions.map((p) => `  ${p.devices}: ${p.reason}`);
  const laws = result.descriptions.map((d) => [d.law, ...d.values.map((v) => shortNumber(v.value))]);
  const parts = [table(["devices", unit, "80% interval"], rows, 0), reasons.join("\n")];
  if (laws.length > 0)
    parts.push(
      `Textbook laws fitted to the same points:\n${table(["law", ...result.predictions.map((p) => String(p.devices))], laws)}`,
    );
  return parts.join("\n\n");
}
