// Pictures of evolutions and devices: populations, pulses with their spectrum, level diagrams, and the budget of errors.
import { WeftError } from "@weft/core/internal/graph";
import {
  axes,
  label,
  legend,
  line,
  linearScale,
  logScale,
  type PanelBox,
  polyline,
  seriesColors,
  short,
  svgDocument,
} from "@weft/formats/svg";

/** Curves over one axis. */
interface Curve {
  /** Name in the legend. */
  name: string;
  /** Positions, such as times in ns. */
  x: readonly number[];
  /** Values. */
  y: readonly number[];
}

const extent = (values: readonly number[]): [number, number] => {
  const [low, high] = values.reduce(([a, b], v) => [Math.min(a, v), Math.max(b, v)], [Infinity, -Infinity]);
  if (!Number.isFinite(low) || !Number.isFinite(high)) throw new WeftError("picture: a curve has no finite values");
  return low === high ? [low - 0.5, high + 0.5] : [low, high];
};

const colorOf = (k: number): string => seriesColors[k % seriesColors.length];

function panel(
  curves: readonly Curve[],
  box: PanelBox,
  names: { x: string; y: string },
  range?: [number, number],
): string {
  const own = extent(curves.flatMap(({ y }) => [...y]));
  const [low, high] = range ?? own;
  const room = range === undefined ? 0.05 * (high - low) : 0;
  const x = linearScale(extent(curves.flatMap((c) => [...c.x])), [box.left, box.left + box.width]);
  const y = linearScale([low - room, high + room], [box.top + box.height, box.top]);
  return [
    axes(box, x, y, names),
    ...curves.map((c, k) =>
      polyline(
        c.x.map((t, i) => [x.at(t), y.at(c.y[i])] as const),
        colorOf(k),
      ),
    ),
  ].join("\n");
}

/** Populations (or other expectation values) over time in ns. */
export const populationsSvg = (curves: readonly Curve[], title = "Populations"): string =>
  svgDocument(
    { width: 680, height: 360 },
    { title, description: `${curves.length} curves over time: ${curves.map(({ name }) => name).join(", ")}.` },
    panel(curves, { left: 76, top: 52, width: 450, height: 240 }, { x: "time in ns", y: "population" }, [0, 1]) +
      legend(
        548,
        66,
        curves.map(({ name }) => name),
      ),
  );

/** Magnitude of the spectrum of samples at equal distances: frequencies in GHz for times in ns. */
export function spectrumOf({ x, y }: Curve, highest: number, count = 400): { x: number[]; y: number[] } {
  const dt = x[1] - x[0];
  const frequencies = Array.from({ length: count + 1 }, (_, k) => (highest * k) / count);
  const magnitude = frequencies.map((f) => {
    let [re, im] = [0, 0];
    y.forEach((value, k) => {
      const angle = 2 * Math.PI * f * x[k];
      re += value * Math.cos(angle);
      im -= value * Math.sin(angle);
    });
    return Math.hypot(re, im) * dt;
  });
  return { x: frequencies, y: magnitude };
}

/** Pulses over time and their spectra. The samples must resolve the carriers. */
export function pulsesSvg(curves: readonly Curve[], title = "Pulses and their spectra"): string {
  if (curves.some(({ x }) => x.length < 3)) throw new WeftError("pulsesSvg: a pulse needs at least three samples");
  const highest = Math.min(...curves.map(({ x }) => 0.25 / (x[1] - x[0])));
  const spectra = curves.map((curve) => ({ ...curve, ...spectrumOf(curve, highest) }));
  const peak = Math.max(...spectra.flatMap(({ y }) => y));
  const last = spectra[0].x.findLast((_, k) => spectra.some(({ y }) => y[k] > 0.03 * peak)) ?? highest;
  const cut = Math.min(highest, 1.25 * last);
  // A second pass resolves the lines.
  const zoomed = curves.map((curve) => ({ name: curve.name, ...spectrumOf(curve, cut, 1000) }));
  const names = { x: "time in ns", y: "amplitude in rad/ns" };
  return svgDocument(
    { width: 680, height: 620 },
    {
      title,
      description: `Pulses ${curves.map(({ name }) => name).join(", ")} and their spectra up to ${short(cut)} GHz.`,
    },
    [
      panel(curves, { left: 76, top: 52, width: 450, height: 210 }, names),
      panel(zoomed, { left: 76, top: 330, width: 450, height: 210 }, { x: "frequency in GHz", y: "spectrum in rad" }),
      legend(
        548,
        66,
        curves.map(({ name }) => name),
      ),
    ].join("\n"),
  );
}

