// weft predict --from: what one device measured (a trace, a run of `weft scale`, records), and points from MLPerf logs.
import { closeSync, existsSync, openSync, readSync, statSync } from "node:fs";
import { shortNumber } from "@weft/formats/text";
import { mlperfResult, readJsonFile, readMlperfLog, readStudies } from "@weft/lab/internal/import";
import { fabrics } from "@weft/lab/internal/metrics";
import { type OneDeviceRun, predictFromOne } from "@weft/lab/internal/predict";
import { analyzeTraces } from "@weft/lab/internal/trace";
import { CommandError, printJson, printText, table, wrongUsage } from "../terminal/index.js";
import { labWork } from "./lab-work.js";
import type { PredictCommandOptions } from "./predict.js";
import { costsOf, costText, positiveNumber } from "./predict-cost.js";

/** Whether a file is an MLPerf log: its first part contains the marker of such lines. */
export function isMlperfLog(path: string): boolean {
  if (!existsSync(path) || !statSync(path).isFile()) return false;
  const file = openSync(path, "r");
  try {
    const buffer = Buffer.alloc(1 << 20);
    return buffer.toString("latin1", 0, readSync(file, buffer, 0, buffer.length, 0)).includes(":::MLLOG");
  } finally {
    closeSync(file);
  }
}

/** MLPerf logs as points: devices, throughput and batch of each. */
export function pointsOfLogs(paths: readonly string[]): unknown {
  const points = paths.map((path) => {
    const { devices, throughput, globalBatch } = mlperfResult(readMlperfLog(path));
    if (devices === null || throughput === null || globalBatch === null)
      throw new CommandError(
        `${path}: the log does not state ${[
          [devices, "the number of accelerators"],
          [throughput, "throughput"],
          [globalBatch, "global_batch_size"],
        ]
          .filter(([value]) => value === null)
          .map(([, name]) => name)
          .join(", ")}; write a points.json instead`,
      );
    return { devices, throughput, globalBatch };
  });
  return { metric: "throughput", points };
}

function linkOf(options: PredictCommandOptions): OneDeviceRun["link"] {
  if (options.allreduce !== undefined) {
    const value = readJsonFile(options.allreduce) as { devices?: unknown; curve?: unknown } | null;
    const curve = value?.curve;
    const isPair = (p: unknown): p is [number, number] =>
      Array.isArray(p) && p.length === 2 && p.every((x) => typeof x === "number" && Number.isFinite(x) && x > 0);
    if (
      !Array.isArray(curve) ||
      !curve.every(isPair) ||
      !Number.isInteger(value?.devices) ||
      (value?.devices as number) < 2
    )
      throw new CommandError(`${options.allreduce}: expected {"devices": 4, "curve": [[bytes, microseconds], ...]}`);
    return { curve, devices: value!.devices as number };
  }
  const name = options.link ?? "";
  if (!Object.hasOwn(fabrics, name))
    throw new CommandError(
      `${name === "" ? "the link between the devices is not known" : `--link ${name} is not known`}: give --link ${Object.keys(fabrics).join(" | ")}, or measured all-reduces with --allreduce`,
      wrongUsage,
    );
  return fabrics[name]!;
}

function parametersOf(text: string | undefined): number[] | undefined {
  if (text === undefined) return undefined;
  const list = text.split(/[\s,]+/).map(Number);
  if (list.some((n) => !(Number.isFinite(n) && n >= 1)))
    throw new CommandError(`--parameters ${text} is not a number of parameters, nor a list of sizes`, wrongUsage);
  // One number: as many equal tensors as buckets of 1 MiB, so that the bucket rule has something to divide.
  if (list.length > 1) return list;
  const pieces = Math.min(4096, Math.max(1, Math.ceil((list[0]! * 4) / (1 << 20))));
  return Array.from({ length: pieces }, () => list[0]! / pieces);
}

