// Draws a placement as text: one cell per shard, with the ranks that hold it.
import { numel, type Shape } from "../graph/index.js";
import type { Placement } from "./placement.js";

interface Cell {
  rows: string;
  columns: string;
  ranks: number[];
}

const span = (start: number, stop: number): string => (stop - start === 1 ? String(start) : `${start}..${stop - 1}`);

/** Ranks as a short list: `0-3, 6`. */
function showRanks(ranks: readonly number[]): string {
  const sorted = [...ranks].sort((a, b) => a - b);
  const runs: string[] = [];
  for (let i = 0; i < sorted.length; ) {
    let end = i;
    while (end + 1 < sorted.length && sorted[end + 1] === sorted[end] + 1) end++;
    runs.push(end > i + 1 ? `${sorted[i]}-${sorted[end]}` : sorted.slice(i, end + 1).join(", "));
    i = end + 1;
  }
  return runs.join(", ");
}

/** The two dimensions to draw: the first two that are split, or the first two. */
function drawnDims(placement: Placement): [number | null, number | null] {
  const cut = placement.dims.flatMap((split, i) => (split === null ? [] : [i]));
  const order = [...cut, ...placement.dims.map((_, i) => i).filter((i) => !cut.includes(i))].slice(0, 2);
  const [first = null, second = null] = order.sort((a, b) => a - b);
  return [first, second];
}

/** Draws a placement. If more than two dimensions are split, the further ones are listed per device instead. */
export function drawPlacement(placement: Placement, shape: Shape): string {
  const { mesh } = placement;
  const head = `[${shape.join(", ")}] as ${placement} on ${mesh.size} ${mesh.size === 1 ? "device" : "devices"} (${mesh})`;
  const notes: string[] = [];
  if (placement.pending !== null)
    notes.push(`each device of ${placement.pending.axes.join(" x ")} holds a part of a ${placement.pending.fn}`);
  const cutDims = placement.dims.filter((split) => split !== null).length;
  if (cutDims > 2 || shape.length === 0 || numel(shape) === 0) {
    const lines = mesh.ranks.map((rank) => {
      const { start, stop } = placement.box(rank, shape);
      const parts = start.map((from, i) => (from === stop[i] ? "none" : span(from, stop[i])));
      return `  ${String(rank).padStart(3)}: [${parts.join(", ")}]`;
    });
    return [head, ...notes, ...lines].join("\n");
  }
  const [down, across] = drawnDims(placement);
  const cells = new Map<string, Cell>();
  const empty: number[] = [];
  for (const rank of mesh.ranks) {
    const { start, stop } = placement.box(rank, shape);
    if (start.some((from, i) => from === stop[i])) {
      empty.push(rank);
      continue;
    }
    const rows = down === null ? "" : span(start[down], stop[down]);
    const columns = across === null ? "" : span(start[across], stop[across]);
    const cell = cells.get(`${rows}|${columns}`) ?? { rows, columns, ranks: [] };
    cell.ranks.push(rank);
    cells.set(`${rows}|${columns}`, cell);
  }
  const rows = [...new Set([...cells.values()].map((cell) => cell.rows))];
  const columns = [...new Set([...cells.values()].map((cell) => cell.columns))];
  const text = (r: string, c: string): string => showRanks(cells.get(`${r}|${c}`)?.ranks ?? []);
  const width = Math.max(
    ...columns.map((c) => c.length),
    ...rows.flatMap((r) => columns.map((c) => text(r, c).length)),
  );
  const margin = Math.max(...rows.map((r) => r.length));
  const rule = `${" ".repeat(margin)} +${columns.map(() => "-".repeat(width + 2)).join("+")}+`;
  const lines = [`${" ".repeat(margin)}  ${columns.map((c) => ` ${c.padEnd(width)} `).join(" ")}`.trimEnd(), rule];
  for (const r of rows) {
    lines.push(`${r.padStart(margin)} |${columns.map((c) => ` ${text(r, c).padEnd(width)} `).join("|")}|`, rule);
  }
  if (empty.length > 0) notes.push(`nothing on ${showRanks(empty)}`);
  return [head, ...notes, ...lines].join("\n");
}
