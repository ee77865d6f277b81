// weft quantum optimize: optimizes pulses and devices of a specification file by descent, Adam or L-BFGS, with progress and
// checkpoints.
import { existsSync } from "node:fs";
import { basename, extname, join } from "node:path";
import { setImmediate } from "node:timers/promises";
import { session, setDevice, type Tensor } from "@weft/core";
import {
  type Bounds,
  type ControlFile,
  controlSections,
  explainSteps,
  GateProblem,
  gateSections,
  type MinimizeMethod,
  type MinimizeOptions,
  Minimizer,
  minimize,
  minimizeMethods,
  type NamedParameters,
  type ParameterLoss,
  parseControlFile,
  parseGateSpec,
  scaleTimes,
  shortestDuration,
  withError,
} from "@weft/quantum/internal";
import type { Command } from "commander";
import {
  attempt,
  CommandError,
  csv,
  failed,
  ProgressLine,
  printJson,
  printText,
  table,
  time,
  warn,
  writeFiles,
  wrongUsage,
} from "../terminal/index.js";
import { engineWork } from "./engine-work.js";
import { OptimizationRun, parametersText } from "./optimization-run.js";
import { costLine, loadProblem, physical } from "./quantum-run.js";
import { readWithSettings } from "./yaml-file.js";

interface Options {
  set?: string[];
  method: string;
  iterations: string;
  rate?: string;
  target?: string;
  tolerance?: string;
  device?: string;
  out?: string;
  resume?: boolean;
  explain?: boolean;
  shortest?: string;
  json?: boolean;
}

const help = `
Examples:
  weft quantum optimize gate.yaml                              optimizes the parameters in its key learn
  weft quantum optimize pulse.yaml
  weft quantum optimize pulse.yaml --method adam --rate 0.1 --iterations 200
  weft quantum optimize gate.yaml --shortest 1e-4              the shortest gate that reaches 1e-4
  weft quantum optimize pulse.yaml --out runs/pulse            checkpoint, values, parameters, chart
  weft quantum optimize pulse.yaml --out runs/pulse --resume --iterations 500

gate.yaml: a device and its pulses, as for weft quantum run (docs/quantum.md).
pulse.yaml: a pulse for an open system, one environment or an ensemble
  problem: {kind: flip, segments: 60, duration: 1}    # or kind: cz
  tasks: {kind: rates, dephasing: [0.02, 0.15], relaxation: [0.01, 0.08]}   # or rates: [0.05, 0.025]
  ensemble: 16
  objective: {cvar: 0.1}                              # mean, worst, {softWorst: 50}, {cvar: 0.1}
  integration: {tolerance: 1.0e-7}
All keys: docs/meta.md.`;

export default function add(program: Command): void {
  define(program, "optimize", false);
  // The former spelling still works; help does not list it.
  define(program, "optimise", true);
}

function define(program: Command, name: string, hidden: boolean): void {
  program
    .command(name, { hidden })
    .description("Optimize a pulse or a gate by gradient descent.")
    .argument("<file>", "specification, YAML")
    .option("--method <name>", minimizeMethods.join(", "), "lbfgs")
    .option("--iterations <n>", "maximum number of iterations", "200")
    .option("--rate <x>", "step size of descent and adam")
    .option("--target <x>", "stop at this infidelity")
    .option("--tolerance <x>", "stop when all entries of the gradient are below this")
    .option("--device <name>", "cpu, cuda, cuda:1, reference")
    .option("--out <dir>", "write checkpoint, values, parameters and a chart to this folder")
    .option("--resume", "continue from the checkpoint in --out")
    .option("--shortest <x>", "search the shortest pulses of a gate that reach this infidelity")
    .option("--explain", "print the settings and exit")
    .option("--set <key=value...>", "override keys of the file: evolution.steps=200, parameters.q0.x.amplitude=0.06")
    .option("--json", "write the result as JSON to standard output")
    .addHelpText("after", help)
    .action((file: string, options: Options) => attempt(() => engineWork(() => run(file, options))));
}

