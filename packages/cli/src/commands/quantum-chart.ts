// The picture of a gate: its pulses, and where the state goes that it starts in, with the file's decay. Carriers are drawn
// with twenty points a period; those too fast to be seen as the band that they fill.

import * as weft from "@weft/core";
import { framed, type Spec } from "@weft/lab";
import type * as quantum from "@weft/quantum";

const f64 = { dtype: "float64" } as const;
const pointsPerPeriod = 20;
const minPoints = 400;
/** Beyond this a period is narrower than a few pixels. */
const maxPoints = 4000;

export interface PulseLine {
  name: string;
  /** The pulse itself, or (band) the envelope whose carrier fills it. */
  band: boolean;
  times: number[];
  values: number[];
}

/** Points of one pulse over the whole evolution. */
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

function pulsePanel(lines: readonly PulseLine[]): Spec {
  const rows = (band: boolean): object[] =>
    lines
      .filter((line) => line.band === band)
      .flatMap(({ name, times, values }) =>
        times.map((t, k) => ({ t, value: values[k], below: -values[k], line: name })),
      );
  const y = { field: "value", type: "quantitative", title: "rad/ns" };
  const layers: Spec[] = [];
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

/** Product states that are drawn: those that matter most at some time. */
const maxStates = 6;

export function chart(problem: quantum.GateProblem): Spec {
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
  const populationPanel: Spec = {
    width: 620,
    height: 220,
    data: { values: populations },
    mark: { type: "line", strokeWidth: 1.5 },
    encoding: { x: axis, y: { field: "value", type: "quantitative", title: "population" }, color: lineColor },
  };
  return framed(
    {
      title: problem.spec.name,
      subtitle: `pulses${pulses.some(({ band }) => band) ? " (fast carriers as bands)" : ""}, and the populations from |${from}> on, ${open ? "with decay" : "without decay"}`,
      description: `Pulses and populations of ${problem.spec.name} over ${duration} ns.`,
    },
    {
      vconcat: [...(pulses.length > 0 ? [pulsePanel(pulses)] : []), populationPanel],
      resolve: { scale: { color: "independent" } },
    },
  );
}
