// The events of a trace as rows of a timeline: host threads by nesting depth, streams, and the idle gaps of streams by reason.
// Rows are sorted and free of overlaps, so that a page can skip to the next pixel by binary search.

import type { TraceData } from "./data.js";
import { hostKinds } from "./host-facts.js";
import { sortedBy } from "./intervals.js";
import { isHostCollective } from "./kinds.js";
import { readTrace } from "./read.js";
import { type DeviceView, devicesOf, deviceView } from "./view.js";

/** Colors of events: kernel types first, then host events and the reasons of idle gaps. */
export const timelineKinds = [
  "communication",
  "copy",
  "computation",
  "other",
  "host",
  "data wait",
  "synchronization",
  "compilation",
  "step",
  "idle: launched late",
  "idle: between kernels",
  "idle: other",
] as const;

export interface TimelineRow {
  rank: number;
  /** "stream 7", "thread 12 (depth 2)", "stream 7 idle". */
  label: string;
  count: number;
  /** Nanoseconds since the start of the page. */
  start: Float64Array;
  duration: Float64Array;
  /** Index into the names of the page. */
  name: Uint32Array;
  kind: Uint8Array;
}

export interface Timeline {
  rows: TimelineRow[];
  names: string[];
  /** Length in nanoseconds. */
  span: number;
  /** Events that were left out because the page would become too large. */
  leftOut: number;
}

const deepest = 8;
const usualGapNs = 30_000;

interface Item {
  start: number;
  duration: number;
  name: number;
  kind: number;
}

class Names {
  readonly list: string[] = [];
  private readonly ids = new Map<string, number>();

  id(text: string): number {
    let id = this.ids.get(text);
    if (id === undefined) {
      id = this.list.length;
      this.list.push(text);
      this.ids.set(text, id);
    }
    return id;
  }
}

/** Reads files again for their events; `offsets` aligns the clocks, in microseconds by rank. */
export async function readTimeline(
  inputs: readonly { file: string; rank: number; offsetUs: number }[],
  mostEvents = 2_000_000,
): Promise<Timeline> {
  const names = new Names();
  const found: { rank: number; label: string; items: Item[] }[] = [];
  let origin: number | null = null;
  let leftOut = 0;
  const share = Math.floor(mostEvents / Math.max(1, inputs.length));
  for (const { file, rank, offsetUs } of inputs) {
    using data = await readTrace(file);
    origin ??= data.originUs + offsetUs;
    const shift = (data.originUs + offsetUs - origin) * 1000;
    const tracks = [...deviceTracks(data, names), ...hostTracks(data, names)];
    const count = tracks.reduce((sum, track) => sum + track.items.length, 0);
    if (count > share) leftOut += shorten(tracks, share);
    for (const track of tracks) {
      for (const item of track.items) item.start += shift;
      found.push({ rank, ...track });
    }
  }
  let first = Number.POSITIVE_INFINITY;
  let last = Number.NEGATIVE_INFINITY;
  for (const { items } of found)
    for (const { start, duration } of items) {
      first = Math.min(first, start);
      last = Math.max(last, start + duration);
    }
  const rows = found
    .filter(({ items }) => items.length > 0)
    .map(({ rank, label, items }) => columns(rank, label, items, first));
  return { rows, names: names.list, span: rows.length === 0 ? 0 : last - first, leftOut };
}

/** Drops the shortest events until `share` are left; returns how many were dropped. */
function shorten(tracks: { items: Item[] }[], share: number): number {
  const durations = Float64Array.from(tracks.flatMap(({ items }) => items.map((item) => item.duration))).sort();
  const bound = durations[durations.length - share];
  let dropped = 0;
  for (const track of tracks) {
    const kept = track.items.filter((item) => item.duration > bound);
    dropped += track.items.length - kept.length;
    track.items = kept;
  }
  return dropped;
}

function columns(rank: number, label: string, items: Item[], first: number): TimelineRow {
  const order = sortedBy(
    Float64Array.from(items, (item) => item.start),
    items.length,
  );
  const row: TimelineRow = {
    rank,
    label,
    count: items.length,
    start: new Float64Array(items.length),
    duration: new Float64Array(items.length),
    name: new Uint32Array(items.length),
    kind: new Uint8Array(items.length),
  };
  order.forEach((index, i) => {
    row.start[i] = items[index].start - first;
    row.duration[i] = items[index].duration;
    row.name[i] = items[index].name;
    row.kind[i] = items[index].kind;
  });
  return row;
}