/** The optimization problem of a file. */
interface Work {
  name: string;
  /** Text of the gate's specification; null for other problems. */
  gate: string | null;
  loss: ParameterLoss;
  start: NamedParameters;
  explain: string;
  bounds: Bounds;
  warnings: readonly string[];
  /** The final result as it may be printed; throws if it is not valid. */
  report: (params: NamedParameters) => {
    infidelity: number;
    error: number;
    params: NamedParameters;
    costs?: Record<string, number>;
  };
  /** The problem with shorter steps if these are too long at the final parameters, or null. */
  refine: (params: NamedParameters) => Work | null;
}

/** The problem of a gate specification; it optimizes the parameters in the key learn. */
function gateWork(file: string, text: string): Work {
  const problem = new GateProblem(parseGateSpec(text, basename(file, extname(file))));
  const { spec } = problem;
  const start = problem.learned();
  const method = typeof spec.evolution.method === "string" ? spec.evolution.method : spec.evolution.method.name;
  const explain =
    `evolution: ${spec.evolution.steps} steps of ${method}; target ${spec.target.name}, compensation ${spec.target.compensation}, ` +
    `${spec.target.measure} infidelity; ${Object.keys(start).length} parameters with ${Object.values(start).reduce((n, t) => n + t.size, 0)} numbers are learned`;
  return {
    name: spec.name,
    gate: text,
    loss: problem.loss,
    start,
    explain,
    bounds: spec.bounds,
    warnings: [],
    report: (p) => ({ ...problem.report(p), params: p }),
    refine: () => null,
  };
}

function controlWork(file: ControlFile, name: string): Work {
  const { loss, start, steps, rates, objective } = file;
  const shown = typeof objective === "string" ? objective : JSON.stringify(objective);
  const explain = `${explainSteps(steps)}\nobjective: ${shown} over ${rates.shape[0]} environment${rates.shape[0] === 1 ? "" : "s"}`;
  return {
    name,
    gate: null,
    loss,
    start,
    explain,
    bounds: {},
    warnings: steps.warnings,
    report: (params) => {
      const { infidelity, error, pulse } = file.report(params);
      return { infidelity, error, params: { pulse } };
    },
    refine: (params) => {
      const finer = file.refine(params);
      return finer === null ? null : controlWork(finer, name);
    },
  };
}

