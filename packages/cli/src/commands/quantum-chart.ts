// Chart of a gate: its pulses, and the populations over time.

import { type ChartSpec, framed } from "@weft/lab/internal";
import * as quantum from "@weft/quantum/internal";

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
export function chart(problem: quantum.GateProblem): ChartSpec {
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
