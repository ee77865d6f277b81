// weft quantum pictures: levels, pulses with spectra, populations, error budget and Bloch sphere of a gate as SVG and PNG.
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import * as weft from "@weft/core";
import { renderPng } from "@weft/lab/internal";
import * as quantum from "@weft/quantum";
import type { Command } from "commander";
import { attempt, printLines } from "../terminal/index.js";
import { engineWork } from "./engine-work.js";
import { loadProblem, physical } from "./quantum-run.js";

interface Options {
  out: string;
  set?: string[];
  png?: boolean;
  device?: string;
}

export function add(program: Command): void {
  program
    .command("pictures")
    .description("Draw levels, pulses, populations and the error budget of a gate.")
    .argument("<file>", "specification, YAML or JSON")
    .option("--out <dir>", "folder of the pictures", "pictures")
    .option("--set <key=value...>", "override parameters of the device, or keys of the file: evolution.steps=200")
    .option("--png", "write PNG beside SVG")
    .option("--device <name>", "cpu, cuda, cuda:1, reference")
    .action((file: string, options: Options) => attempt(() => engineWork(() => run(file, options))));
}

async function run(file: string, options: Options): Promise<void> {
  if (options.device !== undefined) physical(() => weft.setDevice(options.device!));
  const problem = loadProblem(file, options.set);
  const pictures = physical(() => draw(problem));
  mkdirSync(options.out, { recursive: true });
  for (const [name, svg] of Object.entries(pictures)) {
    writeFileSync(join(options.out, `${name}.svg`), svg);
    if (options.png) writeFileSync(join(options.out, `${name}.png`), await renderPng(svg));
  }
  printLines(
    `${Object.keys(pictures)
      .map((name) => join(options.out, `${name}.svg`))
      .join("\n")}\n`,
  );
}

/** The pictures by name. */
export function draw(problem: quantum.GateProblem): Record<string, string> {
  const { spec } = problem;
  const bound = problem.bind();
  const levels = bound.levels();
  const columns = spec.device.names.map((name) => {
    const energies = Array.from(levels[name]!.energies.dataSync() as Float64Array, (e) => e / (2 * Math.PI));
    return { name, levels: energies.map((e, k) => ({ label: `|${k}⟩`, energy: e - energies[0]! })) };
  });
  const pulses = quantum.pulseLines(problem).map(({ name, times, values, band }) => ({
    name: band ? `${name} (envelope)` : name,
    x: times,
    y: values,
  }));
  const { labels, times, weights, from } = problem.populations();
  const peak = (s: number): number => Math.max(...weights.map((row) => row[s]!));
  const shown = labels
    .map((_, s) => s)
    .sort((a, b) => peak(b) - peak(a))
    .slice(0, 6);
  const populations = shown.map((s) => ({ name: `|${labels[s]}⟩`, x: times, y: weights.map((row) => row[s]!) }));
  const drawn: Record<string, string> = {
    levels: quantum.levelsSvg(columns, `${spec.name}: levels of the parts`),
    populations: quantum.populationsSvg(populations, `${spec.name}: populations from |${from}⟩`),
    budget: quantum.errorBudgetSvg(quantum.errorBudget(problem), `${spec.name}: error budget`),
  };
  if (pulses.length > 0) drawn.pulses = quantum.pulsesSvg(pulses, `${spec.name}: pulses and their spectra`);
  return drawn;
}
