// Growable typed columns for events. The host table, the only one that can become very large, consists of segments; beyond a
// bound the oldest segments are spilled to a temporary file.
import { closeSync, mkdtempSync, openSync, readSync, rmSync, writeSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

type Typed = Float64Array | Int32Array | Uint8Array;

/** A column that starts with a narrow type and gets a wider one at the first value that does not fit. */
export type Column = Float64Array | Uint32Array | Int32Array | Uint16Array | Int16Array | Uint8Array | Int8Array;

export function grown<T extends Typed | Column>(column: T, length: number): T {
  const wider = new (column.constructor as new (n: number) => T)(length);
  (wider as Float64Array).set(column as Float64Array);
  return wider;
}

// Doubles while small, then grows by a quarter, to limit unused memory.
const grow = (capacity: number): number => capacity + (capacity < 1 << 18 ? capacity : capacity >> 2) + 1024;

/** Stands for the driver's "all streams" (4294967295), which does not fit into the column. */
export const allStreams = 0x7fffffff;

/** The type of a column that holds every value. */
const wideTypes = {
  dur: Float64Array,
  name: Int32Array,
  lane: Int32Array,
  correlation: Float64Array,
  stream: Int32Array,
  device: Int32Array,
} as const;

/** Values that stand for others, in the type of the column, or in the wide one where they do not fit. */
function renumbered(column: Column, rows: number, ids: Int32Array): Column {
  const largest = ids.reduce((most, id) => Math.max(most, id), 0);
  const values = largest < 1 << 16 ? new Uint16Array(rows) : new Int32Array(rows);
  for (let i = 0; i < rows; i++) values[i] = ids[column[i]];
  return values;
}

/** The columns of a table of runtime calls. */
export interface RuntimeColumns {
  rows: number;
  ts: Float64Array;
  dur: Column;
  name: Column;
  lane: Column;
  correlation: Column;
}

/** The columns of a table of device events. */
export interface DeviceColumns extends RuntimeColumns {
  category: Uint8Array;
  stream: Column;
  device: Column;
}

/** Calls into the device runtime: host events with a correlation id, in file order. */
export class RuntimeTable implements RuntimeColumns {
  ts: Float64Array;
  dur: Column;
  name: Column;
  lane: Column;
  correlation: Column;
  rows = 0;

  /**
   * Unused capacity costs no memory until it is written, but growing does: use a generous estimate. `exact`: durations are
   * whole and not negative, so that most tables need four bytes for them.
   */
  constructor(capacity: number, exact = true) {
    this.ts = new Float64Array(capacity);
    this.dur = exact ? new Uint32Array(capacity) : new Float64Array(capacity);
    this.name = new Uint16Array(capacity);
    this.lane = new Uint16Array(capacity);
    this.correlation = new Int32Array(capacity);
  }

  add(ts: number, dur: number, name: number, lane: number, correlation: number): number {
    if (this.rows === this.ts.length) this.growTo(grow(this.rows));
    const row = this.rows++;
    this.ts[row] = ts;
    // A column that changes a value is too narrow.
    this.dur[row] = dur;
    if (this.dur[row] !== dur) this.putWide("dur", row, dur);
    this.name[row] = name;
    if (this.name[row] !== name) this.putWide("name", row, name);
    this.lane[row] = lane;
    if (this.lane[row] !== lane) this.putWide("lane", row, lane);
    this.correlation[row] = correlation;
    if (this.correlation[row] !== correlation) this.putWide("correlation", row, correlation);
    return row;
  }

  /** Appends the rows of another table, whose names and lanes are numbered differently. */
  append(other: RuntimeColumns, names: Int32Array, lanes: Int32Array): void {
    const from = this.rows;
    const rows = from + other.rows;
    if (rows > this.ts.length) this.growTo(Math.max(rows, grow(this.ts.length)));
    this.rows = rows;
    this.ts.set(other.ts.subarray(0, other.rows), from);
    this.copy("dur", from, other.dur, other.rows);
    this.copy("correlation", from, other.correlation, other.rows);
    this.copy("name", from, renumbered(other.name, other.rows, names), other.rows);
    this.copy("lane", from, renumbered(other.lane, other.rows, lanes), other.rows);
  }

  protected get columns(): Record<string, Column> {
    return this as unknown as Record<string, Column>;
  }

  protected putWide(column: keyof typeof wideTypes, row: number, value: number): void {
    if (this.columns[column].constructor !== wideTypes[column]) this.widen(column);
    this.columns[column][row] = value;
  }

  protected copy(column: keyof typeof wideTypes, from: number, values: Column, rows: number): void {
    const isWide = values.constructor === wideTypes[column];
    if (isWide && this.columns[column].constructor !== values.constructor) this.widen(column);
    this.columns[column].set(values.subarray(0, rows), from);
  }

  private widen(column: keyof typeof wideTypes): void {
    const wide = new wideTypes[column](this.columns[column].length);
    wide.set(this.columns[column]);
    this.columns[column] = wide;
  }

  protected growTo(length: number): void {
    this.ts = grown(this.ts, length);
    for (const column of ["dur", "name", "lane", "correlation"] as const)
      this.columns[column] = grown(this.columns[column], length);
  }
}

/** What ran on a device. */
export class DeviceTable extends RuntimeTable implements DeviceColumns {
  category: Uint8Array;
  stream: Column;
  /** Number of the accelerator, or -1. */
  device: Column;

  constructor(capacity: number, exact = true) {
    super(capacity, exact);
    this.category = new Uint8Array(capacity);
    this.stream = new Int16Array(capacity);
    this.device = new Int8Array(capacity);
  }

  /** Category, stream and accelerator of a row that was added. */
  describe(row: number, category: number, stream: number, device: number): void {
    this.category[row] = category;
    this.stream[row] = stream;
    if (this.stream[row] !== stream) this.putWide("stream", row, stream);
    this.device[row] = device;
    if (this.device[row] !== device) this.putWide("device", row, device);
  }

  override append(other: DeviceColumns, names: Int32Array, lanes: Int32Array): void {
    const from = this.rows;
    super.append(other, names, lanes);
    this.category.set(other.category.subarray(0, other.rows), from);
    this.copy("stream", from, other.stream, other.rows);
    this.copy("device", from, other.device, other.rows);
  }

  protected override growTo(length: number): void {
    super.growTo(length);
    this.category = grown(this.category, length);
    this.stream = grown(this.stream, length);
    this.device = grown(this.device, length);
  }
}

const segmentRows = 1 << 16;
const bytesPerRow = 8 + 8 + 4 + 4 + 4 + 4 + 4 + 1;

/**
 * A segment of host rows. `device` is the accelerator that the event names (JAX), `inputs` the id of an operator's inputs,
 * `sequence` its number in autograd; each is -1 where the event has none.
 */
export class HostSegment {
  readonly buffer: ArrayBuffer;
  readonly ts: Float64Array;
  readonly dur: Float64Array;
  readonly name: Int32Array;
  readonly lane: Int32Array;
  readonly device: Int32Array;
  readonly inputs: Int32Array;
  readonly sequence: Int32Array;
  readonly category: Uint8Array;
  rows = 0;
  /** First and last start. */
  first = Number.POSITIVE_INFINITY;
  last = Number.NEGATIVE_INFINITY;

  /** `capacity`: rows that fit into the buffer, a multiple of 8. */
  constructor(capacity: number, buffer = new ArrayBuffer(capacity * bytesPerRow)) {
    this.buffer = buffer;
    this.ts = new Float64Array(buffer, 0, capacity);
    this.dur = new Float64Array(buffer, capacity * 8, capacity);
    this.name = new Int32Array(buffer, capacity * 16, capacity);
    this.lane = new Int32Array(buffer, capacity * 20, capacity);
    this.device = new Int32Array(buffer, capacity * 24, capacity);
    this.inputs = new Int32Array(buffer, capacity * 28, capacity);
    this.sequence = new Int32Array(buffer, capacity * 32, capacity);
    this.category = new Uint8Array(buffer, capacity * 36, capacity);
  }
}

export class HostTable {
  rows = 0;
  private segments: (HostSegment | null)[] = [];
  private last: HostSegment | null = null;
  private spill: { folder: string; file: number } | null = null;
  private firstResident = 0;
  /** Starts of the spilled segments. */
  private spilled: { first: number; last: number }[] = [];

  constructor(
    /** Segments kept in memory (2.4 MB each); older ones are written to a temporary file. */
    private readonly residentSegments = 24,
    /** Rows per segment. */
    private readonly capacity = segmentRows,
  ) {}

  get spilledRows(): number {
    return this.firstResident * this.capacity;
  }

  add(
    ts: number,
    dur: number,
    name: number,
    category: number,
    lane: number,
    device: number,
    inputs = -1,
    sequence = -1,
  ): void {
    let segment = this.last;
    if (segment === null || segment.rows === this.capacity) {
      segment = new HostSegment(this.capacity);
      this.segments.push(segment);
      this.last = segment;
      if (this.segments.length - this.firstResident > this.residentSegments) this.spillOldest();
    }
    const row = segment.rows++;
    segment.ts[row] = ts;
    if (ts < segment.first) segment.first = ts;
    if (ts > segment.last) segment.last = ts;
    segment.dur[row] = dur;
    segment.name[row] = name;
    segment.category[row] = category;
    segment.lane[row] = lane;
    segment.device[row] = device;
    segment.inputs[row] = inputs;
    segment.sequence[row] = sequence;
    this.rows++;
  }

  /**
   * The segments with events that start in [from, to), in order; a spilled one is read back into a buffer that the next spilled
   * one reuses.
   */
  *each(from = Number.NEGATIVE_INFINITY, to = Number.POSITIVE_INFINITY): Generator<HostSegment> {
    let scratch: HostSegment | null = null;
    for (let i = 0; i < this.segments.length; i++) {
      const resident = this.segments[i];
      const { first, last } = resident ?? this.spilled[i];
      if (last < from || first >= to) continue;
      if (resident !== null) {
        yield resident;
        continue;
      }
      scratch ??= new HostSegment(this.capacity);
      const size = scratch.buffer.byteLength;
      const read = readSync(this.spill!.file, new Uint8Array(scratch.buffer), 0, size, i * size);
      if (read !== size) throw new Error(`the temporary file of spilled trace rows was cut short (segment ${i})`);
      scratch.rows = this.capacity;
      yield scratch;
    }
  }

  private spillOldest(): void {
    if (this.spill === null) {
      const folder = mkdtempSync(join(tmpdir(), "weft-trace-"));
      this.spill = { folder, file: openSync(join(folder, "host.bin"), "w+") };
    }
    const segment = this.segments[this.firstResident]!;
    const size = segment.buffer.byteLength;
    writeSync(this.spill.file, new Uint8Array(segment.buffer), 0, size, this.firstResident * size);
    this.segments[this.firstResident] = null;
    this.spilled.push({ first: segment.first, last: segment.last });
    this.firstResident++;
  }

  dispose(): void {
    if (this.spill !== null) {
      closeSync(this.spill.file);
      rmSync(this.spill.folder, { recursive: true, force: true });
      this.spill = null;
    }
    this.segments = [];
    this.spilled = [];
    this.last = null;
    this.rows = 0;
    this.firstResident = 0;
  }
}
