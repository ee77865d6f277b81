// The part of a trace that is analyzed: device events in time order, each with its class and launching call. The last of
// several profiler steps is excluded. With microseconds as unit, fractional times are rounded as Holistic Trace Analysis does.
import type { Column } from "./columns.js";
import type { StepMark, TraceData } from "./data.js";
import { sortedBy } from "./intervals.js";
import { categories, gpuKernelType, type KernelType, kernelTypes } from "./kinds.js";
import { hashSeed } from "./symbols.js";

export interface DeviceView {
  data: TraceData;
  /** Analyzed rows of the device table, by start time, without synchronizations that have no stream. */
  rows: Uint32Array;
  /** Class of each row of the device table, as an index into `kernelTypes`. */
  type: Uint8Array;
  /** Row of the runtime table that launched a device row, or -1. */
  launch: Int32Array;
  /** Analyzed rows of the runtime table. */
  runtimeKept: Uint8Array;
  steps: StepMark[];
  /** Start of the excluded step, or Infinity. */
  cut: number;
}

const hashed = new Float64Array(1);
const hashedWords = new Int32Array(hashed.buffer);

/** Finds the row of a correlation id, which the column of the table holds; the last row of an id wins. */
class RowIndex {
  private readonly rows: Int32Array;
  private readonly mask: number;

  constructor(
    private readonly keys: Column,
    count: number,
  ) {
    let size = 16;
    while (size < count * 1.4) size *= 2;
    this.rows = new Int32Array(size).fill(-1);
    this.mask = size - 1;
    for (let row = 0; row < count; row++) this.rows[this.slot(keys[row])] = row;
  }

  /** A hash of all bits of the number, which depends on the random seed: ids of a file cannot be made to collide. */
  private slot(key: number): number {
    hashed[0] = key;
    let hash = Math.imul(hashedWords[0] ^ hashSeed, 0x9e3779b1);
    hash = Math.imul(hash ^ (hash >>> 15) ^ hashedWords[1], 0x85ebca6b);
    let slot = (hash ^ (hash >>> 13)) & this.mask;
    while (this.rows[slot] >= 0 && this.keys[this.rows[slot]] !== key) slot = (slot + 1) & this.mask;
    return slot;
  }

  /** The row, or -1. */
  get(key: number): number {
    return this.rows[this.slot(key)];
  }
}

/** Rounds fractional times inward, so that neighbors do not overlap by a rounding error. */
function roundInwards(ts: Float64Array, dur: Column, rows: number): void {
  for (let i = 0; i < rows; i++) {
    const end = Math.floor(ts[i] + dur[i]);
    ts[i] = Math.ceil(ts[i]);
    dur[i] = end - ts[i];
  }
}

/** Accelerators with kernels or copies in a trace, in order. */
export function devicesOf({ device }: TraceData): number[] {
  const found = new Set<number>();
  for (let i = 0; i < device.rows; i++) if (device.device[i] >= 0) found.add(device.device[i]);
  return [...found].sort((a, b) => a - b);
}

/** Prepares a trace with device events, of all devices or of one. Rounds the tables in place, which a second call repeats without effect. */
export function deviceView(data: TraceData, only: number | null = null): DeviceView {
  const { device, runtime } = data;
  let steps = data.steps;
  const rounded = data.unit === "us" && data.fractionalTimes;
  if (rounded) {
    roundInwards(device.ts, device.dur, device.rows);
    roundInwards(runtime.ts, runtime.dur, runtime.rows);
    steps = steps.map((s) => {
      const ts = Math.ceil(s.ts);
      return { ...s, ts, dur: Math.floor(s.ts + s.dur) - ts };
    });
  }
  steps = [...steps].sort((a, b) => a.ts - b.ts);
  const lastStep = startOfLastStep(data, rounded);
  const cut = data.stepNames.size >= 2 ? lastStep : Number.POSITIVE_INFINITY;

  const byCorrelation = new RowIndex(runtime.correlation, runtime.rows);
  const runtimeKept = new Uint8Array(runtime.rows);
  for (let i = 0; i < runtime.rows; i++) if (runtime.ts[i] < cut) runtimeKept[i] = 1;

  const types = new Map<number, number>();
  const type = new Uint8Array(device.rows);
  const launch = new Int32Array(device.rows).fill(-1);
  const kept = new Uint8Array(device.rows);
  let count = 0;
  for (let i = 0; i < device.rows; i++) {
    const key = device.name[i] * categories.length + device.category[i];
    let t = types.get(key);
    if (t === undefined) {
      const category = categories[device.category[i]];
      t = kernelTypes.indexOf(gpuKernelType(data.symbols.text(device.name[i]), category, data.unit === "us"));
      types.set(key, t);
    }
    type[i] = t;
    const correlation = device.correlation[i];
    if (correlation >= 0) launch[i] = byCorrelation.get(correlation);
    const launched =
      cut === Number.POSITIVE_INFINITY ||
      (correlation >= 0 ? launch[i] >= 0 && runtimeKept[launch[i]] === 1 : device.ts[i] < cut);
    if (launched && device.stream[i] >= 0 && (only === null || device.device[i] === only)) {
      kept[i] = 1;
      count++;
    }
  }
  const order = sortedBy(device.ts, device.rows);
  const rows = new Uint32Array(count);
  let n = 0;
  for (let i = 0; i < order.length; i++) if (kept[order[i]] === 1) rows[n++] = order[i];
  return { data, rows, type, launch, runtimeKept, steps: lastLeftOut(steps, cut), cut };
}

/** Where the last step begins: on the host, or at the later of both marks as Holistic Trace Analysis cuts. */
function startOfLastStep({ unit, lastStepTs, lastDeviceStepTs }: TraceData, rounded: boolean): number {
  const start = unit === "us" || !Number.isFinite(lastStepTs) ? Math.max(lastStepTs, lastDeviceStepTs) : lastStepTs;
  return rounded ? Math.ceil(start) : start;
}

/** The host annotation of the last step starts before that of the device and is always excluded. */
function lastLeftOut(steps: StepMark[], cut: number): StepMark[] {
  return cut === Number.POSITIVE_INFINITY ? steps : steps.slice(0, -1);
}

export function rowsOfType(view: DeviceView, wanted: KernelType): Uint32Array {
  const index = kernelTypes.indexOf(wanted);
  const found = new Uint32Array(view.rows.length);
  let count = 0;
  for (let i = 0; i < found.length; i++) if (view.type[view.rows[i]] === index) found[count++] = view.rows[i];
  return found.slice(0, count);
}
