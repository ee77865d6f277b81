// Reads a trace file (JSON, gzip, Nsight Systems and others, detected by its first bytes) into device, runtime and host tables. A damaged file keeps the
// events before the damage and reports it.
import { statSync } from "node:fs";
import { type FileHandle, open } from "node:fs/promises";
import { mostDevices } from "@weft/formats";
import { allStreams, DeviceTable, HostTable, RuntimeTable } from "./columns.js";
import { argumentIndex as arg, type EventSlots } from "./event.js";
import type { DevicePeaks } from "./gpus.js";
import { gunzipFile } from "./gzip.js";
import { bytesOfDtype, type Category, categories, categoryIndex, categoryOf, isHostCollective } from "./kinds.js";
import { isSqlite, streamNsys } from "./nsys.js";
import { TraceSyntaxError } from "./scan.js";
import { ShapeTable } from "./shapes.js";
import { type EventSink, TraceStream } from "./stream.js";
import { Symbols } from "./symbols.js";
import { isTape, streamTape } from "./tape.js";
import { isXplane, streamXplane } from "./xplane.js";

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
export interface Lane {
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
  readonly lanes: Lane[] = [];
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
  /** Profiler of traces with device events. */
  source: "kineto" | "nsight" = "kineto";
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
  ) {
    this.device = new DeviceTable(expectedRows);
    this.runtime = new RuntimeTable(expectedRows);
    this.host = new HostTable(residentSegments);
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

class Sorter implements EventSink {
  private readonly categorySymbols = new Symbols();
  private readonly categoryOfSymbol: number[] = [];
  private readonly pids = new Symbols();
  private readonly tids = new Symbols();
  private readonly laneOf = new Map<number, number>();
  private lastPid = -1;
  private lastTid = -1;
  private lastLane = -1;
  private readonly open = new Map<number, { ts: number; name: number; category: number }[]>();
  private readonly nameFlags: number[] = [];
  negativeDurations = 0;
  badTimes = 0;
  unmatchedEnds = 0;

  private hasOrigin = false;

  constructor(private readonly data: TraceData) {}

  /** Start of an event in the unit of the tables. */
  private start(e: EventSlots): number {
    if (this.data.unit === "us") return e.ts;
    if (!this.hasOrigin) {
      this.hasOrigin = true;
      this.data.originUs = e.tsWhole;
    }
    return (e.tsWhole - this.data.originUs) * 1000 + e.tsNanoseconds;
  }

  header(name: string, raw: string): void {
    const header = this.data.header;
    try {
      if (name === "baseTimeNanoseconds") {
        header.baseNanoseconds = BigInt(raw.trim());
        return;
      }
      const value = JSON.parse(raw) as unknown;
      if (name === "distributedInfo" && value !== null && typeof value === "object") {
        const info = value as Record<string, unknown>;
        header.rank = asInteger(info["rank"]);
        header.worldSize = asInteger(info["world_size"]);
        for (const key of ["rank", "world_size"] as const)
          if ((asInteger(info[key]) ?? 0) > mostDevices)
            throw new RangeError(`${key} ${String(info[key])} is above ${mostDevices}`);
        header.backend = typeof info["backend"] === "string" ? info["backend"] : null;
      } else if (name === "host_name" && typeof value === "string") header.hostName = value;
      else if (name === "deviceProperties" && Array.isArray(value))
        header.deviceNames = value.map((d) => String((d as Record<string, unknown>)?.["name"] ?? "unknown"));
    } catch (error) {
      const why = error instanceof RangeError ? `: ${error.message}` : "";
      if (name === "distributedInfo") Object.assign(header, { rank: null, worldSize: null });
      this.data.problems.push(`the header field ${name} could not be read and was ignored${why}`);
    }
  }

  event(e: EventSlots, bytes: Buffer): void {
    if (e.phase !== 0 && Number.isNaN(e.ts) && e.phase !== 0x4d) this.data.fractionalTimes = true;
    if (e.tsIsFloat) this.data.fractionalTimes = true;
    switch (e.phase) {
      case 0x58: // X: a whole event
        this.whole(e, bytes);
        return;
      case 0x42: // B
      case 0x45: // E
        this.half(e, bytes);
        return;
      case 0x4d: // M
        this.metadata(e, bytes);
        return;
    }
  }

  private whole(e: EventSlots, bytes: Buffer): void {
    if (Number.isNaN(e.dur)) return;
    const category = this.category(e, bytes);
    if (categories[category] === "trace") return;
    if (!Number.isFinite(e.ts) || !Number.isFinite(e.dur)) {
      this.badTimes++;
      return;
    }
    if (e.dur < 0) {
      this.negativeDurations++;
      return;
    }
    const start = this.start(e);
    const duration = this.data.unit === "us" ? e.dur : e.durNanoseconds;
    if (!(Math.abs(start) + duration <= Number.MAX_SAFE_INTEGER) && this.data.unit === "ns") {
      this.badTimes++;
      return;
    }
    const name = this.data.symbols.intern(bytes, e.name.start, e.name.end, e.name.hash);
    this.store(e, bytes, start, duration, name, category);
  }

  /** B and E events of one thread nest; each pair becomes one row. */
  private half(e: EventSlots, bytes: Buffer): void {
    const lane = this.lane(e, bytes);
    let stack = this.open.get(lane);
    if (stack === undefined) this.open.set(lane, (stack = []));
    if (e.phase === 0x42) {
      const name = this.data.symbols.intern(bytes, e.name.start, e.name.end, e.name.hash);
      stack.push({ ts: Number.isFinite(e.ts) ? this.start(e) : Number.NaN, name, category: this.category(e, bytes) });
      return;
    }
    const begin = stack.pop();
    const end = Number.isFinite(e.ts) ? this.start(e) : Number.NaN;
    if (begin === undefined || !(end >= begin.ts)) {
      this.unmatchedEnds++;
      return;
    }
    this.store(e, bytes, begin.ts, end - begin.ts, begin.name, begin.category);
  }

  private store(e: EventSlots, bytes: Buffer, ts: number, dur: number, name: number, category: number): void {
    const data = this.data;
    const lane = this.lane(e, bytes);
    const kind = categories[category];
    const correlation = e.has(arg.correlation) ? e.number(arg.correlation) : -1;
    const stream = e.has(arg.stream) ? e.number(arg.stream) : -1;
    if (this.isDevice(kind, stream, name)) {
      const row = data.device.add();
      const table = data.device;
      table.ts[row] = ts;
      table.dur[row] = dur;
      table.name[row] = name;
      table.category[row] = category;
      table.lane[row] = lane;
      table.device[row] = e.has(arg.device) ? deviceNumber(e.number(arg.device)) : -1;
      table.stream[row] = Number.isFinite(stream) ? Math.min(stream, allStreams) : -1;
      table.correlation[row] = Number.isFinite(correlation) ? correlation : -1;
      if (e.has(arg["memory bandwidth (GB/s)"])) data.bandwidths.set(row, e.number(arg["memory bandwidth (GB/s)"]));
      if (e.has(arg["Collective name"])) data.deviceCollectives.set(row, collectiveArguments(e, bytes));
      if (kind === "sync" && e.has(arg.wait_on_stream))
        data.waits.set(correlation, {
          stream: e.number(arg.wait_on_stream),
          record: e.number(arg.wait_on_cuda_event_record_corr_id),
        });
      return;
    }
    if (correlation >= 0) {
      const row = data.runtime.add();
      data.runtime.ts[row] = ts;
      data.runtime.dur[row] = dur;
      data.runtime.name[row] = name;
      data.runtime.lane[row] = lane;
      data.runtime.correlation[row] = correlation;
      return;
    }
    this.storeHost(e, bytes, ts, dur, name, category, lane);
  }

  private storeHost(
    e: EventSlots,
    bytes: Buffer,
    ts: number,
    dur: number,
    name: number,
    category: number,
    lane: number,
  ): void {
    const data = this.data;
    let device = -1;
    if (e.has(arg.hlo_op)) {
      data.hloRows++;
      const ordinal = e.number(arg.device_ordinal);
      if (Number.isInteger(ordinal) && ordinal >= 0) device = ordinal;
    }
    const flags = this.flags(name);
    if (flags > 1) {
      data.stepNames.add(name);
      if (categories[category] !== "gpu_user_annotation") data.lastStepTs = Math.max(data.lastStepTs, ts);
      else data.lastDeviceStepTs = Math.max(data.lastDeviceStepTs, ts);
    }
    if (flags !== 0 && categories[category] !== "gpu_user_annotation") {
      if (flags > 1) data.steps.push({ number: flags - 2, ts, dur, lane });
      else data.hostCollectives.set(data.host.rows, hostCollectiveArguments(e, bytes, data.symbols.text(name)));
    } else if (e.has(arg.step_num)) {
      data.steps.push({ number: e.number(arg.step_num), ts, dur, lane });
    }
    if (e.has(arg.step)) {
      const run = data.runs.get(e.number(arg.step));
      if (run === undefined) data.runs.set(e.number(arg.step), { start: ts, end: ts + dur });
      else {
        run.start = Math.min(run.start, ts);
        run.end = Math.max(run.end, ts + dur);
      }
    }
    const isOperator = category === categoryIndex.cpu_op;
    const inputs = isOperator ? data.shapes.add(e, bytes) : -1;
    const sequence = isOperator && e.has(arg["Sequence number"]) ? e.number(arg["Sequence number"]) : -1;
    data.host.add(ts, dur, name, category, lane, device, inputs, sequence);
  }

  /** 0: nothing special; 1: a collective on the host; n + 2: ProfilerStep n. Computed once per name. */
  private flags(name: number): number {
    const known = this.nameFlags[name];
    if (known !== undefined) return known;
    const text = this.data.symbols.text(name);
    const step = /^ProfilerStep\s*#\s*(\d+)/.exec(text);
    const flags = step ? Number(step[1]) + 2 : isHostCollective(text) ? 1 : 0;
    this.nameFlags[name] = flags;
    return flags;
  }

  // An annotation with a stream spans kernels, which would be counted twice.
  private isDevice(kind: Category, stream: number, name: number): boolean {
    switch (kind) {
      case "kernel":
      case "memcpy":
      case "memset":
        return stream >= 0;
      case "sync": {
        if (stream >= 0) return true;
        const text = this.data.symbols.text(name);
        return text === "Event Sync" || text === "Context Sync";
      }
      case "other":
        return stream >= 0;
      default:
        return false;
    }
  }

  private category(e: EventSlots, bytes: Buffer): number {
    if (e.category.end === e.category.start) return categoryIndex.none;
    const symbol = this.categorySymbols.intern(bytes, e.category.start, e.category.end, e.category.hash);
    const known = this.categoryOfSymbol[symbol];
    if (known !== undefined) return known;
    const category = categoryIndex[categoryOf(this.categorySymbols.text(symbol))];
    this.categoryOfSymbol[symbol] = category;
    return category;
  }

  private lane(e: EventSlots, bytes: Buffer): number {
    const pid = this.pids.intern(bytes, e.pid.start, e.pid.end, e.pid.hash);
    const tid = this.tids.intern(bytes, e.tid.start, e.tid.end, e.tid.hash);
    if (pid === this.lastPid && tid === this.lastTid) return this.lastLane;
    const key = pid * 0x2000000 + tid;
    let lane = this.laneOf.get(key);
    if (lane === undefined) {
      lane = this.data.lanes.length;
      this.laneOf.set(key, lane);
      this.data.lanes.push({ pid: this.pids.text(pid), tid: this.tids.text(tid) });
    }
    this.lastPid = pid;
    this.lastTid = tid;
    this.lastLane = lane;
    return lane;
  }

  private metadata(e: EventSlots, bytes: Buffer): void {
    const what = bytes.toString("utf8", e.name.start, e.name.end);
    if ((what !== "process_name" && what !== "thread_name") || !e.has(arg.name)) return;
    const pid = bytes.toString("utf8", e.pid.start, e.pid.end);
    const name = e.raw(bytes, arg.name);
    if (what === "process_name") this.data.processNames.set(pid, name);
    else this.data.threadNames.set(`${pid}\u0000${bytes.toString("utf8", e.tid.start, e.tid.end)}`, name);
  }
}

const deviceNumber = (value: number): number =>
  Number.isInteger(value) && value >= 0 && value <= mostDevices ? value : -1;

function asInteger(value: unknown): number | null {
  const number = typeof value === "string" && value !== "" ? Number(value) : value;
  return typeof number === "number" && Number.isInteger(number) && number >= 0 ? number : null;
}

function orNull(value: number): number | null {
  return Number.isFinite(value) ? value : null;
}

function collectiveArguments(e: EventSlots, bytes: Buffer): CollectiveArguments {
  return {
    name: e.raw(bytes, arg["Collective name"]),
    inElements: orNull(e.number(arg["In msg nelems"])),
    outElements: orNull(e.number(arg["Out msg nelems"])),
    elementBytes: bytesOfDtype(e.raw(bytes, arg.dtype)),
    groupSize: orNull(e.number(arg["Group size"])),
    group: e.raw(bytes, arg["Process Group Name"]),
    sequence: orNull(e.number(arg.Seq)),
  };
}

/** gloo records its inputs' shapes: `[[2362372]]` of `["float"]`. */
function hostCollectiveArguments(e: EventSlots, bytes: Buffer, name: string): CollectiveArguments {
  let elements: number | null = null;
  let elementBytes: number | null = null;
  try {
    const dims = JSON.parse(e.raw(bytes, arg["Input Dims"])) as number[][];
    const types = JSON.parse(e.raw(bytes, arg["Input type"])) as string[];
    elements = dims.reduce((sum, shape) => sum + shape.reduce((n, d) => n * d, 1), 0);
    elementBytes = bytesOfDtype(types[0] ?? "");
  } catch {
    // Shapes are recorded only with `record_shapes`.
  }
  return {
    name,
    inElements: elements,
    outElements: elements,
    elementBytes,
    groupSize: null,
    group: "",
    sequence: null,
  };
}

export interface TraceReadOptions {
  /** Called periodically with the bytes read and the file size; reading waits for the returned promise. */
  onProgress?: (bytes: number, total: number) => void | Promise<void>;
  /** Host segments (65,536 rows, 2.4 MB each) in memory before the oldest are spilled to a temporary file. */
  residentSegments?: number;
  signal?: AbortSignal;
  /** Called with what is wrong with the container of a trace that can still be read. */
  onProblem?: (problem: string) => void;
  /** Rates of the device for the roofline, instead of those of its data sheet. */
  peaks?: DevicePeaks;
  /** Times as Holistic Trace Analysis has them: microseconds, fractions rounded inward. Otherwise exact nanoseconds. */
  hta?: boolean;
}

/** Reads a trace. Throws only when the file cannot be opened; damaged content is reported by `problems` and `complete`. */
export async function readTrace(file: string, options: TraceReadOptions = {}): Promise<TraceData> {
  const data = new TraceData(file, expectedRows(file), options.residentSegments, options.hta ? "us" : "ns");
  const sorter = new Sorter(data);
  const stream = new TraceStream(sorter);
  try {
    const onProblem = (problem: string): void => {
      data.problems.push(problem);
    };
    data.source = await streamFile(file, stream, { ...options, onProblem });
    const problem = stream.finish();
    if (problem !== null) {
      data.complete = false;
      data.problems.push(problem);
    }
  } catch (error) {
    if (options.signal?.aborted || (error as NodeJS.ErrnoException).syscall !== undefined) {
      data.host.dispose();
      throw error;
    }
    data.complete = false;
    data.problems.push(brokenMessage(error, stream));
  }
  data.events = stream.events;
  data.bytes = stream.bytesRead;
  if (sorter.negativeDurations > 0)
    data.problems.push(`${sorter.negativeDurations} events with a negative duration were left out`);
  if (sorter.badTimes > 0)
    data.problems.push(
      `${sorter.badTimes} events whose time is not a number, or more than 104 days from the first, were left out`,
    );
  if (sorter.unmatchedEnds > 0)
    data.problems.push(`${sorter.unmatchedEnds} end events without a beginning were left out`);
  return data;
}

/** An event with its launch takes about a kilobyte of JSON, of which gzip leaves a twentieth. */
function expectedRows(file: string): number {
  const info = statSync(file);
  const bytes = info.size * (file.endsWith(".gz") ? 20 : 1);
  return Math.max(1024, Math.min(1 << 24, Math.ceil(bytes / 700)));
}

function brokenMessage(error: unknown, stream: TraceStream): string {
  const kept = `${stream.events} events up to byte ${stream.goodBytes} were kept, the rest is missing`;
  if (error instanceof TraceSyntaxError) return `broken JSON: ${error.message}; ${kept}`;
  const code = (error as NodeJS.ErrnoException).code ?? "";
  if (code === "Z_BUF_ERROR") return `the gzip file is cut short; ${kept}`;
  if (code.startsWith("Z_")) return `the gzip file is damaged (${(error as Error).message}); ${kept}`;
  return `${(error as Error).message}; ${kept}`;
}

/** Feeds the events of a file to a stream: of a plain or gzip file its bytes. Returns the profiler that wrote it. */
export async function streamFile(
  file: string,
  stream: TraceStream,
  options: TraceReadOptions = {},
): Promise<"kineto" | "nsight"> {
  const handle = await open(file, "r");
  try {
    const info = await handle.stat();
    if (info.isDirectory())
      throw Object.assign(new Error(`${file} is a folder; name the trace files in it`), {
        code: "EISDIR",
        syscall: "read",
      });
    const magic = Buffer.alloc(64);
    await handle.read(magic, 0, 64, 0);
    if (isXplane(file)) streamXplane(file, stream);
    else if (isSqlite(magic)) {
      await streamNsys(file, stream, options);
      return "nsight";
    } else if (isTape(magic)) await streamTape(file, stream, options);
    else if (magic[0] === 0x1f && magic[1] === 0x8b) {
      const problem = await gunzipFile(file, handle, info.size, (bytes, consumed) => {
        options.signal?.throwIfAborted();
        stream.push(bytes);
        return options.onProgress?.(consumed, info.size);
      });
      if (problem !== null) options.onProblem?.(problem);
    } else await streamPlain(handle, info.size, stream, options);
    return "kineto";
  } finally {
    await handle.close();
  }
}

async function streamPlain(
  handle: FileHandle,
  size: number,
  stream: TraceStream,
  options: TraceReadOptions,
): Promise<void> {
  let position = 0;
  for (;;) {
    options.signal?.throwIfAborted();
    const room = stream.room();
    const { bytesRead } = await handle.read(room, 0, room.length, position);
    if (bytesRead === 0) return;
    position += bytesRead;
    stream.advance(bytesRead);
    await options.onProgress?.(position, size);
  }
}
