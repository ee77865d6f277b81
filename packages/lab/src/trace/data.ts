// What is read from a trace: tables of device events, runtime calls and host events, with names, shapes and marks.
import { DeviceTable, HostTable, RuntimeTable } from "./columns.js";
import { ShapeTable } from "./shapes.js";
import type { SqliteSource } from "./sqlite.js";
import { Symbols } from "./symbols.js";

/** A collective's size and group, as the profiler recorded them. */
export interface CollectiveArguments {
  name: string;
  inElements: number | null;
  outElements: number | null;
  elementBytes: number | null;
  groupSize: number | null;
  group: string;
  /** Number of the collective in its group; null where the trace does not say. */
  sequence: number | null;
}

/** A thread or stream: the pair of process and thread that an event names. */
interface TraceLane {
  pid: string;
  tid: string;
}

interface TraceHeader {
  rank: number | null;
  worldSize: number | null;
  backend: string | null;
  hostName: string | null;
  deviceNames: string[];
  /** Origin of the times, in nanoseconds since 1970, where the file gives one. */
  baseNanoseconds: bigint | null;
}

/** A step that the trace marks: ProfilerStep#n, or a JAX event with `step_num`. */
export interface StepMark {
  number: number;
  ts: number;
  dur: number;
  lane: number;
}

export class TraceData {
  readonly symbols = new Symbols();
  /** Inputs of host operators, by the ids in the host table. */
  readonly shapes = new ShapeTable();
  readonly lanes: TraceLane[] = [];
  readonly device: DeviceTable;
  readonly runtime: RuntimeTable;
  readonly host: HostTable;
  /** GB/s of a copy, by its row. */
  readonly bandwidths = new Map<number, number>();
  readonly deviceCollectives = new Map<number, CollectiveArguments>();
  /** Collectives that ran on the host (gloo, MPI), by the order of the host rows. */
  readonly hostCollectives = new Map<number, CollectiveArguments>();
  /** Correlation id of a sync event -> what it waits on. */
  readonly waits = new Map<number, { stream: number; record: number }>();
  readonly processNames = new Map<string, string>();
  readonly threadNames = new Map<string, string>();
  readonly steps: StepMark[] = [];
  /** Begin and end of each run of a program in traces of Weft, by its number. */
  readonly runs = new Map<number, { start: number; end: number }>();
  /** Names of the step annotations, to count distinct ones as Holistic Trace Analysis does. */
  readonly stepNames = new Set<number>();
  /** Start of the last profiler step on the host, and on the device, where a step begins after its first launches. */
  lastStepTs = Number.NEGATIVE_INFINITY;
  lastDeviceStepTs = Number.NEGATIVE_INFINITY;
  header: TraceHeader = {
    rank: null,
    worldSize: null,
    backend: null,
    hostName: null,
    deviceNames: [],
    baseNanoseconds: null,
  };
  /** Whole microseconds that are zero on the time axis of the tables. */
  originUs = 0;
  /** True when times have fractions (or some are missing): Holistic Trace Analysis then rounds them inward. */
  fractionalTimes = false;
  hloRows = 0;
  /** Lanes of operators: those of one rank belong to one process. */
  readonly operatorLanes = new Set<number>();
  /** Kernels and copies without a stream: they are in no table. */
  withoutStream = 0;
  /** Profiler of traces with device events. */
  source: "kineto" | SqliteSource = "kineto";
  events = 0;
  bytes = 0;
  complete = true;
  problems: string[] = [];

  constructor(
    readonly file: string,
    /** Initial capacity of the device and runtime tables. */
    expectedRows = 1024,
    residentSegments?: number,
    /**
     * Time unit of the tables: nanoseconds since `originUs`, which are whole numbers and add up exactly, or microseconds as
     * Holistic Trace Analysis uses them.
     */
    readonly unit: "ns" | "us" = "ns",
    hostRowsPerSegment?: number,
  ) {
    this.device = new DeviceTable(expectedRows, unit === "ns");
    this.runtime = new RuntimeTable(expectedRows, unit === "ns");
    this.host = new HostTable(residentSegments, hostRowsPerSegment);
  }

  /** Adds an event of a numbered run of a program. */
  addRun(number: number, start: number, end: number): void {
    const run = this.runs.get(number);
    if (run === undefined) this.runs.set(number, { start, end });
    else {
      run.start = Math.min(run.start, start);
      run.end = Math.max(run.end, end);
    }
  }

  /** Time units per microsecond. */
  get ticksPerUs(): number {
    return this.unit === "ns" ? 1000 : 1;
  }

  laneName(lane: number): string {
    const { pid, tid } = this.lanes[lane];
    return this.threadNames.get(`${pid}\u0000${tid}`) ?? tid;
  }

  processName(lane: number): string {
    const { pid } = this.lanes[lane];
    return this.processNames.get(pid) ?? pid;
  }

  [Symbol.dispose](): void {
    this.host.dispose();
  }
}
