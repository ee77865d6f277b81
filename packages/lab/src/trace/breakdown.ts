// Time breakdown of a device: busy or idle, computing or not, the reason for idle time, and how much communication overlaps
// computation. The definitions are those of Holistic Trace Analysis; all times are in the unit of the trace's tables.
import { roundHalfEven } from "@weft/formats/stats";
import { extent, type Intervals, measure, mergeSorted, overlap, timePerCombination } from "./intervals.js";
import { categoryIndex, type KernelType } from "./kinds.js";
import { type DeviceView, rowsOfType } from "./view.js";

export interface TimeBreakdown {
  /** First start to last end of what ran on the device. */
  spanUs: number;
  idleUs: number;
  computeUs: number;
  /** Busy, but not computing: communication, copies and waits that nothing overlaps. */
  nonComputeUs: number;
  idlePercent: number;
  computePercent: number;
  nonComputePercent: number;
  /** Time with communication running, and the part of it without any computation. */
  communicationUs: number;
  exposedCommunicationUs: number;
  /** Share of the communication time during which computation ran too; null without communication. */
  overlapPercent: number | null;
}

export interface IdleBreakdown {
  stream: number;
  /** First start to last end on the stream, and the part of it in which something ran; the rest are the three waits. */
  spanUs: number;
  busyUs: number;
  /** The host had not launched the next kernel yet. */
  hostWaitUs: number;
  /** The usual small gap between two kernels (under 30 us). */
  kernelWaitUs: number;
  otherUs: number;
}

export interface TypeTime {
  /** What ran at the same time, e.g. "COMPUTATION overlapping COMMUNICATION". */
  type: string;
  us: number;
  percent: number;
}

/** The breakdown from the extent of all events and merged intervals: also used where the "device" is a CPU. */
export function breakdownOf(
  all: ReturnType<typeof extent>,
  computing: Intervals,
  communicating: Intervals,
): TimeBreakdown | null {
  if (all === null) return null;
  const spanUs = all.last - all.first;
  const idleUs = spanUs - all.busy;
  const computeUs = measure(computing);
  const nonComputeUs = spanUs - computeUs - idleUs;
  const communicationUs = measure(communicating);
  const hidden = overlap(communicating, computing);
  const percent = (part: number): number => (spanUs > 0 ? roundHalfEven((100 * part) / spanUs, 2) : 0);
  return {
    spanUs,
    idleUs,
    computeUs,
    nonComputeUs,
    idlePercent: percent(idleUs),
    computePercent: percent(computeUs),
    nonComputePercent: percent(nonComputeUs),
    communicationUs,
    exposedCommunicationUs: communicationUs - hidden,
    overlapPercent: communicationUs > 0 ? roundHalfEven((100 * hidden) / communicationUs, 2) : null,
  };
}

const intervalsOf = (view: DeviceView, type: KernelType): Intervals =>
  mergeSorted(view.data.device.ts, view.data.device.dur, rowsOfType(view, type));

export function timeBreakdown(view: DeviceView): TimeBreakdown | null {
  const { ts, dur } = view.data.device;
  return breakdownOf(extent(ts, dur, view.rows), intervalsOf(view, "COMPUTATION"), intervalsOf(view, "COMMUNICATION"));
}

const typesInOrder: KernelType[] = ["COMPUTATION", "COMMUNICATION", "MEMORY"];

/** Time for each combination of types that ran together, the longest first. */
export function typeTimesOf(intervals: (type: KernelType) => Intervals): TypeTime[] {
  const spent = timePerCombination(typesInOrder.map(intervals));
  const total = [...spent.values()].reduce((a, b) => a + b, 0);
  return [...spent]
    .map(([mask, us]) => ({
      type: typesInOrder.filter((_, k) => mask & (1 << k)).join(" overlapping "),
      us,
      percent: total > 0 ? roundHalfEven((100 * us) / total, 1) : 0,
    }))
    .sort((a, b) => b.us - a.us);
}

export const typeTimes = (view: DeviceView): TypeTime[] => typeTimesOf((type) => intervalsOf(view, type));

const usualGapUs = 30;
const syncCategory = categoryIndex.sync;

/** Per stream, in the order in which the streams first appear in the file. */
export function idleBreakdown(view: DeviceView): IdleBreakdown[] {
  const { device, runtime } = view.data;
  const exact = view.data.unit === "ns";
  const usualGap = usualGapUs * view.data.ticksPerUs;
  interface Stream {
    result: IdleBreakdown;
    /** Rows are numbered in the order of the file. */
    firstRow: number;
    begin: number;
    previousEnd: number;
  }
  const streams = new Map<number, Stream>();
  for (let i = 0; i < view.rows.length; i++) {
    const row = view.rows[i];
    if (device.category[row] === syncCategory) continue;
    const start = device.ts[row];
    const end = start + device.dur[row];
    const id = device.stream[row];
    const stream = streams.get(id);
    if (stream === undefined) {
      const result = { stream: id, spanUs: end - start, busyUs: 0, hostWaitUs: 0, kernelWaitUs: 0, otherUs: 0 };
      result.spanUs = Math.max(0, result.spanUs);
      streams.set(id, { result, firstRow: row, begin: start, previousEnd: end });
      continue;
    }
    const { result, previousEnd } = stream;
    // Work on one stream may overlap; Holistic Trace Analysis then counts a negative gap.
    const gap = exact ? Math.max(0, start - previousEnd) : start - previousEnd;
    const launched = view.launch[row] >= 0 ? runtime.ts[view.launch[row]] : Number.NaN;
    if (launched > previousEnd) result.hostWaitUs += gap;
    else if (gap < usualGap) result.kernelWaitUs += gap;
    else result.otherUs += gap;
    if (row < stream.firstRow) stream.firstRow = row;
    stream.previousEnd = exact && previousEnd > end ? previousEnd : end;
    result.spanUs = Math.max(result.spanUs, stream.previousEnd - stream.begin);
  }
  const inFileOrder = [...streams.values()].sort((a, b) => a.firstRow - b.firstRow);
  return inFileOrder.map(({ result }) => {
    result.busyUs = result.spanUs - result.hostWaitUs - result.kernelWaitUs - result.otherUs;
    return result;
  });
}
