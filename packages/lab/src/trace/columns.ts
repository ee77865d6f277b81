// Growable typed columns for events. The host table, the only one that can become very large, consists of segments; beyond a
// bound the oldest segments are spilled to a temporary file.
import { closeSync, mkdtempSync, openSync, readSync, rmSync, writeSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

type Typed = Float64Array | Int32Array | Uint8Array;

export function grown<T extends Typed>(column: T, length: number): T {
  const wider = new (column.constructor as new (n: number) => T)(length);
  (wider as Float64Array).set(column as Float64Array);
  return wider;
}

// Doubles while small, then grows by a quarter, to limit unused memory.
const grow = (capacity: number): number => capacity + (capacity < 1 << 18 ? capacity : capacity >> 2) + 1024;

/** Stands for the driver's "all streams" (4294967295), which does not fit into the column. */
export const allStreams = 0x7fffffff;

/** Calls into the device runtime: host events with a correlation id, in file order. */
export class RuntimeTable {
  ts: Float64Array;
  dur: Float64Array;
  name: Int32Array;
  lane: Int32Array;
  correlation: Float64Array;
  rows = 0;

  /** Unused capacity costs no memory until it is written, but growing does: use a generous estimate. */
  constructor(capacity: number) {
    this.ts = new Float64Array(capacity);
    this.dur = new Float64Array(capacity);
    this.name = new Int32Array(capacity);
    this.lane = new Int32Array(capacity);
    this.correlation = new Float64Array(capacity);
  }

  add(): number {
    if (this.rows === this.ts.length) this.growTo(grow(this.rows));
    return this.rows++;
  }

  protected growTo(length: number): void {
    this.ts = grown(this.ts, length);
    this.dur = grown(this.dur, length);
    this.name = grown(this.name, length);
    this.lane = grown(this.lane, length);
    this.correlation = grown(this.correlation, length);
  }
}

/** What ran on a device. */
export class DeviceTable extends RuntimeTable {
  category: Uint8Array;
  stream: Int32Array;
  /** Number of the accelerator, or -1. */
  device: Int32Array;

  constructor(capacity: number) {
    super(capacity);
    this.category = new Uint8Array(capacity);
    this.stream = new Int32Array(capacity);
    this.device = new Int32Array(capacity);
  }

  protected override growTo(length: number): void {
    super.growTo(length);
    this.category = grown(this.category, length);
    this.stream = grown(this.stream, length);
    this.device = grown(this.device, length);
  }
}

const segmentRows = 1 << 16;
const segmentBytes = segmentRows * (8 + 8 + 4 + 4 + 4 + 4 + 4 + 1);

/**
 * A segment of host rows. `device` is the accelerator that the event names (JAX), `inputs` the id of an operator's inputs,
 * `sequence` its number in autograd; each is -1 where the event has none.
 */
class HostSegment {
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

  constructor(buffer = new ArrayBuffer(segmentBytes)) {
    this.buffer = buffer;
    this.ts = new Float64Array(buffer, 0, segmentRows);
    this.dur = new Float64Array(buffer, segmentRows * 8, segmentRows);
    this.name = new Int32Array(buffer, segmentRows * 16, segmentRows);
    this.lane = new Int32Array(buffer, segmentRows * 20, segmentRows);
    this.device = new Int32Array(buffer, segmentRows * 24, segmentRows);
    this.inputs = new Int32Array(buffer, segmentRows * 28, segmentRows);
    this.sequence = new Int32Array(buffer, segmentRows * 32, segmentRows);
    this.category = new Uint8Array(buffer, segmentRows * 36, segmentRows);
  }
}

export class HostTable {
  rows = 0;
  private segments: (HostSegment | null)[] = [];
  private last: HostSegment | null = null;
  private spill: { folder: string; file: number } | null = null;
  private firstResident = 0;

  constructor(
    /** Segments kept in memory (2.4 MB each); older ones are written to a temporary file. */
    private readonly residentSegments = 64,
  ) {}

  get spilledRows(): number {
    return this.firstResident * segmentRows;
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
    if (segment === null || segment.rows === segmentRows) {
      segment = new HostSegment();
      this.segments.push(segment);
      this.last = segment;
      if (this.segments.length - this.firstResident > this.residentSegments) this.spillOldest();
    }
    const row = segment.rows++;
    segment.ts[row] = ts;
    segment.dur[row] = dur;
    segment.name[row] = name;
    segment.category[row] = category;
    segment.lane[row] = lane;
    segment.device[row] = device;
    segment.inputs[row] = inputs;
    segment.sequence[row] = sequence;
    this.rows++;
  }

  /** The segments in order; a spilled one is read back into a buffer that the next spilled one reuses. */
  *each(): Generator<HostSegment> {
    let scratch: HostSegment | null = null;
    for (let i = 0; i < this.segments.length; i++) {
      const resident = this.segments[i];
      if (resident !== null) {
        yield resident;
        continue;
      }
      scratch ??= new HostSegment();
      const read = readSync(this.spill!.file, new Uint8Array(scratch.buffer), 0, segmentBytes, i * segmentBytes);
      if (read !== segmentBytes)
        throw new Error(`the temporary file of spilled trace rows was cut short (segment ${i})`);
      scratch.rows = segmentRows;
      yield scratch;
    }
  }

  private spillOldest(): void {
    if (this.spill === null) {
      const folder = mkdtempSync(join(tmpdir(), "weft-trace-"));
      this.spill = { folder, file: openSync(join(folder, "host.bin"), "w+") };
    }
    const segment = this.segments[this.firstResident]!;
    writeSync(this.spill.file, new Uint8Array(segment.buffer), 0, segmentBytes, this.firstResident * segmentBytes);
    this.segments[this.firstResident] = null;
    this.firstResident++;
  }

  dispose(): void {
    if (this.spill !== null) {
      closeSync(this.spill.file);
      rmSync(this.spill.folder, { recursive: true, force: true });
      this.spill = null;
    }
    this.segments = [];
    this.last = null;
    this.rows = 0;
    this.firstResident = 0;
  }
}
