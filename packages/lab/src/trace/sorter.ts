// Sorts parsed events into the tables of a trace: device work, calls with a correlation id, other host events, marks, names.
import { mostDevices } from "@weft/formats/limits";
import { allStreams } from "./columns.js";
import type { CollectiveArguments, TraceData } from "./data.js";
import { argumentIndex as arg, EventSlots } from "./event.js";
import { bytesOfDtype, type Category, categories, categoryIndex, categoryOf, isHostCollective } from "./kinds.js";
import type { EventSink } from "./stream.js";
import { type SymbolColumns, Symbols } from "./symbols.js";

/** Lanes as pairs of ids of processes and threads. */
export interface LaneColumns {
  pids: SymbolColumns;
  tids: SymbolColumns;
  lanes: [pid: number, tid: number][];
}

/** A beginning whose end has not come. */
interface OpenEvent {
  ts: number;
  name: number;
  category: number;
  /** The event, where it has arguments. */
  bytes: Buffer | null;
}

/** Longer beginnings keep their times only. */
const longestBegin = 1 << 14;

/** Sorts the events of a stream into the tables of a trace. */
export class Sorter implements EventSink {
  private readonly categorySymbols = new Symbols();
  private readonly categoryOfSymbol: number[] = [];
  private readonly pids = new Symbols();
  private readonly tids = new Symbols();
  private readonly laneOf = new Map<number, number>();
  private readonly lanes: [pid: number, tid: number][] = [];
  private lastPid = -1;
  private lastTid = -1;
  private lastLane = -1;
  private lastOperatorLane = -1;
  private readonly open = new Map<number, OpenEvent[]>();
  /** Time of the last beginning or end of each lane. */
  private readonly lastHalf = new Map<number, number>();
  private readonly begun = new EventSlots();
  private readonly nameFlags: number[] = [];
  /** Numbers of events that were left out, or whose values are doubtful, by reason. */
  readonly doubtful = {
    negativeDurations: 0,
    withoutDuration: 0,
    badTimes: 0,
    /** Too far from the zero of the time axis. */
    farTimes: 0,
    unmatchedEnds: 0,
    disordered: 0,
    withoutStream: 0,
  };
  /** Whole microseconds of the first event that is too far. */
  farUs: number | null = null;

  /** Beginnings and ends of events: they belong together across the blocks of a file. */
  halves = 0;
  private hasOrigin: boolean;

  /** `hasOrigin`: the zero of the time axis is given by the data, not by the first event. */
  constructor(
    private readonly data: TraceData,
    hasOrigin = false,
  ) {
    this.hasOrigin = hasOrigin;
  }

