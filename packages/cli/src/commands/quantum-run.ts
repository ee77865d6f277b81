// weft quantum run: spectrum, evolution, fidelity and gradient of a gate specification.
import { writeFileSync } from "node:fs";
import { basename, extname } from "node:path";
import * as weft from "@weft/core";
import * as quantum from "@weft/quantum/internal";
import type { Command } from "commander";
import {
  attempt,
  CommandError,
  interrupted,
  isInterrupted,
  note,
  printJson,
  printText,
  table,
  time,
  withProgress,
  wrongUsage,
} from "../terminal/index.js";
import { engineWork } from "./engine-work.js";
import { readWithSettings } from "./yaml-file.js";

interface Options {
  device?: string;
  json?: boolean;
  /** True: named after the specification file. */
  plot?: string | true;
  gradient: boolean;
  set?: string[];
}

const help = `
Examples:
  weft quantum run gate.yaml
  weft quantum run gate.yaml --set q0.x.amplitude=0.06 q0.el=0.95
  weft quantum run gate.yaml --device cuda --json
  weft quantum run gate.yaml --plot             writes gate.png
  weft quantum run gate.yaml --plot pulses.svg

gate.yaml:
  device: {chain: {kind: fluxonium, qubits: 2, el: [0.9, 1.0], jc: 0.02, jl: -0.002}}    # GHz
  pulses: [{recipe: X, on: all, length: 50}]                                            # ns
  evolution: {steps: 5000, method: trotter2}
  target: {gate: X, compensation: virtual-z}
All keys: docs/quantum.md.`;

export default function add(program: Command): void {
  program
    .command("run")
    .description("Spectrum, evolution, fidelity and gradient of one gate.")
    .argument("<file>", "specification, YAML or JSON")
    .option("--device <name>", "cpu, cuda, cuda:1, reference")
    .option("--set <key=value...>", "override parameters of the device, or keys of the file: evolution.steps=200")
    .option("--no-gradient", "skip the gradient")
    .option("--plot [file]", "plot pulses and populations as .png or .svg (default: named after the specification)")
    .option("--json", "write the result as JSON to standard output")
    .addHelpText("after", help)
    .action((file: string, options: Options) => attempt(() => engineWork(() => run(file, options))));
}

/** Reads the problem of a file and applies --set; mistakes are reported without a stack trace. */
export function loadProblem(file: string, set: readonly string[] = []): quantum.GateProblem {
  const { text, rest } = readWithSettings(file, set, quantum.gateSections);
  const spec = physical(() => quantum.parseGateSpec(text, basename(file, extname(file))), wrongUsage);
  for (const entry of rest) {
    const [key, value, ...more] = entry.split("=");
    if (value === undefined || more.length > 0 || !Number.isFinite(Number(value)) || value === "")
      throw new CommandError(`--set ${entry}: write key=number`, wrongUsage);
    try {
      quantum.setParameter(spec, key, Number(value));
    } catch (error) {
      throw new CommandError(`--set ${entry}: ${(error as Error).message}`, wrongUsage);
    }
  }
  return physical(() => new quantum.GateProblem(spec), wrongUsage);
}

/** Reports errors of the model without a stack trace. */
export function physical<T>(work: () => T, exitCode?: number): T {
  try {
    return work();
  } catch (error) {
    if (isInterrupted(error)) throw new CommandError(error.message, interrupted);
    if (error instanceof weft.WeftError) throw new CommandError(error.message, exitCode);
    throw error;
  }
}

async function run(file: string, options: Options): Promise<void> {
  if (options.device !== undefined) physical(() => weft.setDevice(options.device!));
  const problem = loadProblem(file, options.set);
  const result = await withProgress((progress) =>
    physical(() => compute(problem, options.gradient, progress.update.bind(progress))),
  );
  const picture = options.plot === true ? `${basename(file, extname(file))}.png` : options.plot;
  if (picture !== undefined) await plot(problem, picture);
  if (options.json) {
    printJson(result);
    return;
  }
  printText(`${report(result)}\n`);
  if (picture !== undefined) note(`wrote ${picture}`);
}

interface Result {
  name: string;
  device: string;
  spectrum: quantum.SpectrumRow[] | { refused: string };
  method: string;
  gradientMethod: string;
  steps: number;
  target: string;
  compensation: string;
  measure: string;
  infidelity: number;
  error: number;
  leaked: number | null;
  smallestEigenvalue: number | null;
  nominal: number | null;
  costs: Record<string, number>;
  gradient: Record<string, number | number[]> | null;
  seconds: { firstCall: number; again: number };
}