function deviceTracks(data: TraceData, names: Names): { label: string; items: Item[] }[] {
  if (data.device.rows === 0) return [];
  const view: DeviceView = deviceView(data);
  const { device, runtime, symbols } = data;
  const several = devicesOf(data).length > 1;
  const streams = new Map<string, { work: Item[]; gaps: Item[]; end: number }>();
  for (const row of view.rows) {
    const label = `${several ? `device ${device.device[row]}, ` : ""}stream ${device.stream[row]}`;
    let stream = streams.get(label);
    if (stream === undefined) streams.set(label, (stream = { work: [], gaps: [], end: Number.NaN }));
    const start = device.ts[row];
    if (start > stream.end) {
      const launch = view.launch[row];
      const late = launch >= 0 && runtime.ts[launch] > stream.end;
      const kind = timelineKinds.indexOf(
        late ? "idle: launched late" : start - stream.end < usualGapNs ? "idle: between kernels" : "idle: other",
      );
      stream.gaps.push({ start: stream.end, duration: start - stream.end, name: names.id(timelineKinds[kind]), kind });
    }
    stream.work.push({
      start,
      duration: device.dur[row],
      name: names.id(symbols.text(device.name[row])),
      kind: view.type[row],
    });
    stream.end = Number.isNaN(stream.end) ? start + device.dur[row] : Math.max(stream.end, start + device.dur[row]);
  }
  return [...streams]
    .sort((a, b) => b[1].work.length - a[1].work.length)
    .flatMap(([label, { work, gaps }]) => [
      ...withoutOverlaps(work).map((items, i) => ({ label: i === 0 ? label : "", items })),
      { label: `${label}: why idle`, items: gaps },
    ]);
}

/** Branches of a CUDA graph run at the same time on one stream: each event goes to the first row that is free, or is left out. */
function withoutOverlaps(items: readonly Item[]): Item[][] {
  const rows: Item[][] = [];
  for (const item of items) {
    const free = rows.findIndex((row) => {
      const last = row[row.length - 1];
      return last.start + last.duration <= item.start;
    });
    if (free >= 0) rows[free].push(item);
    else if (rows.length < deepest) rows.push([item]);
  }
  return rows;
}

function hostTracks(data: TraceData, names: Names): { label: string; items: Item[] }[] {
  const kindOf = new Map<number, number>();
  const kind = (name: number): number => {
    let known = kindOf.get(name);
    if (known === undefined) {
      const text = data.symbols.text(name);
      const label = isHostCollective(text)
        ? "communication"
        : hostKinds.dataWait.test(text)
          ? "data wait"
          : hostKinds.synchronization.test(text)
            ? "synchronization"
            : hostKinds.compilation.test(text)
              ? "compilation"
              : /^ProfilerStep/.test(text)
                ? "step"
                : "host";
      known = timelineKinds.indexOf(label);
      kindOf.set(name, known);
    }
    return known;
  };
  const lanes = new Map<number, Item[]>();
  const add = (lane: number, start: number, duration: number, name: number): void => {
    let items = lanes.get(lane);
    if (items === undefined) lanes.set(lane, (items = []));
    items.push({ start, duration, name: names.id(data.symbols.text(name)), kind: kind(name) });
  };
  for (const segment of data.host.each())
    for (let i = 0; i < segment.rows; i++) add(segment.lane[i], segment.ts[i], segment.dur[i], segment.name[i]);
  const { runtime } = data;
  for (let i = 0; i < runtime.rows; i++) add(runtime.lane[i], runtime.ts[i], runtime.dur[i], runtime.name[i]);
  return [...lanes]
    .sort((a, b) => b[1].length - a[1].length)
    .flatMap(([lane, items]) => nested(threadLabel(data.laneName(lane)), items));
}

const threadLabel = (name: string): string => (/^thread/i.test(name) ? name : `thread ${name}`);

/** One row per nesting depth; deeper events are left out. */
function nested(label: string, items: Item[]): { label: string; items: Item[] }[] {
  const depths: Item[][] = [];
  const open: number[] = [];
  items.sort((a, b) => a.start - b.start || b.duration - a.duration);
  for (const item of items) {
    while (open.length > 0 && open[open.length - 1] <= item.start) open.pop();
    if (open.length < deepest) {
      const row = (depths[open.length] ??= []);
      // Threads of some profilers overlap without nesting: rows stay free of overlaps.
      const last = row[row.length - 1];
      if (last === undefined || last.start + last.duration <= item.start) row.push(item);
    }
    open.push(item.start + item.duration);
  }
  return depths.map((row, depth) => ({ label: depth === 0 ? label : "", items: row }));
}
