// Pictures of states: Bloch sphere and phase-space functions.
import { WeftError } from "@weft/core/internal/graph";
import { axes, label, line, linearScale, type PanelBox, polyline, seriesColors, svgDocument } from "@weft/formats/svg";
import { Operator, type OperatorLike, sigmaX, sigmaY, sigmaZ } from "../operators/index.js";
import { rgbPng } from "./png.js";

/** Bloch vector (x, y, z) of a qubit's ket or density matrix. */
export function blochVector(state: OperatorLike): [number, number, number] {
  const given = Operator.from(state, "state");
  const rho = given.columns === 1 ? given.mul(given.adjoint()) : given;
  if (rho.rows !== 2 || rho.columns !== 2)
    throw new WeftError(`blochVector: needs a qubit (2 levels), got ${given.rows}x${given.columns}`);
  return [sigmaX, sigmaY, sigmaZ].map((s) => s.mul(rho).trace().re) as [number, number, number];
}

/**
 * The Bloch sphere with the path of a qubit: vectors in order of time, such as those of `blochVector`. The last one is an arrow.
 */
export function blochSvg(path: readonly (readonly [number, number, number])[], title = "Bloch sphere"): string {
  if (!Array.isArray(path) || !path.every((v) => Array.isArray(v) && v.length === 3 && v.every(Number.isFinite)))
    throw new WeftError("blochSvg: path must be a list of vectors [x, y, z], such as states.map(blochVector)");
  const [size, cx, cy, r] = [440, 220, 240, 165];
  const [turn, tilt] = [(-32 * Math.PI) / 180, (20 * Math.PI) / 180];
  /** Seen from the front right and slightly above: depth is positive towards the viewer. */
  const project = ([x, y, z]: readonly number[]): { at: [number, number]; depth: number } => {
    const right = y * Math.cos(turn) - x * Math.sin(-turn);
    const front = x * Math.cos(turn) + y * Math.sin(-turn);
    const up = z * Math.cos(tilt) - front * Math.sin(tilt);
    return { at: [cx + r * right, cy - r * up], depth: front * Math.cos(tilt) + z * Math.sin(tilt) };
  };
  const circle = (point: (angle: number) => number[]): string => {
    const points = Array.from({ length: 121 }, (_, k) => project(point((2 * Math.PI * k) / 120)));
    return points
      .slice(1)
      .map(({ at, depth }, k) => {
        const from = points[k].at;
        const hidden = depth < 0 ? ' stroke-dasharray="2 3" opacity="0.55"' : "";
        return `<line class="axis" stroke-width="0.8"${hidden} x1="${from[0].toFixed(1)}" y1="${from[1].toFixed(1)}" x2="${at[0].toFixed(1)}" y2="${at[1].toFixed(1)}"/>`;
      })
      .join("");
  };
  const tip = (v: readonly number[], text: string, dx: number, dy: number): string => {
    const { at } = project(v);
    return (
      line(project([0, 0, 0]).at, at, "axis") + label(at[0] + dx, at[1] + dy, text, { anchor: "middle", kind: "ink" })
    );
  };
  const projected = path.map((v) => project(v).at);
  const last = projected.at(-1);
  const body = [
    `<circle class="axis" cx="${cx}" cy="${cy}" r="${r}"/>`,
    circle((a) => [Math.cos(a), Math.sin(a), 0]),
    circle((a) => [Math.cos(a), 0, Math.sin(a)]),
    tip([0, 0, 1], "|0>", 0, -18),
    tip([0, 0, -1], "|1>", 0, 26),
    tip([1, 0, 0], "x", -12, 8),
    tip([0, 1, 0], "y", 12, 4),
    path.length > 1 ? polyline(projected, seriesColors[0], 2) : "",
    last === undefined
      ? ""
      : `<line stroke="${seriesColors[1]}" stroke-width="3" stroke-linecap="round" x1="${cx}" y1="${cy}" x2="${last[0].toFixed(1)}" y2="${last[1].toFixed(1)}"/><circle fill="${seriesColors[1]}" cx="${last[0].toFixed(1)}" cy="${last[1].toFixed(1)}" r="5"/>`,
  ].join("\n");
  const end = path.at(-1);
  const shown =
    end === undefined ? "" : `ends at x ${end[0].toFixed(3)}, y ${end[1].toFixed(3)}, z ${end[2].toFixed(3)}`;
  return svgDocument(
    { width: size, height: 450 },
    { title, subtitle: shown, description: `Bloch sphere with a path of ${path.length} points; ${shown}.` },
    body,
  );
}

