// weft quantum pictures: levels, pulses with spectra, populations, error budget and Bloch sphere of a gate as SVG and PNG.
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import * as weft from "@weft/core";
import * as quantum from "@weft/quantum/internal";
import type { Command } from "commander";
import { attempt, printLines, withProgress } from "../terminal/index.js";
import { engineWork } from "./engine-work.js";
import { loadProblem, physical } from "./quantum-run.js";

interface Options {
  out: string;
  set?: string[];
  png?: boolean;
  device?: string;
}

export default function add(program: Command): void {
  program
    .command("pictures")
    .description("Draw levels, pulses, populations and the error budget of a gate.")
    .argument("<file>", "specification, YAML or JSON")
    .option("--out <dir>", "folder of the pictures", "pictures")
    .option("--set <key=value...>", "override parameters of the device, or keys of the file: evolution.steps=200")
    .option("--png", "write PNG beside SVG")
    .option("--device <name>", "cpu, cuda, cuda:1, reference")
    .addHelpText(
      "after",
      "\nExamples:\n  weft quantum pictures gate.yaml\n  weft quantum pictures gate.yaml --out runs/gate --png",
    )
    .action((file: string, options: Options) => attempt(() => engineWork(() => run(file, options))));
}

async function run(file: string, options: Options): Promise<void> {
  if (options.device !== undefined) physical(() => weft.setDevice(options.device!));
  const problem = loadProblem(file, options.set);
  mkdirSync(options.out, { recursive: true });
  const names = await withProgress(async (progress) => {
    const pictures = physical(() => draws(problem));
    for (const [i, [name, draw]] of pictures.entries()) {
      progress.update(`drawing ${name}`, i, pictures.length);
      // The line is written before the work, which blocks.
      await new Promise(setImmediate);
      const svg = physical(draw);
      writeFileSync(join(options.out, `${name}.svg`), svg);
      if (!options.png) continue;
      const { renderPng } = await import("@weft/lab/internal/report");
      writeFileSync(join(options.out, `${name}.png`), await renderPng(svg));
    }
    return pictures.map(([name]) => name);
  });
  printLines(`${names.map((name) => join(options.out, `${name}.svg`)).join("\n")}\n`);
}

type Picture = [name: string, draw: () => string];

/** The pictures by name, as functions: each takes a while. */
export function draws(problem: quantum.GateProblem): Picture[] {
  const { name } = problem.spec;
  const pulses = quantum
    .pulseLines(problem)
    .map(({ name, times, values, band }) => ({ name: band ? `${name} (envelope)` : name, x: times, y: values }));
  const all: Picture[] = [
    ["levels", () => levelsPicture(problem)],
    ["populations", () => populationsPicture(problem)],
    ["budget", () => quantum.errorBudgetSvg(quantum.errorBudget(problem), `${name}: error budget`)],
  ];
  if (pulses.length > 0) all.push(["pulses", () => quantum.pulsesSvg(pulses, `${name}: pulses and their spectra`)]);
  return all;
}

function levelsPicture(problem: quantum.GateProblem): string {
  const { name, device } = problem.spec;
  const levels = problem.bind().levels();
  const columns = device.names.map((part) => {
    const energies = Array.from(levels[part]!.energies.dataSync() as Float64Array, (e) => e / (2 * Math.PI));
    return { name: part, levels: energies.map((e, k) => ({ label: `|${k}>`, energy: e - energies[0]! })) };
  });
  return quantum.levelsSvg(columns, `${name}: levels of the parts`);
}

function populationsPicture(problem: quantum.GateProblem): string {
  const { labels, times, weights, from } = problem.populations(800);
  const peak = (s: number): number => Math.max(...weights.map((row) => row[s]!));
  const shown = labels
    .map((_, s) => s)
    .sort((a, b) => peak(b) - peak(a))
    .slice(0, 6);
  const lines = shown.map((s) => ({ name: `|${labels[s]}>`, x: times, y: weights.map((row) => row[s]!) }));
  return quantum.populationsSvg(lines, `${problem.spec.name}: populations from |${from}>`);
}