async function workOf(file: string, set: readonly string[]): Promise<Work> {
  const { text, rest } = readWithSettings(file, set, [...gateSections, ...controlSections]);
  const name = basename(file);
  if (rest.length > 0)
    throw new CommandError(`--set ${rest[0]}: the file has no such section; parameters are in parameters.`, wrongUsage);
  return engineWork(async () => {
    if (/^\s*["']?device["']?\s*:/m.test(text)) return gateWork(file, text);
    return controlWork(parseControlFile(text, name), name);
  }, wrongUsage);
}

function number(option: string, value: string | undefined, isWhole = false): number | undefined {
  if (value === undefined) return undefined;
  const x = Number(value);
  if (value.trim() === "" || !Number.isFinite(x) || (isWhole && (!Number.isInteger(x) || x < 0)))
    throw new CommandError(`${option} ${value} is not a ${isWhole ? "whole " : ""}number`, wrongUsage);
  return x;
}

const checkpointName = "checkpoint.safetensors";

async function run(file: string, options: Options): Promise<void> {
  if (!(minimizeMethods as readonly string[]).includes(options.method))
    throw new CommandError(`--method ${options.method}: known are ${minimizeMethods.join(", ")}`, wrongUsage);
  if (options.resume && options.out === undefined)
    throw new CommandError("--resume needs --out, the folder of the run", wrongUsage);
  const [rate, target, tolerance] = [
    number("--rate", options.rate),
    number("--target", options.target),
    number("--tolerance", options.tolerance),
  ];
  const settings = {
    method: options.method as MinimizeMethod,
    iterations: number("--iterations", options.iterations, true)!,
    ...(rate !== undefined && { rate }),
    ...(target !== undefined && { target }),
    ...(tolerance !== undefined && { gradientTolerance: tolerance }),
  };
  if (options.device !== undefined) setDevice(options.device);
  if (options.shortest !== undefined) return shortest(file, number("--shortest", options.shortest)!, settings, options);
  let work = await workOf(file, options.set ?? []);
  if (options.explain) {
    if (options.json) printJson({ explain: work.explain.split("\n") }, 0);
    else printText(`${work.explain}\n`);
    return;
  }
  for (const warning of work.warnings) warn(warning);
  let minimizer = new Minimizer(work.loss, work.start, { ...settings, bounds: work.bounds });
  const saved = options.out === undefined ? null : join(options.out, checkpointName);
  if (options.resume && saved !== null) {
    if (existsSync(saved)) await minimizer.resume(saved);
    else warn(`${saved} does not exist: starting a new run`);
  }
  const start = performance.now();
  const record =
    options.out === undefined
      ? null
      : await OptimizationRun.start(options.out, {
          name: work.name,
          optimizer: settings.method,
          iterations: settings.iterations,
          from: minimizer.progress.iteration,
          gate: work.gate,
        });
  let reason = "failed";
  try {
    ({ work, minimizer, reason } = await improve(work, minimizer, settings, saved, record));
  } catch (error) {
    record?.end("failed", (error as Error).message);
    throw error;
  }
  const seconds = (performance.now() - start) / 1e3;
  const { infidelity, error, params, costs = {} } = work.report(minimizer.params);
  const { progress, values } = minimizer;
  if (reason === "gradient" && progress.iteration === 0 && infidelity > 1e-6)
    warn("the gradient vanishes at the start, which need not be a minimum: start from other values");
  if (options.out !== undefined) await write(options.out, work.name, params, values);
  record?.end(reason === "stopped" ? "canceled" : "ok", reasons[reason]);
  const result = {
    name: work.name,
    device: session().device.name,
    method: settings.method,
    reason,
    ...progress,
    value: infidelity,
    error,
    costs,
    seconds,
    values,
    parameters: Object.fromEntries(Object.entries(params).map(([key, t]) => [key, t.arraySync()])),
  };
  if (options.json) printJson(result);
  else printText(`${report(work, result, params)}\n`);
  if (reason === "stopped") process.exitCode = failed;
}

/** Runs the minimizer. Steps are chosen for typical pulses; where they are too long for the final one, shorter ones continue. */
async function improve(
  first: Work,
  start: Minimizer,
  settings: MinimizeOptions,
  saved: string | null,
  record: OptimizationRun | null,
): Promise<{ work: Work; minimizer: Minimizer; reason: string }> {
  let [work, minimizer] = [first, start];
  let reason = await drive(minimizer, saved, record);
  for (let round = 0; round < 3 && reason !== "stopped"; round++) {
    const finer = work.refine(minimizer.params);
    if (finer === null) break;
    warn("the steps are too long for the final pulse: continuing with shorter ones");
    work = finer;
    minimizer = new Minimizer(work.loss, minimizer.params, { ...settings, bounds: work.bounds });
    reason = await drive(minimizer, saved, record);
  }
  return { work, minimizer, reason };
}

/** Optimizations of a search for the shortest duration: a bisection of about ten rounds, some of which start twice. */
const usualTries = 15;

/** The shortest duration at which the target is reached: all times of the pulses are scaled together. */
async function shortest(file: string, target: number, settings: MinimizeOptions, options: Options): Promise<void> {
  if (options.out !== undefined || options.resume)
    throw new CommandError("--shortest writes no files; leave out --out and --resume", wrongUsage);
  const { spec } = loadProblem(file, options.set);
  const whole = spec.evolution.duration ?? new GateProblem(spec).bind().duration().itemSync();
  const progress = new ProgressLine();
  const problemAt = (duration: number): GateProblem => new GateProblem(scaleTimes(spec, duration / whole));
  let tries = 0;
  try {
    const found = physical(() =>
      shortestDuration(
        (duration, start) => {
          progress.update(`${duration.toPrecision(4)} ns`, tries++, Math.max(tries + 1, usualTries));
          const problem = problemAt(duration);
          const { params } = minimize(problem.loss, start ?? problem.learned(), {
            ...settings,
            bounds: spec.bounds,
            ...(spec.costs === null && { target: target / 2 }),
          });
          return { infidelity: problem.report(params).infidelity, params };
        },
        { target, low: whole / 100, high: whole },
      ),
    );
    const { infidelity, error } = problemAt(found.duration).report(found.params);
    const parameters = Object.fromEntries(Object.entries(found.params).map(([key, t]) => [key, t.arraySync()]));
    const { duration, tried } = found;
    if (options.json) {
      printJson({ duration, infidelity, error, target, tried, parameters });
      return;
    }
    progress.clear();
    const rows = [...tried].sort((a, b) => a.duration - b.duration);
    printText(
      `${table(
        ["duration", "infidelity", "reached"],
        rows.map((r) => [
          `${r.duration.toPrecision(4)} ns`,
          r.infidelity.toExponential(2),
          r.infidelity <= target ? "yes" : "no",
        ]),
      )}\n\n${spec.name}: ${withError(infidelity, error)} in ${duration.toPrecision(4)} ns, the shortest found for ${target}\n`,
    );
  } finally {
    progress.clear();
  }
}

/** Runs the minimizer with a checkpoint every ten iterations. Ctrl-C and SIGTERM stop after the current iteration. */
async function drive(minimizer: Minimizer, saved: string | null, record: OptimizationRun | null): Promise<string> {
  const progress = new ProgressLine();
  let stopped = false;
  const stop = (): void => {
    stopped = true;
  };
  process.once("SIGINT", stop);
  process.once("SIGTERM", stop);
  let reason: string = "stalled";
  try {
    for (;;) {
      const done = stopped ? "stopped" : minimizer.finished();
      if (done !== null) {
        reason = done;
        break;
      }
      const began = performance.now();
      if (!minimizer.step()) break;
      record?.step(minimizer, began);
      const { iteration, value, gradient } = minimizer.progress;
      const line = `iteration ${iteration}  infidelity ${value.toExponential(3)}  gradient ${gradient.toExponential(1)}`;
      progress.update(line, iteration, minimizer.options.iterations);
      if (saved !== null && iteration % 10 === 0) await minimizer.save(saved);
      // Signal handlers run only between iterations.
      await setImmediate();
    }
    if (saved !== null) await minimizer.save(saved);
  } finally {
    progress.clear();
    process.off("SIGINT", stop);
    process.off("SIGTERM", stop);
  }
  return reason;
}

const reasons: Record<string, string> = {
  gradient: "the gradient is below the tolerance",
  target: "the target is reached",
  iterations: "all iterations are done",
  stalled: "no step lowers the value further",
  stopped: "stopped; continue with --resume",
};

function report(
  work: Work,
  r: {
    device: string;
    reason: string;
    iteration: number;
    evaluations: number;
    value: number;
    error: number;
    costs: Record<string, number>;
    gradient: number;
    seconds: number;
    values: readonly number[];
  },
  params: NamedParameters,
): string {
  const shown = (t: Tensor): string =>
    t.size === 1 ? t.itemSync().toPrecision(9) : `${t.size} values, largest ${t.abs().max().itemSync().toPrecision(5)}`;
  return [
    work.explain,
    `${work.name} on ${r.device}: infidelity ${r.values[0]!.toExponential(4)} -> ${withError(r.value, r.error)} in ${r.iteration} iterations, ` +
      `${r.evaluations} evaluations, ${time(r.seconds * 1e6)}: ${reasons[r.reason]}; gradient ${r.gradient.toExponential(1)}`,
    ...(Object.keys(r.costs).length === 0 ? [] : [costLine(r.costs)]),
    table(
      ["parameter", "value"],
      Object.entries(params).map(([key, t]) => [key, shown(t)]),
    ),
  ].join("\n\n");
}

async function write(folder: string, name: string, params: NamedParameters, values: readonly number[]): Promise<void> {
  writeFiles(folder, {
    "values.csv": csv(
      ["iteration", "infidelity"],
      values.map((v, i) => [i, v]),
    ),
    "parameters.json": parametersText(params),
  });
  const { convergenceChart, writePictures } = await import("./quantum-chart.js");
  await writePictures(folder, { convergence: convergenceChart(name, values) });
}