const mix = (a: readonly number[], b: readonly number[], t: number): number[] => a.map((x, k) => x + (b[k] - x) * t);
/** Blue, white, red for values from -1 to 1. */
function diverging(value: number): number[] {
  const t = Math.max(-1, Math.min(1, value));
  return t < 0 ? mix([247, 247, 247], [33, 102, 172], -t) : mix([247, 247, 247], [178, 24, 43], t);
}

/**
 * A function on phase space, such as `wigner` or `qfunc` of @weft/quantum/qutip: rows are y. White is 0, red positive and blue
 * negative.
 *
 * @param scale - Value of the strongest color, for several pictures with one scale; the largest value by default.
 *
 * @example
 * ```ts
 * import { phaseSpaceSvg } from "@weft/quantum";
 * import { fock, wigner } from "@weft/quantum/qutip";
 *
 * const grid = Array.from({ length: 101 }, (_, k) => -4 + 0.08 * k);
 * const svg = phaseSpaceSvg(wigner(fock(10, 1), grid, grid), grid, grid, "Wigner function of one photon");
 * console.log(svg.slice(0, 4)); // <svg
 * ```
 */
export function phaseSpaceSvg(
  values: readonly (readonly number[])[],
  xs: readonly number[],
  ys: readonly number[],
  title = "Wigner function",
  scale?: number,
): string {
  if (values.length !== ys.length || values.some((row) => row.length !== xs.length) || xs.length < 2 || ys.length < 2)
    throw new WeftError(`phaseSpaceSvg: needs ${ys.length} rows of ${xs.length} values, and two or more of each`);
  const most = scale ?? Math.max(...values.flat().map(Math.abs), 1e-300);
  if (!(most > 0 && Number.isFinite(most)))
    throw new WeftError(`phaseSpaceSvg: scale is ${most}; it must be a number above 0`);
  const [width, height] = [xs.length, ys.length];
  const pixels = new Uint8Array(3 * width * height);
  values.forEach((row, i) => {
    row.forEach((value, j) => {
      pixels.set(diverging(value / most).map(Math.round), 3 * ((height - 1 - i) * width + j));
    });
  });
  const box: PanelBox = { left: 76, top: 66, width: 360, height: 360 };
  const [x, y] = [
    linearScale([xs[0], xs[width - 1]], [box.left, box.left + box.width]),
    linearScale([ys[0], ys[height - 1]], [box.top + box.height, box.top]),
  ];
  const image = Buffer.from(rgbPng(width, height, pixels)).toString("base64");
  const bar = Array.from({ length: 41 }, (_, k) => {
    const t = 1 - k / 20;
    return `<rect x="462" y="${box.top + (k * box.height) / 41}" width="16" height="${box.height / 41 + 0.6}" fill="rgb(${diverging(t).map(Math.round).join(",")})"/>`;
  });
  const bound = (t: number): string => label(484, box.top + ((1 - t) / 2) * box.height + 4, (t * most).toPrecision(2));
  return svgDocument(
    { width: 560, height: 490 },
    { title, description: `${title}: between ${-most.toPrecision(3)} and ${most.toPrecision(3)}; white is zero.` },
    [
      axes(box, x, y, { x: "position x", y: "momentum p" }),
      `<image x="${box.left}" y="${box.top}" width="${box.width}" height="${box.height}" preserveAspectRatio="none" href="data:image/png;base64,${image}"/>`,
      ...bar,
      bound(1),
      label(484, box.top + box.height / 2 + 4, "0"),
      bound(-1),
    ].join("\n"),
  );
}