  /** Whether the zero of the time axis is known. */
  get knowsOrigin(): boolean {
    return this.hasOrigin || this.data.unit === "us";
  }

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
    const category = this.category(e, bytes);
    if (categories[category] === "trace") return;
    if (Number.isNaN(e.dur)) {
      this.doubtful.withoutDuration++;
      return;
    }
    if (!Number.isFinite(e.ts) || !Number.isFinite(e.dur)) {
      this.doubtful.badTimes++;
      return;
    }
    if (e.dur < 0) {
      this.doubtful.negativeDurations++;
      return;
    }
    const start = this.start(e);
    const duration = this.data.unit === "us" ? e.dur : e.durNanoseconds;
    if (this.isFar(e, start, duration)) return;
    const name = this.data.symbols.intern(bytes, e.name.start, e.name.end, e.name.hash);
    this.store(e, bytes, start, duration, name, category);
  }

  /** Counts an event that cannot be exact on this time axis. */
  private isFar(e: EventSlots, start: number, duration: number): boolean {
    if (Math.abs(start) + duration <= Number.MAX_SAFE_INTEGER || this.data.unit === "us") return false;
    this.doubtful.farTimes++;
    this.farUs ??= e.tsWhole;
    return true;
  }

  /** B and E events of one thread nest; each pair becomes one row. */
  private half(e: EventSlots, bytes: Buffer): void {
    this.halves++;
    const lane = this.lane(e, bytes);
    let stack = this.open.get(lane);
    if (stack === undefined) this.open.set(lane, (stack = []));
    const ts = Number.isFinite(e.ts) ? this.start(e) : Number.NaN;
    if (ts < (this.lastHalf.get(lane) ?? Number.NEGATIVE_INFINITY)) this.doubtful.disordered++;
    else this.lastHalf.set(lane, ts);
    if (e.phase === 0x42) {
      const name = this.data.symbols.intern(bytes, e.name.start, e.name.end, e.name.hash);
      const isKept = e.args !== 0 && e.end - e.start <= longestBegin;
      const copy = isKept ? Buffer.from(bytes.subarray(e.start, e.end)) : null;
      stack.push({ ts, name, category: this.category(e, bytes), bytes: copy });
      return;
    }
    const begin = stack.pop();
    if (begin === undefined || !(ts >= begin.ts)) {
      this.doubtful.unmatchedEnds++;
      return;
    }
    if (this.isFar(e, begin.ts, ts - begin.ts)) return;
    // Arguments stand at the beginning, or at the end.
    if (begin.bytes !== null) this.begun.parse(begin.bytes, 0, begin.bytes.length);
    const [slots, text] = begin.bytes === null ? [e, bytes] : [this.begun, begin.bytes];
    this.store(slots, text, begin.ts, ts - begin.ts, begin.name, begin.category);
  }

  private store(e: EventSlots, bytes: Buffer, ts: number, dur: number, name: number, category: number): void {
    const data = this.data;
    const lane = this.lane(e, bytes);
    const kind = categories[category];
    const correlation = e.has(arg.correlation) ? e.number(arg.correlation) : -1;
    const stream = e.has(arg.stream) ? e.number(arg.stream) : -1;
    if (!(stream >= 0) && (kind === "kernel" || kind === "memcpy" || kind === "memset")) this.doubtful.withoutStream++;
    if (this.isDevice(kind, stream, name)) {
      const row = data.device.add(ts, dur, name, lane, Number.isFinite(correlation) ? correlation : -1);
      data.device.describe(
        row,
        category,
        Number.isFinite(stream) ? Math.trunc(Math.min(stream, allStreams)) : -1,
        e.has(arg.device) ? deviceNumber(e.number(arg.device)) : -1,
      );
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
      data.runtime.add(ts, dur, name, lane, correlation);
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
      device = deviceNumber(e.number(arg.device_ordinal));
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
    } else if (Number.isSafeInteger(e.number(arg.step_num))) {
      data.steps.push({ number: e.number(arg.step_num), ts, dur, lane });
    }
    if (Number.isSafeInteger(e.number(arg.step))) data.addRun(e.number(arg.step), ts, ts + dur);
    const isOperator = category === categoryIndex.cpu_op;
    if (isOperator && lane !== this.lastOperatorLane) {
      this.lastOperatorLane = lane;
      data.operatorLanes.add(lane);
    }
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
    const lane = this.laneOfIds(pid, tid);
    this.lastPid = pid;
    this.lastTid = tid;
    this.lastLane = lane;
    return lane;
  }

  private laneOfIds(pid: number, tid: number): number {
    const key = pid * 0x2000000 + tid;
    let lane = this.laneOf.get(key);
    if (lane === undefined) {
      lane = this.data.lanes.length;
      this.laneOf.set(key, lane);
      this.lanes.push([pid, tid]);
      this.data.lanes.push({ pid: this.pids.text(pid), tid: this.tids.text(tid) });
    }
    return lane;
  }

  /** Processes and threads of the lanes, for another thread. */
  laneColumns(): LaneColumns {
    return { pids: this.pids.columns(), tids: this.tids.columns(), lanes: this.lanes };
  }

  /** Adds the lanes that another thread has found; returns their numbers here. */
  appendLanes({ pids, tids, lanes }: LaneColumns): Int32Array {
    const pidIds = this.pids.append(pids);
    const tidIds = this.tids.append(tids);
    return Int32Array.from(lanes, ([pid, tid]) => this.laneOfIds(pidIds[pid], tidIds[tid]));
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
  return typeof number === "number" && Number.isSafeInteger(number) && number >= 0 ? number : null;
}

function collectiveArguments(e: EventSlots, bytes: Buffer): CollectiveArguments {
  return {
    name: e.raw(bytes, arg["Collective name"]),
    inElements: asInteger(e.number(arg["In msg nelems"])),
    outElements: asInteger(e.number(arg["Out msg nelems"])),
    elementBytes: bytesOfDtype(e.raw(bytes, arg.dtype)),
    groupSize: asInteger(e.number(arg["Group size"])),
    group: e.raw(bytes, arg["Process Group Name"]),
    sequence: asInteger(e.number(arg.Seq)),
  };
}

/** gloo records its inputs' shapes: `[[2362372]]` of `["float"]`. */
function hostCollectiveArguments(e: EventSlots, bytes: Buffer, name: string): CollectiveArguments {
  let elements: number | null = null;
  let elementBytes: number | null = null;
  try {
    const dims = JSON.parse(e.raw(bytes, arg["Input Dims"])) as number[][];
    const types = JSON.parse(e.raw(bytes, arg["Input type"])) as string[];
    elements = asInteger(dims.reduce((sum, shape) => sum + shape.reduce((n, d) => n * d, 1), 0));
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
