// @ts-check
// What the examples share: the arguments `--small` (sizes that take a moment) and `--out DIR`, and simple charts.
import { mkdirSync, writeFileSync } from "node:fs";
import { basename, join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { axes, label, legend, linearScale, logScale, polyline, seriesColors, svgDocument } from "@weft/formats/svg";
import { MachineWitness } from "@weft/lab";

const { values } = parseArgs({ options: { small: { type: "boolean", default: false }, out: { type: "string" } } });

/** Sizes that take a moment, for a first look and for the tests. */
export const small = values.small;

/** The command `weft` of this checkout. */
export const weftCommand = fileURLToPath(new URL("../packages/cli/bin/weft.js", import.meta.url));

/**
 * The folder for pictures: one for each example in `runs`, which is not part of the repository, or the one that `--out` names.
 * @param {string} folder
 */
export function outputFolder(folder) {
  const out = values.out ?? join("runs", "examples", basename(folder));
  mkdirSync(out, { recursive: true });
  return out;
}

/**
 * Writes a picture and says where.
 * @param {string} folder
 * @param {string} name
 * @param {string} svg
 */
export function savePicture(folder, name, svg) {
  const file = join(outputFolder(folder), name);
  writeFileSync(file, svg);
  console.log(`picture: ${relative(process.cwd(), file)}`);
}

/**
 * Throws unless a check holds; prints it otherwise.
 * @param {string} what
 * @param {boolean} holds
 */
export function verify(what, holds) {
  if (!holds) throw new Error(`not verified: ${what}`);
  console.log(`verified: ${what}`);
}

/**
 * Watches the machine during a measurement; call the result for a remark on it, to be shown with the figures.
 * @returns {() => string}
 */
export function watchMachine() {
  const witness = new MachineWitness();
  return () => {
    const { foreignPercent, disturbance } = witness.report();
    if (disturbance !== null) console.log(`These times are not valid: ${disturbance}.`);
    return disturbance === null
      ? "on a quiet machine"
      : `not valid: others used ${foreignPercent.toFixed(0)}% of the cores`;
  };
}

/** @typedef {{ title: string, subtitle?: string, x: string, y: string }} Words */
/** @typedef {{ name: string, x: ArrayLike<number>, y: ArrayLike<number> }} Line */

const box = { left: 76, top: 66, width: 440, height: 250 };
const size = { width: 700, height: 380 };
const colorOf = (/** @type {number} */ k) => seriesColors[k % seriesColors.length];

/**
 * Lines over a common axis; `log` gives logarithmic axes.
 * @param {readonly Line[]} lines
 * @param {Words} words
 * @param {{ logX?: boolean, logY?: boolean }} [options]
 */
export function lineChart(lines, words, { logX = false, logY = false } = {}) {
  const extent = (/** @type {number[]} */ all) =>
    /** @type {[number, number]} */ ([Math.min(...all), Math.max(...all)]);
  const xs = extent(lines.flatMap((line) => Array.from(line.x)));
  const ys = extent(lines.flatMap((line) => Array.from(line.y)));
  const x = (logX ? logScale : linearScale)(xs, [box.left, box.left + box.width]);
  const y = (logY ? logScale : linearScale)(logY ? ys : [Math.min(0, ys[0]), ys[1]], [box.top + box.height, box.top]);
  const drawn = lines.map(({ x: at, y: values }, k) =>
    polyline(
      Array.from(at, (value, i) => /** @type {const} */ ([x.at(value), y.at(values[i])])),
      colorOf(k),
    ),
  );
  const names = lines.map(({ name }) => name);
  return svgDocument(
    size,
    { title: words.title, subtitle: words.subtitle, description: `${words.y} over ${words.x}: ${names.join(", ")}.` },
    [axes(box, x, y, words), ...drawn, legend(box.left + box.width + 24, box.top + 12, names)].join("\n"),
  );
}

/**
 * Groups of horizontal bars, one bar per series, with their values.
 * @param {readonly { name: string, values: readonly number[] }[]} groups
 * @param {readonly string[]} series
 * @param {{ title: string, subtitle?: string, show: (value: number) => string }} words
 */
export function barChart(groups, series, { title, subtitle, show }) {
  const [left, top, width, bar] = [210, 70, 360, 15];
  const high = Math.max(...groups.flatMap(({ values }) => values));
  const each = series.length * (bar + 3) + 14;
  const rows = groups.flatMap(({ name, values }, g) => [
    label(left - 12, top + g * each + (series.length * (bar + 3)) / 2 + 3, name, { anchor: "end", kind: "ink" }),
    ...values.map((value, k) => {
      const y = top + g * each + k * (bar + 3);
      const length = Math.max(1, (value / high) * width);
      return `<rect x="${left}" y="${y}" width="${length.toFixed(1)}" height="${bar}" rx="2" fill="${colorOf(k)}"/>${label(left + length + 8, y + 12, show(value))}`;
    }),
  ]);
  const bottom = top + groups.length * each;
  return svgDocument(
    { width: 700, height: bottom + 18 * series.length + 10 },
    {
      title,
      subtitle,
      description: groups.map(({ name, values }) => `${name}: ${values.map(show).join(", ")}`).join("; "),
    },
    [...rows, series.length > 1 ? legend(left, bottom + 12, series) : ""].join("\n"),
  );
}

/**
 * A timeline: one row per worker, one span per instruction, colored by kind.
 * @param {readonly { row: string, kind: string, from: number, to: number }[]} spans
 * @param {{ title: string, subtitle?: string, x: string }} words
 */
export function timelineChart(spans, words) {
  const rows = [...new Set(spans.map(({ row }) => row))];
  const kinds = [...new Set(spans.map(({ kind }) => kind))];
  const [left, top, height, width] = [110, 70, 34, 560];
  const x = linearScale([0, Math.max(...spans.map(({ to }) => to))], [left, left + width]);
  const bottom = top + rows.length * height;
  const body = [
    ...rows.map((name, k) => label(left - 12, top + k * height + 20, name, { anchor: "end", kind: "ink" })),
    ...spans.map(({ row, kind, from, to }) => {
      const wide = Math.max(0.4, x.at(to) - x.at(from));
      return `<rect x="${x.at(from).toFixed(2)}" y="${top + rows.indexOf(row) * height + 4}" width="${wide.toFixed(2)}" height="${height - 10}" fill="${colorOf(kinds.indexOf(kind))}"/>`;
    }),
    ...x.ticks.map((tick) => label(x.at(tick), bottom + 18, x.show(tick), { anchor: "middle" })),
    label(left + width / 2, bottom + 38, words.x, { anchor: "middle" }),
    legend(left, bottom + 60, kinds),
  ];
  return svgDocument(
    { width: 700, height: bottom + 60 + 18 * kinds.length },
    { title: words.title, subtitle: words.subtitle, description: `${spans.length} spans of ${rows.join(", ")}` },
    body.join("\n"),
  );
}
