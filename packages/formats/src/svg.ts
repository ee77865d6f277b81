// Drawing of SVG documents: colors for light and dark pages, scales with readable ticks, and axes.

/** A line color per series; distinguishable without color vision, on light and dark ground. */
export const seriesColors = ["#2b7bba", "#d9622b", "#1a9b76", "#b86aa0", "#c99a00", "#6f6f6f"];

const escapes: Record<string, string> = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" };
/** Text as it may stand in a document. */
const escape = (text: string): string => text.replace(/[&<>"]/g, (c) => escapes[c]);

const style = `
.ground{fill:#ffffff}.ink{fill:#1f2328}.soft{fill:#57606a}.axis{stroke:#57606a;fill:none}.grid{stroke:#d8dee4;fill:none}
text{font-family:system-ui,-apple-system,"Segoe UI",sans-serif;font-size:12px}.title{font-size:15px;font-weight:600}
@media (prefers-color-scheme:dark){.ground{fill:#0d1117}.ink{fill:#e6edf3}.soft{fill:#9da7b3}.axis{stroke:#9da7b3}.grid{stroke:#30363d}}`;

/** A whole document with a title, a description for screen readers, and an opaque ground. */
export const svgDocument = (
  size: { width: number; height: number },
  words: { title: string; subtitle?: string; description: string },
  body: string,
): string => `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${size.width} ${size.height}" width="${size.width}" height="${size.height}" role="img">
<title>${escape(words.title)}</title><desc>${escape(words.description)}</desc><style>${style}</style>
<rect class="ground" width="100%" height="100%"/>
<text class="ink title" x="16" y="26">${escape(words.title)}</text>
${words.subtitle === undefined ? "" : `<text class="soft" x="16" y="45">${escape(words.subtitle)}</text>`}
${body}
</svg>
`;

/** A number with at most two digits after the point, without needless zeros. */
export const short = (x: number): string => n(x).toString();
const n = (x: number): number => Math.round(x * 100) / 100;

/** A text. */
export const label = (
  x: number,
  y: number,
  text: string,
  options: { anchor?: "start" | "middle" | "end"; kind?: "ink" | "soft"; turned?: boolean } = {},
): string =>
  `<text class="${options.kind ?? "soft"}" x="${n(x)}" y="${n(y)}" text-anchor="${options.anchor ?? "start"}"${options.turned ? ` transform="rotate(-90 ${n(x)} ${n(y)})"` : ""}>${escape(text)}</text>`;

/** A polyline of points. */
export const polyline = (points: readonly (readonly [number, number])[], color: string, width = 1.6): string =>
  `<polyline fill="none" stroke="${color}" stroke-width="${width}" stroke-linejoin="round" points="${points.map(([x, y]) => `${n(x)},${n(y)}`).join(" ")}"/>`;

/** A straight line. */
export const line = (a: readonly [number, number], b: readonly [number, number], kind: "axis" | "grid"): string =>
  `<line class="${kind}" x1="${n(a[0])}" y1="${n(a[1])}" x2="${n(b[0])}" y2="${n(b[1])}"/>`;

/** From values to positions. */
interface Scale {
  at(value: number): number;
  ticks: number[];
  /** A tick as text. */
  show(value: number): string;
}

/** A linear scale whose ticks are multiples of 1, 2 or 5. */
export function linearScale([low, high]: readonly [number, number], [from, to]: readonly [number, number]): Scale {
  const span = high - low || 1;
  const raw = span / 5;
  const size = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((x) => x * size).find((x) => x >= raw)!;
  const first = Math.ceil(low / step - 1e-9);
  const count = Math.floor(high / step + 1e-9) - first + 1;
  const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  return {
    at: (value) => from + ((value - low) / span) * (to - from),
    ticks: Array.from({ length: Math.max(0, count) }, (_, k) => (first + k) * step),
    show: (value) => (Math.abs(value) < step / 2 ? "0" : digits > 5 ? value.toExponential(1) : value.toFixed(digits)),
  };
}

/** A logarithmic scale with a tick per decade. */
export function logScale([low, high]: readonly [number, number], [from, to]: readonly [number, number]): Scale {
  const [a, b] = [Math.floor(Math.log10(low)), Math.ceil(Math.log10(high))];
  const every = Math.max(1, Math.ceil((b - a) / 8));
  return {
    at: (value) => from + ((Math.log10(Math.max(value, 10 ** a)) - a) / Math.max(1, b - a)) * (to - from),
    ticks: Array.from({ length: Math.floor((b - a) / every) + 1 }, (_, k) => 10 ** (a + k * every)),
    show: (value) => value.toExponential(0),
  };
}

/** Where a panel lies. */
export interface PanelBox {
  left: number;
  top: number;
  width: number;
  height: number;
}

/** Axes with grid lines, ticks and the names of the quantities. */
export function axes(box: PanelBox, x: Scale, y: Scale, names: { x: string; y: string }): string {
  const [right, bottom] = [box.left + box.width, box.top + box.height];
  return [
    ...y.ticks.map((t) => line([box.left, y.at(t)], [right, y.at(t)], "grid")),
    ...y.ticks.map((t) => label(box.left - 8, y.at(t) + 4, y.show(t), { anchor: "end" })),
    ...x.ticks.map((t) => line([x.at(t), bottom], [x.at(t), bottom + 5], "axis")),
    ...x.ticks.map((t) => label(x.at(t), bottom + 19, x.show(t), { anchor: "middle" })),
    line([box.left, bottom], [right, bottom], "axis"),
    label(box.left + box.width / 2, bottom + 38, names.x, { anchor: "middle" }),
    label(box.left - 52, box.top + box.height / 2, names.y, { anchor: "middle", turned: true }),
  ].join("\n");
}

/** Names of series beside their colors, one below the other. */
export const legend = (x: number, y: number, names: readonly string[]): string =>
  names
    .map(
      (name, k) =>
        `<rect x="${n(x)}" y="${n(y + 18 * k - 9)}" width="14" height="4" rx="2" fill="${seriesColors[k % seriesColors.length]}"/>${label(x + 20, y + 18 * k - 2, name)}`,
    )
    .join("\n");