/** Columns of levels with their energies in GHz. */
interface LevelColumn {
  /** Name of the part. */
  name: string;
  /** Levels with their energies. */
  levels: readonly { label: string; energy: number }[];
}

/** Level diagram: one column per part (or one for the whole device), with labels that do not overlap. */
export function levelsSvg(columns: readonly LevelColumn[], title = "Levels"): string {
  const [each, top, height] = [190, 70, 320];
  const [low, high] = extent(columns.flatMap(({ levels }) => levels.map(({ energy }) => energy)));
  const y = linearScale([low - 0.06 * (high - low), high + 0.06 * (high - low)], [top + height, top]);
  const body = columns.map(({ name, levels }, c) => {
    const left = 84 + each * c;
    let free = Number.POSITIVE_INFINITY;
    const sorted = [...levels].sort((a, b) => a.energy - b.energy);
    return [
      label(left + 35, top - 10, name, { anchor: "middle", kind: "ink" }),
      ...sorted.map(({ label: text, energy }) => {
        // Labels move up where levels are close, and a line joins them with their level.
        const at = y.at(energy);
        const place = Math.min(at, free - 15);
        free = place;
        return (
          `<line stroke="${colorOf(c)}" stroke-width="2.5" x1="${left}" x2="${left + 70}" y1="${at.toFixed(1)}" y2="${at.toFixed(1)}"/>` +
          line([left + 72, at], [left + 82, place], "grid") +
          label(left + 85, place + 4, `${text}  ${energy.toFixed(3)}`)
        );
      }),
    ].join("\n");
  });
  const bottom = top + height;
  const ticks = y.ticks.map(
    (t) => label(66, y.at(t) + 4, y.show(t), { anchor: "end" }) + line([70, y.at(t)], [76, y.at(t)], "axis"),
  );
  return svgDocument(
    { width: Math.max(360, 110 + each * columns.length), height: bottom + 40 },
    {
      title,
      description: columns
        .map(({ name, levels }) => `${name}: ${levels.map((l) => `${l.label} ${l.energy.toFixed(4)} GHz`).join(", ")}`)
        .join("; "),
    },
    [...ticks, label(20, top + height / 2, "energy in GHz", { anchor: "middle", turned: true }), ...body].join("\n"),
  );
}

/** One contribution to an infidelity. */
export interface ErrorShare {
  /** Cause of the error. */
  name: string;
  /** Its contribution to the infidelity. */
  value: number;
}

/** Contributions to an infidelity as bars on a logarithmic scale. */
export function errorBudgetSvg(shares: readonly ErrorShare[], title = "Error budget"): string {
  const positive = shares.filter(({ value }) => value > 0).map(({ value }) => value);
  const box: PanelBox = { left: 210, top: 56, width: 360, height: 30 * shares.length };
  const x = logScale(
    [Math.max(1e-16, Math.min(...positive, 1e-3) / 2), Math.max(...positive, 1e-15)],
    [box.left, box.left + box.width],
  );
  const bottom = box.top + box.height;
  return svgDocument(
    { width: 680, height: bottom + 60 },
    { title, description: shares.map(({ name, value }) => `${name} ${value.toExponential(2)}`).join(", ") },
    [
      ...x.ticks.map((t) => line([x.at(t), box.top], [x.at(t), bottom], "grid")),
      ...x.ticks.map((t) => label(x.at(t), bottom + 18, x.show(t), { anchor: "middle" })),
      label(box.left + box.width / 2, bottom + 40, "contribution to the infidelity", { anchor: "middle" }),
      ...shares.map(({ name, value }, k) => {
        const top = box.top + 30 * k;
        const end = value > 0 ? Math.max(2, x.at(value) - box.left) : 0;
        return (
          label(box.left - 10, top + 20, name, { anchor: "end", kind: "ink" }) +
          `<rect x="${box.left}" y="${top + 6}" width="${end.toFixed(1)}" height="18" rx="3" fill="${colorOf(k === 0 ? 0 : 1)}"/>` +
          label(box.left + end + 8, top + 20, value.toExponential(2))
        );
      }),
    ].join("\n"),
  );
}
