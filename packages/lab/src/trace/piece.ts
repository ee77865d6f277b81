// A part of a trace that another thread has read: its tables in a form that can be sent, and how they are appended to those of
// the whole trace.
import { type Column, type DeviceColumns, HostSegment, type RuntimeColumns, type RuntimeTable } from "./columns.js";
import type { CollectiveArguments, StepMark, TraceData } from "./data.js";
import type { ShapeColumns } from "./shapes.js";
import type { LaneColumns, Sorter } from "./sorter.js";
import type { SymbolColumns } from "./symbols.js";

/** Rows per host segment of a piece. */
export const pieceSegmentRows = 1 << 13;

export interface TracePiece {
  symbols: SymbolColumns;
  shapes: ShapeColumns;
  lanes: LaneColumns;
  device: DeviceColumns;
  runtime: RuntimeColumns;
  host: { rows: number; buffer: ArrayBuffer }[];
  bandwidths: Map<number, number>;
  deviceCollectives: Map<number, CollectiveArguments>;
  hostCollectives: Map<number, CollectiveArguments>;
  waits: Map<number, { stream: number; record: number }>;
  processNames: Map<string, string>;
  threadNames: Map<string, string>;
  steps: StepMark[];
  runs: Map<number, { start: number; end: number }>;
  stepNames: number[];
  operatorLanes: number[];
  lastStepTs: number;
  lastDeviceStepTs: number;
  fractionalTimes: boolean;
  hloRows: number;
  doubtful: Sorter["doubtful"];
  farUs: number | null;
}

const runtimeColumns = ({ rows, ts, dur, name, lane, correlation }: RuntimeTable): RuntimeColumns => ({
  rows,
  ts: ts.slice(0, rows),
  dur: dur.slice(0, rows),
  name: name.slice(0, rows),
  lane: lane.slice(0, rows),
  correlation: correlation.slice(0, rows),
});

/** The tables of a piece, without unused capacity, which sending would copy. */
export function pieceOf(data: TraceData, sorter: Sorter): TracePiece {
  const { category, stream, device, rows } = data.device;
  const used = <T extends Column>(column: T): T => column.slice(0, rows) as T;
  return {
    symbols: data.symbols.columns(),
    shapes: data.shapes.columns(),
    lanes: sorter.laneColumns(),
    device: { ...runtimeColumns(data.device), category: used(category), stream: used(stream), device: used(device) },
    runtime: runtimeColumns(data.runtime),
    host: [...data.host.each()].map(({ rows, buffer }) => ({ rows, buffer })),
    bandwidths: data.bandwidths,
    deviceCollectives: data.deviceCollectives,
    hostCollectives: data.hostCollectives,
    waits: data.waits,
    processNames: data.processNames,
    threadNames: data.threadNames,
    steps: data.steps,
    runs: data.runs,
    stepNames: [...data.stepNames],
    operatorLanes: [...data.operatorLanes],
    lastStepTs: data.lastStepTs,
    lastDeviceStepTs: data.lastDeviceStepTs,
    fractionalTimes: data.fractionalTimes,
    hloRows: data.hloRows,
    doubtful: sorter.doubtful,
    farUs: sorter.farUs,
  };
}

/** Appends a piece in the order of the file: the result is that of reading the file in one thread. */
export function appendPiece(data: TraceData, sorter: Sorter, piece: TracePiece): void {
  const names = data.symbols.append(piece.symbols);
  const inputs = data.shapes.append(piece.shapes);
  const lanes = sorter.appendLanes(piece.lanes);
  const deviceRows = data.device.rows;
  const hostRows = data.host.rows;
  data.device.append(piece.device, names, lanes);
  data.runtime.append(piece.runtime, names, lanes);
  for (const { rows, buffer } of piece.host) {
    const segment = new HostSegment(pieceSegmentRows, buffer);
    for (let i = 0; i < rows; i++)
      data.host.add(
        segment.ts[i],
        segment.dur[i],
        names[segment.name[i]],
        segment.category[i],
        lanes[segment.lane[i]],
        segment.device[i],
        segment.inputs[i] < 0 ? -1 : inputs[segment.inputs[i]],
        segment.sequence[i],
      );
  }
  for (const [row, value] of piece.bandwidths) data.bandwidths.set(deviceRows + row, value);
  for (const [row, value] of piece.deviceCollectives) data.deviceCollectives.set(deviceRows + row, value);
  for (const [row, value] of piece.hostCollectives) data.hostCollectives.set(hostRows + row, value);
  for (const [correlation, wait] of piece.waits) data.waits.set(correlation, wait);
  for (const [pid, name] of piece.processNames) data.processNames.set(pid, name);
  for (const [thread, name] of piece.threadNames) data.threadNames.set(thread, name);
  for (const step of piece.steps) data.steps.push({ ...step, lane: lanes[step.lane] });
  for (const [number, { start, end }] of piece.runs) data.addRun(number, start, end);
  for (const name of piece.stepNames) data.stepNames.add(names[name]);
  for (const lane of piece.operatorLanes) data.operatorLanes.add(lanes[lane]);
  data.lastStepTs = Math.max(data.lastStepTs, piece.lastStepTs);
  data.lastDeviceStepTs = Math.max(data.lastDeviceStepTs, piece.lastDeviceStepTs);
  data.fractionalTimes ||= piece.fractionalTimes;
  data.hloRows += piece.hloRows;
  for (const reason of Object.keys(piece.doubtful) as (keyof Sorter["doubtful"])[])
    sorter.doubtful[reason] += piece.doubtful[reason];
  sorter.farUs ??= piece.farUs;
}