function compute(problem: quantum.GateProblem, withGradient: boolean, onPart: quantum.PartListener): Result {
  const { spec } = problem;
  const outcome = problem.outcome(problem.bind());
  // Value and gradient are evaluated twice after the parts of the report; each takes about as long as three of them.
  const timedParts = withGradient ? 3 : 1;
  let reported = 0;
  const checked = problem.report({}, (what, done, parts) => {
    reported = parts;
    onPart(what, done, parts + 2 * timedParts);
  });
  let spectrum: Result["spectrum"];
  try {
    spectrum = quantum.spectrum(problem.bind());
  } catch (error) {
    if (!(error instanceof weft.WeftError)) throw error;
    spectrum = { refused: error.message };
  }
  const both = (p: quantum.DeviceParameters): [weft.Tensor, quantum.DeviceParameters | null] =>
    withGradient ? weft.valueAndGrad(problem.loss)(p) : [problem.loss(p), null];
  const program = weft.jit(both);
  const p = problem.learned();
  const timed = (call: number): [number, [weft.Tensor, quantum.DeviceParameters | null]] => {
    onPart(withGradient ? "value and gradient" : "value", reported + call * timedParts, reported + 2 * timedParts);
    const start = performance.now();
    const made = program(p);
    made[0].itemSync();
    return [(performance.now() - start) / 1e3, made];
  };
  const [firstCall, [value, gradient]] = timed(0);
  const [again] = timed(1);
  if (!Number.isFinite(value.itemSync()))
    throw new weft.WeftError("the infidelity is not a number; a parameter is out of range");
  const numbers = (x: weft.Tensor): number | number[] =>
    x.rank === 0 ? x.itemSync() : Array.from(x.dataSync() as Float64Array);
  return {
    name: spec.name,
    device: weft.session().device.name,
    spectrum,
    method: outcome.evolution.method.name,
    gradientMethod: outcome.evolution.gradient.kind,
    steps: outcome.evolution.steps,
    target: spec.target.name,
    compensation: spec.target.compensation,
    measure: spec.target.measure,
    ...checked,
    gradient: gradient === null ? null : Object.fromEntries(Object.entries(gradient).map(([k, x]) => [k, numbers(x)])),
    seconds: { firstCall, again },
  };
}

function report(r: Result): string {
  const lines = [`${r.name} on ${r.device}`];
  if ("refused" in r.spectrum) {
    const [reason] = r.spectrum.refused.replace(/^spectrum: /, "").split(/[:;] /);
    lines.push(`no table of dressed levels, which the result does not need: ${reason}`);
  } else
    lines.push(
      table(
        ["state", "GHz", "overlap with product state"],
        r.spectrum.map(({ label, energy, overlap }) => [`|${label}>`, energy.toFixed(9), overlap.toFixed(6)]),
      ),
    );
  lines.push(
    `evolution: ${r.steps} steps of ${r.method}, gradient by ${r.gradientMethod}; first call ${time(r.seconds.firstCall * 1e6)}, then ${time(r.seconds.again * 1e6)}`,
    `target ${r.target}, compensation ${r.compensation}: ${r.measure} infidelity ${quantum.withError(r.infidelity, r.error)}` +
      (r.nominal === null ? "" : ` over the ensemble, ${quantum.withError(r.nominal, r.error)} nominal`) +
      (r.leaked === null ? "" : `, leaked ${r.leaked.toExponential(3)}`) +
      (r.smallestEigenvalue === null ? "" : `, smallest eigenvalue ${r.smallestEigenvalue.toExponential(1)}`),
    ...(Object.keys(r.costs).length === 0 ? [] : [costLine(r.costs)]),
  );
  if (r.gradient !== null)
    lines.push(
      table(
        ["parameter", "d infidelity"],
        Object.entries(r.gradient).map(([key, x]) => [
          key,
          typeof x === "number" ? x.toPrecision(9) : `${x.length} values, norm ${Math.hypot(...x).toPrecision(6)}`,
        ]),
      ),
    );
  return lines.join("\n\n");
}

/** Running costs as one line. */
export const costLine = (costs: Readonly<Record<string, number>>): string =>
  `running costs: ${Object.entries(costs)
    .map(([name, x]) => `${name} ${x.toPrecision(4)}`)
    .join(", ")}`;

/** Writes the chart of pulses and populations. */
async function plot(problem: quantum.GateProblem, file: string): Promise<void> {
  const kind = extname(file);
  if (kind !== ".png" && kind !== ".svg") throw new CommandError(`--plot ${file}: write a .png or .svg`, wrongUsage);
  const { gateChart } = await import("./quantum-chart.js");
  const { renderPng, renderSvg } = await import("@weft/lab/internal/report");
  const svg = await renderSvg(physical(() => gateChart(problem)));
  writeFileSync(file, kind === ".svg" ? svg : await renderPng(svg));
}
