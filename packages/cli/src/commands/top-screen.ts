// The live screen of `weft top`: one line per worker with bars and a history of its load, sorted by a key, for any width.
import { paint, shorten, size } from "../terminal/index.js";

/** What the screen shows of one worker. */
export interface TopRow {
  id: string;
  name: string;
  state: string;
  /** Share of the last interval with computation; null before the second status. */
  busy: number | null;
  /** Earlier shares, the newest last. */
  history: readonly number[];
  bytes: number;
  moved: number;
  /** Operations per second. */
  rate: number | null;
  tensors: number;
  /** GPU utilization in percent; null without a GPU. */
  utilization: number | null;
}

/** Orders of the rows, by the key that selects them. */
export const topOrders = {
  n: { title: "name", value: (_: TopRow) => 0 },
  b: { title: "busy", value: (row: TopRow) => row.busy ?? -1 },
  m: { title: "memory", value: (row: TopRow) => row.bytes },
  t: { title: "transfers", value: (row: TopRow) => row.moved },
  o: { title: "operations", value: (row: TopRow) => row.rate ?? -1 },
} as const;
export type TopOrder = keyof typeof topOrders;

export interface TopView {
  columns: number;
  rows: number;
  order: TopOrder;
  /** Smallest first. */
  reversed: boolean;
  paused: boolean;
  help: boolean;
}

const levels = "▁▂▃▄▅▆▇█";

/** A history as a line of small bars. */
export const sparkline = (history: readonly number[], width: number): string =>
  history
    .slice(-width)
    .map((share) => levels[Math.min(levels.length - 1, Math.floor(Math.max(0, share) * levels.length))])
    .join("")
    .padStart(width);

/** A bar of a share; green, yellow from 60% and red from 90%. */
export function shareBar(share: number | null, width: number, colors = true): string {
  if (share === null) return "-".padEnd(width + 5);
  const within = Math.min(1, Math.max(0, share));
  const filled = Math.round(within * width);
  const style = within >= 0.9 ? paint.bad : within >= 0.6 ? paint.warning : paint.good;
  const bar = "█".repeat(filled);
  return `${colors ? style(bar) : bar}${"░".repeat(width - filled)} ${`${Math.round(within * 100)}%`.padStart(4)}`;
}

/** Rows in the chosen order; equal ones by number. */
export function sortedRows(rows: readonly TopRow[], order: TopOrder, reversed: boolean): TopRow[] {
  const { value } = topOrders[order];
  const direction = reversed ? -1 : 1;
  return [...rows].sort(
    (a, b) => direction * (value(b) - value(a)) || a.id.localeCompare(b.id, "en", { numeric: true }),
  );
}

const keys = "q quit  b busy  m memory  t transfers  o operations  n name  r reverse  p pause  h help";

/** The screen as lines, none longer than the terminal is wide. */
export function topScreen(summary: string, rows: readonly TopRow[], view: TopView): string {
  const { columns } = view;
  const isNarrow = columns < 70;
  const isWide = columns >= 110;
  const bar = isNarrow ? 8 : isWide ? 20 : 12;
  const past = isNarrow ? 0 : Math.max(8, Math.min(60, columns - (isWide ? 102 : 60)));
  const name = isNarrow ? 10 : 18;
  const most = Math.max(1, ...rows.map((row) => row.bytes));
  const memoryWidth = isNarrow ? 0 : 6;
  const line = (row: TopRow): string => {
    const label = shorten(`${row.id} ${row.name}`, name).padEnd(name);
    const isDown = row.state !== "ready" && row.state !== "busy" && row.state !== "idle";
    const memory = "▪".repeat(Math.round((row.bytes / most) * memoryWidth)).padEnd(memoryWidth);
    return [
      isDown ? paint.bad(label) : label,
      shareBar(row.busy, bar),
      ...(past > 0 ? [paint.dim(sparkline(row.history, past))] : []),
      `${memory}${size(row.bytes).padStart(9)}`,
      ...(isWide
        ? [
            `${row.rate === null ? "-" : row.rate.toFixed(0)} ops/s`.padStart(12),
            `moved ${size(row.moved)}`.padEnd(16),
            row.utilization === null ? "" : `GPU ${row.utilization.toFixed(0)}%`,
          ]
        : []),
    ].join(" ");
  };
  const space = Math.max(1, view.rows - (view.help ? 5 : 4));
  const sorted = sortedRows(rows, view.order, view.reversed);
  const shown = sorted.slice(0, space).map(line);
  const hidden = sorted.length - shown.length;
  const order = `by ${topOrders[view.order].title}${view.reversed ? ", smallest first" : ""}${view.paused ? "  PAUSED" : ""}`;
  const clip = (text: string): string => text.slice(0, columns);
  return [
    paint.strong(clip(summary)),
    paint.dim(clip(`${order}   ${isNarrow ? "h help, q quit" : "h: keys, q: quit"}`)),
    ...(view.help ? [clip(keys)] : []),
    ...shown,
    ...(hidden > 0 ? [clip(`and ${hidden} more workers; a taller terminal shows them`)] : []),
  ].join("\n");
}
