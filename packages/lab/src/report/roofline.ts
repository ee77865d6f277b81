// The roofline of the trace page: operators by their intensity and achieved rate in a logarithmic plot, as SVG. Colors come from
// the page's variables, so that it follows light and dark.
import type { OperatorReport, OperatorRow } from "../trace/index.js";

const width = 760;
const height = 330;
const margin = { left: 64, right: 16, top: 14, bottom: 42 };
const mostDots = 24;

const escape = (text: string): string => text.replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);
const decades = (from: number, to: number): number[] => Array.from({ length: to - from + 1 }, (_, i) => from + i);
const label = (power: number): string => (power >= -2 && power <= 4 ? String(10 ** power) : `1e${power}`);

/** The plot, or an empty text where no operator has both operations and bytes or the device is unknown. */
export function rooflineSvg({ rows, peaks }: OperatorReport): string {
  const dots = rows
    .filter(
      (row): row is OperatorRow & { intensity: number; tflops: number } =>
        row.intensity !== null && row.tflops !== null,
    )
    .slice(0, mostDots);
  if (dots.length === 0 || peaks === null) return "";
  const roofs = Object.entries(peaks.tflops).filter(([precision]) => dots.some((dot) => dot.precision === precision));
  const top = Math.max(1e-3, ...roofs.map(([, rate]) => rate), ...dots.map((dot) => dot.tflops));
  const bandwidth = peaks.bandwidthGBps / 1000;
  const xs = dots.map((dot) => Math.log10(dot.intensity));
  const fromX = Math.floor(Math.min(0, ...xs));
  const toX = Math.ceil(Math.max(Math.log10(top / bandwidth) + 0.5, ...xs));
  const fromY = Math.floor(Math.min(-1, ...dots.map((dot) => Math.log10(dot.tflops))));
  const toY = Math.ceil(Math.log10(top) + 0.01);
  const x = (power: number): number =>
    margin.left + ((power - fromX) / (toX - fromX)) * (width - margin.left - margin.right);
  const y = (power: number): number =>
    height - margin.bottom - ((power - fromY) / (toY - fromY)) * (height - margin.top - margin.bottom);
  const grid = [
    ...decades(fromX, toX).map(
      (p) =>
        `<line class="grid" x1="${x(p)}" x2="${x(p)}" y1="${margin.top}" y2="${height - margin.bottom}"/><text x="${x(p)}" y="${height - margin.bottom + 16}" text-anchor="middle">${label(p)}</text>`,
    ),
    ...decades(fromY, toY).map(
      (p) =>
        `<line class="grid" x1="${margin.left}" x2="${width - margin.right}" y1="${y(p)}" y2="${y(p)}"/><text x="${margin.left - 6}" y="${y(p) + 4}" text-anchor="end">${label(p)}</text>`,
    ),
  ];
  // Memory limits the rate up to the ridge, the arithmetic beyond it.
  const lines = roofs.map(([precision, rate]) => {
    const ridge = Math.min(toX, Math.max(fromX, Math.log10(rate / bandwidth)));
    const low = Math.max(fromY, fromX + Math.log10(bandwidth));
    const lowX = low - Math.log10(bandwidth);
    const roofY = y(Math.log10(rate));
    return `<polyline class="roof" points="${x(lowX)},${y(low)} ${x(ridge)},${roofY} ${x(toX)},${roofY}"/><text x="${width - margin.right - 4}" y="${roofY - 5}" text-anchor="end">${precision}: ${rate} TFLOP/s</text>`;
  });
  const longest = Math.max(...dots.map((dot) => dot.deviceUs));
  const marks = dots.map((dot) => {
    const radius = 4 + 9 * Math.sqrt(dot.deviceUs / longest);
    const about = `${dot.name} ${dot.shapes}: ${dot.tflops.toPrecision(3)} TFLOP/s at ${dot.intensity.toPrecision(3)} FLOP per byte, ${dot.roofPercent === null ? "roof unknown" : `${dot.roofPercent.toFixed(1)}% of the roof`}`;
    return `<circle class="dot" cx="${x(Math.log10(dot.intensity))}" cy="${y(Math.log10(dot.tflops))}" r="${radius.toFixed(1)}" tabindex="0"><title>${escape(about)}</title></circle>`;
  });
  // The names of the operators with the most time; further ones are in the table and in the titles of the dots.
  const placed: { x: number; y: number }[] = [];
  const names = dots.slice(0, 5).map((dot) => {
    const at = { x: x(Math.log10(dot.intensity)) + 16, y: y(Math.log10(dot.tflops)) + 4 };
    while (placed.some((other) => Math.abs(other.x - at.x) < 150 && Math.abs(other.y - at.y) < 13)) at.y += 13;
    placed.push(at);
    return `<text class="name" x="${at.x}" y="${at.y}">${escape(dot.name.replace("aten::", "").slice(0, 32))}</text>`;
  });
  return `<svg id="roofline" viewBox="0 0 ${width} ${height}" role="img" aria-label="Roofline of ${escape(peaks.name)}">${[...grid, ...lines, ...marks, ...names].join("")}<text x="${(width + margin.left) / 2}" y="${height - 6}" text-anchor="middle">FLOP per byte</text><text transform="translate(14 ${height / 2}) rotate(-90)" text-anchor="middle">TFLOP/s</text></svg>`;
}
