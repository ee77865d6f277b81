// Chart of a gate: its pulses, and the populations over time. Carriers are drawn with twenty points per period; carriers too fast
// to resolve are drawn as the band of their envelope.

import * as weft from "@weft/core";
import { type ChartSpec, framed } from "@weft/lab/internal";
import type * as quantum from "@weft/quantum";

const f64 = { dtype: "float64" } as const;
const pointsPerPeriod = 20;
const minPoints = 400;
/** With more points a period is only a few pixels wide. */
const maxPoints = 4000;

interface PulseLine {
  name: string;
  /** Whether the values are an envelope whose carrier is too fast to draw. */
  band: boolean;
  times: number[];
  values: number[];
}

/** Samples of one pulse over the evolution. */
export function pulseLine(
  name: string,
  pulse: quantum.Pulse,
  parameters: Record<string, weft.Tensor>,
  duration: number,
): PulseLine {
  const omega = Math.abs(parameters.omega?.itemSync() ?? 0);
  const wanted = Math.ceil((pointsPerPeriod * omega * duration) / (2 * Math.PI));
  const band = wanted > maxPoints;
  const count = band ? minPoints : Math.max(minPoints, wanted);
  const times = Array.from({ length: count + 1 }, (_, k) => (k * duration) / count);
  const still = Object.fromEntries(
    Object.entries(parameters).map(([key, x]) => [key, key === "omega" || key === "phase" ? x.mul(0) : x]),
  );
  const values = pulse.at(weft.tensor(times, f64), band ? still : parameters);
  return { name, band, times, values: Array.from(values.dataSync() as Float64Array) };
}

const axis = { field: "t", type: "quantitative", title: "ns", scale: { nice: false } };
const lineColor = { field: "line", type: "nominal", title: null };

function pulsePanel(lines: readonly PulseLine[]): ChartSpec {
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
  const pulses = problem.spec.device.drives.map((drive) =>
    pulseLine(`${drive.on}.${drive.name}`, drive.pulse, bound.pulseParameters(drive), duration),
  );
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
