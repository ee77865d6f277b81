// Time breakdown of a device: busy or idle, computing or not, the reason for idle time, and how much communication overlaps
// computation. The definitions are those of Holistic Trace Analysis; all times are in the unit of the trace's tables.
import { roundHalfEven } from "@weft/formats/stats";
import { type Intervals, measure, mergeSorted, overlap, timePerCombination } from "./intervals.js";
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

/** The breakdown from merged intervals: also used where the "device" is a CPU. */
export function breakdownOf(all: Intervals, computing: Intervals, communicating: Intervals): TimeBreakdown | null {
  if (all.count === 0) return null;
  const spanUs = all.ends[all.count - 1] - all.starts[0];
  const idleUs = spanUs - measure(all);
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
  return breakdownOf(
    mergeSorted(ts, dur, view.rows),
    intervalsOf(view, "COMPUTATION"),
    intervalsOf(view, "COMMUNICATION"),
  );
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
  const kernels = view.rows.filter((row) => view.data.device.category[row] !== syncCategory);
  // Rows are numbered in the order of the file.
  const first = new Map<number, number>();
  for (let i = 0; i < kernels.length; i++) {
    const row = kernels[i];
    const known = first.get(device.stream[row]);
    if (known === undefined || row < known) first.set(device.stream[row], row);
  }
  const streams = [...first].sort((a, b) => a[1] - b[1]).map(([stream]) => stream);
  return streams.map((stream) => {
    const result: IdleBreakdown = { stream, spanUs: 0, busyUs: 0, hostWaitUs: 0, kernelWaitUs: 0, otherUs: 0 };
    let previousEnd = Number.NaN;
    let begin = Number.NaN;
    for (let i = 0; i < kernels.length; i++) {
      const row = kernels[i];
      if (device.stream[row] !== stream) continue;
      // Work on one stream may overlap; Holistic Trace Analysis then counts a negative gap.
      const gap = exact ? Math.max(0, device.ts[row] - previousEnd) : device.ts[row] - previousEnd;
      if (!Number.isNaN(gap)) {
        const launched = view.launch[row] >= 0 ? runtime.ts[view.launch[row]] : Number.NaN;
        if (launched > previousEnd) result.hostWaitUs += gap;
        else if (gap < usualGap) result.kernelWaitUs += gap;
        else result.otherUs += gap;
      }
      const end = device.ts[row] + device.dur[row];
      if (Number.isNaN(begin)) begin = device.ts[row];
      previousEnd = exact && previousEnd > end ? previousEnd : end;
      result.spanUs = Math.max(result.spanUs, previousEnd - begin);
    }
    result.busyUs = result.spanUs - result.hostWaitUs - result.kernelWaitUs - result.otherUs;
    return result;
  });
}
