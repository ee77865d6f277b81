// What if: replays the calls of the host and the work of the device with something changed. The host issues its calls one after
// the other with the pauses that it made; work starts when its stream is free and its call was made; blocking calls end when
// the device has finished. A replay without a change gives the error of the method.
import type { StepMark } from "./data.js";
import { dataWaits } from "./host.js";
import { type Intervals, lastAtMost, sortRows } from "./intervals.js";
import { blockingCalls, kernelTypes, launchCalls } from "./kinds.js";
import { nameIn } from "./symbols.js";
import type { DeviceView } from "./view.js";

/** What is changed in a replay. */
interface Change {
  /** The host finds every batch ready. */
  noDataWait?: boolean;
  /** Communication takes no time of its own: all of it is hidden. */
  hiddenCommunication?: boolean;
  /** Calls that wait for the device return at once. */
  noSynchronization?: boolean;
  /** Runs of kernels shorter than this many microseconds are launched by one call. */
  fuseBelowUs?: number;
  /** Factor on the time of device work. */
  deviceFactor?: number;
  /** Factor on the time of host work. */
  hostFactor?: number;
}

/**
 * Loader processes take memory bandwidth, caches and locks of the driver from the training process: its own work becomes slower
 * by this factor. Fitted to the medians of four public pairs of traces (ResNet-50 with 0 and 4 loader processes).
 */
const loaderSlowdown = 1.08;

/** Communication kernels that device work may have waited for. */
const recentCommunication = 8;
const everyStream = -2;
/** With more streams it is not asked which of them a call waits for. */
const mostStreams = 64;

interface WhatIf {
  name: string;
  /** Step time in microseconds, and its ratio to the measured one. */
  stepUs: number;
  /** Samples per second relative to the measured run. */
  speedup: number;
}

interface Program {
  /** The steps that are replayed. */
  steps: StepMark[];
  /** Rows of the runtime table in host order. */
  calls: Uint32Array;
  /** Host time before each call, in ticks, and the part of it that is waiting for data. */
  pause: Float64Array;
  dataPause: Float64Array;
  /** Time of a blocking call that is not waiting for the device. */
  overhead: Float64Array;
  /** Device row that a call launched, or -1. */
  work: Int32Array;
  blocks: Uint8Array;
  /** Stream that a blocking call waits for; `everyStream` where it is unknown. */
  waitsFor: Int32Array;
  /** Delay of device work that neither its call nor its stream explains (events of other streams). */
  slack: Float64Array;
  /** The part of it that is waiting for communication on another stream. */
  communicationSlack: Float64Array;
  /** From the start of the call to the earliest start of its work. */
  latency: number;
  begin: number;
  tail: number;
  dataTail: number;
}

/** Calls of more steps than these are not replayed: the first steps tell as much, and a replay needs its calls in memory. */
const mostCalls = 1 << 20;

/** The first steps of a trace, at least one, with at most `mostCalls` calls; and these calls in order. */
function replayedSteps({ data: { runtime }, steps }: DeviceView): { steps: StepMark[]; calls: Uint32Array } {
  const perStep = new Float64Array(steps.length);
  const starts = Float64Array.from(steps, (step) => step.ts);
  const stepOf = (ts: number): number => lastAtMost(starts, ts);
  for (let i = 0; i < runtime.rows; i++) if (stepOf(runtime.ts[i]) >= 0) perStep[stepOf(runtime.ts[i])]++;
  let count = 0;
  let used = 0;
  while (used < steps.length && (used === 0 || count + perStep[used] <= mostCalls)) count += perStep[used++];
  const last = steps[used - 1];
  const rows = new Uint32Array(Math.min(count, runtime.rows));
  let n = 0;
  for (let i = 0; i < runtime.rows; i++)
    if (runtime.ts[i] >= steps[0].ts && runtime.ts[i] < last.ts + last.dur && n < rows.length) rows[n++] = i;
  return { steps: steps.slice(0, used), calls: sortRows(rows.slice(0, n), runtime.ts) };
}

