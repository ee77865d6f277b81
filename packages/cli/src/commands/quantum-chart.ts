// Charts of `weft quantum`: a gate, the convergence of an optimization, meta-training. Commands load this module when they draw,
// because the lab and its renderer take as long to load as the engine.
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { type ChartSpec, framed, gray, palette, renderPng, renderSvg } from "@weft/lab/internal/report";
import * as quantum from "@weft/quantum/internal";
import { writeFiles } from "../terminal/index.js";
import type { Curves } from "./quantum-meta.js";

const axis = { field: "t", type: "quantitative", title: "ns", scale: { nice: false } };
const lineColor = { field: "line", type: "nominal", title: null };

function pulsePanel(lines: readonly quantum.PulseLine[]): ChartSpec {
  const rows = (band: boolean): object[] =>
    lines
      .filter((line) => line.band === band)
      .flatMap(({ name, times, values }) =>
        times.map((t, k) => ({ t, value: values[k], below: -values[k], line: name })),
      );
  const y = { field: "value", type: "quantitative", title: "rad/ns" };
  const layers: ChartSpec[] = [];
  if (lines.some(({ band }) => !band))
    layers.push({
      data: { values: rows(false) },
      mark: { type: "line", strokeWidth: 1.5 },
      encoding: { x: axis, y, color: lineColor },
    });
  if (lines.some(({ band }) => band))
    layers.push({
      data: { values: rows(true) },
      mark: { type: "area", opacity: 0.35, line: true },
      encoding: { x: axis, y, y2: { field: "below" }, color: lineColor },
    });
  return { width: 620, height: 220, layer: layers };
}

/** Number of product states that are drawn: those with the largest peak population. */
const maxStates = 6;

/** Vega-Lite specification of the chart. */
export function gateChart(problem: quantum.GateProblem): ChartSpec {
  const bound = problem.bind();
  const duration = problem.spec.evolution.duration ?? bound.duration().itemSync();
  const pulses = quantum.pulseLines(problem);
  const { labels, times, weights, from, open } = problem.populations();
  const peak = (s: number): number => Math.max(...weights.map((row) => row[s]));
  const shown = labels
    .map((_, s) => s)
    .sort((a, b) => peak(b) - peak(a))
    .slice(0, maxStates);
  const populations = shown.flatMap((s) => times.map((t, k) => ({ t, value: weights[k][s], line: `|${labels[s]}>` })));
  const populationPanel: ChartSpec = {
    width: 620,
    height: 220,
    data: { values: populations },
    mark: { type: "line", strokeWidth: 1.5 },
    encoding: { x: axis, y: { field: "value", type: "quantitative", title: "population" }, color: lineColor },
  };
  return framed(
    {
      title: problem.spec.name,
      subtitle: `pulses${pulses.some(({ band }) => band) ? " (fast carriers as bands)" : ""} and populations from |${from}>, ${open ? "with decay" : "without decay"}`,
      description: `Pulses and populations of ${problem.spec.name} over ${duration} ns.`,
    },
    {
      vconcat: [...(pulses.length > 0 ? [pulsePanel(pulses)] : []), populationPanel],
      resolve: { scale: { color: "independent" } },
    },
  );
}

/** Infidelities of the iterations of an optimization. */
export const convergenceChart = (name: string, values: readonly number[]): ChartSpec =>
  framed(
    {
      title: `Optimization of ${name}`,
      subtitle: "infidelity over iterations",
      description: `Infidelity from ${values[0]} to ${values.at(-1)} in ${values.length - 1} iterations.`,
    },
    {
      width: 560,
      height: 340,
      data: { values: values.map((v, i) => ({ iteration: i, lost: Math.max(v, 1e-16) })) },
      mark: { type: "line", color: palette[0] },
      encoding: {
        x: { field: "iteration", type: "quantitative", title: "Iteration" },
        y: { field: "lost", type: "quantitative", title: "Infidelity", scale: { type: "log", nice: false } },
      },
    },
  );

/** Infidelities of tasks and their mean after each step of adaptation. */
export function adaptationChart(curves: Curves): ChartSpec {
  const rows = curves.tasks.flatMap((t, i) =>
    t.map((f, k) => ({ step: k, lost: Math.max(1 - f, 1e-12), task: `task ${i}` })),
  );
  const means = curves.mean.map((f, k) => ({ step: k, lost: Math.max(1 - f, 1e-12) }));
  const x = {
    field: "step",
    type: "quantitative",
    title: "Steps of adaptation",
    axis: { tickMinStep: 1, format: "d" },
  };
  const y = { field: "lost", type: "quantitative", title: "1 - fidelity", scale: { type: "log", nice: false } };
  return framed(
    {
      title: "Adaptation to fresh tasks",
      subtitle: "gray: single tasks; blue: their mean",
      description: `Infidelity after each step of adaptation, mean: ${means.map((m) => m.lost.toExponential(3)).join(", ")}.`,
    },
    {
      width: 560,
      height: 340,
      layer: [
        {
          data: { values: rows },
          mark: { type: "line", color: gray, opacity: 0.5 },
          encoding: { x, y, detail: { field: "task", type: "nominal" } },
        },
        {
          data: { values: means },
          mark: { type: "line", color: palette[0], strokeWidth: 3, point: true },
          encoding: { x, y },
        },
      ],
    },
  );
}

/** Losses and validations of meta-training. */
export function trainingChart(trainer: quantum.MetaTrainer): ChartSpec {
  const rows = [
    ...trainer.metrics.map((m) => ({ iteration: m.iteration, lost: Math.max(m.loss, 1e-12), line: "meta-loss" })),
    ...trainer.validations.map((v) => ({
      iteration: v.iteration,
      lost: Math.max(1 - v.after, 1e-12),
      line: "validation",
    })),
  ];
  return framed(
    {
      title: "Meta-training",
      subtitle: `${trainer.config.batch} tasks, ${trainer.config.inner.steps} steps of adaptation`,
      description: `Infidelity over ${trainer.iteration} iterations of meta-training.`,
    },
    {
      width: 560,
      height: 340,
      data: { values: rows },
      mark: { type: "line" },
      encoding: {
        x: { field: "iteration", type: "quantitative", title: "Iteration" },
        y: { field: "lost", type: "quantitative", title: "1 - fidelity", scale: { type: "log", nice: false } },
        color: { field: "line", type: "nominal", title: null, scale: { range: [palette[5], palette[1]] } },
      },
    },
  );
}

/** Writes each chart as an SVG and a PNG file of its name. */
export async function writePictures(folder: string, charts: Readonly<Record<string, ChartSpec>>): Promise<void> {
  for (const [name, spec] of Object.entries(charts)) {
    const svg = await renderSvg(spec);
    writeFiles(folder, { [`${name}.svg`]: svg });
    writeFileSync(join(folder, `${name}.png`), await renderPng(svg));
  }
}