/** What the steps of one device say: from a trace, or from records of the probe. */
async function measuredOn(path: string, options: PredictCommandOptions): Promise<Omit<OneDeviceRun, "link">> {
  const given = parametersOf(options.parameters);
  const batch = positiveNumber("batch", options.batch);
  const isTrace = statSync(path).isFile() && /\.json(\.gz)?$/.test(path) && !/(study|run)\.json$/.test(path);
  if (isTrace) {
    const report = await analyzeTraces([path]);
    const [rank] = report.ranks;
    // The first step often includes warm-up; without step marks the whole trace is one step.
    const marked = rank?.steps.map((s) => s.us) ?? [];
    const steps = marked.length > 2 ? marked.slice(1) : marked;
    if (steps.length === 0 && rank?.spanUs === undefined)
      throw new CommandError(`${path}: the trace has no steps (ProfilerStep) and no device time`);
    if (batch === undefined || given === undefined)
      throw new CommandError(
        "a trace does not say the batch and the parameters: give --batch and --parameters",
        wrongUsage,
      );
    return { stepUs: steps.length > 0 ? steps : [rank!.spanUs!], batch, parameterElements: given };
  }
  const [study] = await labWork(() => readStudies([path]));
  const run = study?.runs.find((r) => r.devices === 1) ?? study?.runs[0];
  const facts = run?.ranks[0]?.facts;
  const recorded = (run?.steps ?? [])
    .filter((s) => s.compile !== true)
    .slice(Math.min(10, Math.floor((run?.steps.length ?? 0) / 5)));
  // Where the probe sampled, those that stand for the same number of steps: the first ones and long ones were all recorded.
  const sampling = recorded.reduce((most, s) => Math.max(most, s.weight ?? 1), 1);
  const steps = recorded.filter((s) => (s.weight ?? 1) * 2 > sampling);
  const samples = batch ?? facts?.batchPerRank ?? steps[0]?.samples;
  const elements =
    given ??
    facts?.parameterElements ??
    (facts?.parameters === undefined ? undefined : parametersOf(String(facts.parameters)));
  if (run === undefined || run.devices !== 1 || steps.length === 0)
    throw new CommandError(`${path}: expected a run on one device with recorded steps`);
  if (samples === undefined || elements === undefined)
    throw new CommandError(
      `${path}: the records do not say the batch or the parameters: give --batch and --parameters`,
      wrongUsage,
    );
  const backward = steps.flatMap((s) => s.backwardUs ?? []);
  return {
    stepUs: steps.map((s) => s.durationUs),
    batch: samples,
    parameterElements: elements,
    ...(backward.length > 0 && { backwardUs: backward.reduce((a, b) => a + b, 0) / backward.length }),
    ...(facts?.gradientElementBytes !== undefined && { gradientElementBytes: facts.gradientElementBytes }),
    ...(facts?.ddpBucketCapBytes !== undefined && { bucketCapBytes: facts.ddpBucketCapBytes }),
  };
}

/** Predicts from one device and prints the result. */
export async function predictOne(paths: readonly string[], options: PredictCommandOptions): Promise<void> {
  const [path] = paths;
  if (paths.length !== 1) throw new CommandError("--from takes one trace or run, or several MLPerf logs", wrongUsage);
  if (!existsSync(path!)) throw new CommandError(`${path} does not exist`);
  const link = linkOf(options);
  const run = await measuredOn(path!, options);
  const predictions = await labWork(() => predictFromOne({ ...run, link }, options.at!));
  const costs = costsOf(
    { metric: "throughput", predictions },
    positiveNumber("price", options.price),
    positiveNumber("watts", options.watts),
  );
  const calibration =
    "not fitted: bucket rule of PyTorch DDP, latencies of NCCL's tuning model, bandwidths as measured by others";
  if (options.json) {
    printJson({ metric: "throughput", predictions, calibration, ...(costs.length > 0 && { costs }) });
    return;
  }
  const rows = predictions.map((p) => [
    String(p.devices),
    shortNumber(p.value),
    `${shortNumber(p.interval[0])} to ${shortNumber(p.interval[1])}`,
  ]);
  const reasons = predictions.map((p) => `  ${p.devices}: ${p.reason}`);
  printText(
    `${table(["devices", "throughput", "80% interval"], rows, 0)}\n\n${reasons.join("\n")}\n  ${calibration}\n${costs.length === 0 ? "" : `\n${costText(costs, "throughput")}\n`}`,
  );
}