function programOf(view: DeviceView): Program | null {
  const { runtime, device, symbols, ticksPerUs } = view.data;
  if (view.steps.length === 0 || runtime.rows === 0) return null;
  const { steps, calls } = replayedSteps(view);
  if (calls.length === 0) return null;
  const begin = steps[0].ts;
  const lastStep = steps[steps.length - 1];
  const finish = lastStep.ts + lastStep.dur;
  const launched = new Int32Array(runtime.rows).fill(-1);
  for (let i = 0; i < view.rows.length; i++)
    if (view.launch[view.rows[i]] >= 0) launched[view.launch[view.rows[i]]] = view.rows[i];
  const isLaunch = nameIn(symbols, launchCalls);
  const isBlocking = nameIn(symbols, blockingCalls);
  const n = calls.length;
  const program: Program = {
    steps,
    calls,
    pause: new Float64Array(n),
    dataPause: new Float64Array(n),
    overhead: new Float64Array(n),
    work: new Int32Array(n).fill(-1),
    blocks: new Uint8Array(n),
    waitsFor: new Int32Array(n).fill(everyStream),
    slack: new Float64Array(n),
    communicationSlack: new Float64Array(n),
    latency: 0,
    begin,
    tail: 0,
    dataTail: 0,
  };
  const delays: number[] = [];
  for (let k = 0; k < n; k++) {
    const row = launched[calls[k]];
    if (row >= 0 && device.ts[row] > runtime.ts[calls[k]]) delays.push(device.ts[row] - runtime.ts[calls[k]]);
  }
  delays.sort((a, b) => a - b);
  program.latency = delays.length === 0 ? 5 * ticksPerUs : delays[Math.floor(delays.length / 20)];

  const overlapWith = overlapper(dataWaits(view.data, view.cut));
  const streamEnd = new Map<number, number>();
  const communication = kernelTypes.indexOf("COMMUNICATION");
  /** Ends of the last communication kernels. */
  const communicated: number[] = [];
  let deviceEnd = begin;
  let hostEnd = begin;
  for (let k = 0; k < n; k++) {
    const call = calls[k];
    const start = runtime.ts[call];
    const end = start + runtime.dur[call];
    program.pause[k] = Math.max(0, start - hostEnd);
    program.dataPause[k] = program.pause[k] > 0 ? overlapWith(hostEnd, start) : 0;
    const row = launched[call];
    program.work[k] = row;
    if (row >= 0) {
      const stream = device.stream[row];
      const ready = Math.max(streamEnd.get(stream) ?? begin, start + program.latency);
      program.slack[k] = Math.max(0, device.ts[row] - ready);
      if (program.slack[k] > 0 && communicated.length > 0) {
        const waited = communicated.reduce((last, end) => (end <= device.ts[row] && end > last ? end : last), ready);
        program.communicationSlack[k] = Math.min(program.slack[k], waited - ready);
      }
      if (view.type[row] === communication) {
        communicated.push(device.ts[row] + device.dur[row]);
        if (communicated.length > recentCommunication) communicated.shift();
      }
      streamEnd.set(stream, Math.max(streamEnd.get(stream) ?? begin, device.ts[row] + device.dur[row]));
      deviceEnd = Math.max(deviceEnd, device.ts[row] + device.dur[row]);
    }
    // A copy from pageable memory waits for the device, too: its call lasts until its work has ended.
    const waitsForWork = row >= 0 && !isLaunchOnly(end, device.ts[row] + device.dur[row]);
    const blocks = (isBlocking(runtime.name[call]) && !isLaunch(runtime.name[call])) || waitsForWork;
    program.blocks[k] = blocks ? 1 : 0;
    let awaited = deviceEnd;
    if (blocks && streamEnd.size <= mostStreams) {
      // A call waits for its own work, or for the last work that had ended when it returned.
      const stream = row >= 0 ? device.stream[row] : lastEnded(streamEnd, end);
      program.waitsFor[k] = stream;
      awaited = streamEnd.get(stream) ?? start;
    }
    program.overhead[k] = blocks ? Math.max(0, end - Math.max(start, Math.min(awaited, end))) : runtime.dur[call];
    hostEnd = Math.max(hostEnd, end);
  }
  program.tail = Math.max(0, finish - hostEnd);
  program.dataTail = overlapWith(hostEnd, finish);
  return program;
}

/** The stream whose work ended last before a time; -1: none. */
function lastEnded(streamEnd: ReadonlyMap<number, number>, time: number): number {
  let found = -1;
  let last = Number.NEGATIVE_INFINITY;
  for (const [stream, end] of streamEnd)
    if (end <= time && end > last) {
      found = stream;
      last = end;
    }
  return found;
}

/** A call that returns before its work has ended only launched it. */
const isLaunchOnly = (callEnd: number, workEnd: number): boolean => callEnd < workEnd;

/** Length of the overlap of an interval with the waits; intervals must be asked for in order. */
function overlapper({ starts, ends, count }: Intervals): (start: number, end: number) => number {
  let at = 0;
  return (start, end) => {
    while (at < count && ends[at] <= start) at++;
    let sum = 0;
    for (let i = at; i < count && starts[i] < end; i++)
      sum += Math.max(0, Math.min(end, ends[i]) - Math.max(start, starts[i]));
    return sum;
  };
}

/** Duration of the steps when they are replayed with a change, and the work of the busiest stream in them, in ticks. */
function replay(view: DeviceView, program: Program, change: Change): { length: number; busiest: number } {
  const { device, ticksPerUs } = view.data;
  const communication = kernelTypes.indexOf("COMMUNICATION");
  const factor = change.deviceFactor ?? 1;
  const hostFactor = change.hostFactor ?? 1;
  const small = (change.fuseBelowUs ?? 0) * ticksPerUs;
  const streamEnd = new Map<number, number>();
  const streamWork = new Map<number, number>();
  let host = 0;
  let deviceEnd = 0;
  let inRun = false;
  for (let k = 0; k < program.calls.length; k++) {
    const row = program.work[k];
    const isSmall = row >= 0 && device.dur[row] < small && view.type[row] !== communication;
    const pause = program.pause[k] - (change.noDataWait ? program.dataPause[k] : 0);
    const joins = isSmall && inRun;
    if (row >= 0 || program.blocks[k] === 1) inRun = isSmall;
    if (!joins) host += pause * hostFactor;
    const start = host;
    if (row >= 0) {
      const stream = device.stream[row];
      const hidden = change.hiddenCommunication && view.type[row] === communication;
      const dur = hidden ? 0 : device.dur[row] * factor;
      const ready = Math.max(streamEnd.get(stream) ?? 0, start + (joins ? 0 : program.latency));
      const slack = program.slack[k] - (change.hiddenCommunication ? program.communicationSlack[k] : 0);
      const begin = ready + (hidden ? 0 : slack);
      streamEnd.set(stream, begin + dur);
      streamWork.set(stream, (streamWork.get(stream) ?? 0) + dur);
      deviceEnd = Math.max(deviceEnd, begin + dur);
    }
    if (program.blocks[k] === 1 && !change.noSynchronization) {
      const stream = program.waitsFor[k];
      host = Math.max(host, stream === everyStream ? deviceEnd : (streamEnd.get(stream) ?? 0));
    }
    if (!joins) host += program.overhead[k] * hostFactor;
  }
  const tail = program.tail - (change.noDataWait ? program.dataTail : 0);
  return { length: Math.max(host + tail * hostFactor, deviceEnd), busiest: Math.max(0, ...streamWork.values()) };
}

const changes: readonly { name: string; change: Change; samples?: number }[] = [
  { name: "no data wait", change: { noDataWait: true, hostFactor: loaderSlowdown } },
  { name: "all communication overlapped", change: { hiddenCommunication: true } },
  { name: "no synchronization", change: { noSynchronization: true } },
  { name: "small kernels fused", change: { fuseBelowUs: 10 } },
  { name: "twice the batch", change: { deviceFactor: 2 }, samples: 2 },
];

/** Step times under each change; empty when the trace has no steps or no launches. */
export function whatIf(view: DeviceView): { measuredStepUs: number; replayedStepUs: number; rows: WhatIf[] } | null {
  const program = programOf(view);
  if (program === null) return null;
  const last = program.steps[program.steps.length - 1];
  const perStep = 1 / program.steps.length;
  const measured = (last.ts + last.dur - program.begin) * perStep;
  const unchanged = replay(view, program, {}).length * perStep;
  if (!(measured > 0) || !(unchanged > 0)) return null;
  return {
    measuredStepUs: measured,
    replayedStepUs: unchanged,
    rows: changes.map(({ name, change, samples = 1 }) => {
      // The error of the method is taken to be the same with and without the change. A step is not shorter than the work of its
      // busiest stream, and not longer than before where nothing is added.
      const { length, busiest } = replay(view, program, change);
      const scaled = Math.max((length * perStep * measured) / unchanged, busiest * perStep);
      const stepUs = samples === 1 ? Math.min(scaled, measured) : scaled;
      return { name, stepUs, speedup: (samples * measured) / stepUs };
    }),
  };
}
