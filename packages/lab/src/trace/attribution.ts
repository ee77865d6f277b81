// Attributes launches to the host events around them: the operator, the module and the line of the user's program. Events of a
// thread nest, so one sweep in time order with a stack per thread finds them. A long trace is swept in windows of time, so that
// only one of them is in memory. A backward operator belongs to the module and line of its forward operator, which has the same
// autograd sequence number.
import { grown } from "./columns.js";
import type { TraceData } from "./data.js";
import { sortRows } from "./intervals.js";
import { categoryIndex, isUserLine } from "./kinds.js";

/** Events per window, and the most that one may have: times far apart can make windows uneven. */
const usualRows = 2 << 20;
const mostRows = 12e6;
/** Forward operators beyond this many are not remembered. */
const mostForward = 1 << 20;

/**
 * Where a launch came from. `operator` and `inputs`: name and inputs of the outermost operator that `isOperator` accepts, else
 * of the innermost; `isFirst`: this is the first launch of that call. `module` and `line`: names. Ids of the trace's symbols
 * and shapes; -1 where there is none.
 */
type Found = (
  runtimeRow: number,
  operator: number,
  inputs: number,
  isFirst: boolean,
  module: number,
  line: number,
  backward: boolean,
) => void;

const modulePrefix = "nn.Module: ";
const backwardPrefix = "autograd::engine::evaluate_function";

/** Bits of a name: 1 module, 2 line, 4 backward, 8 preferred operator; 128: computed. */
function nameBits(data: TraceData, isOperator: (name: string) => boolean): (name: number, category: number) => number {
  const known = new Uint8Array(data.symbols.size);
  return (name, category) => {
    if (known[name] === 0) {
      const text = data.symbols.text(name);
      const isPython = category === categoryIndex.python_function;
      known[name] =
        128 |
        (isPython && text.startsWith(modulePrefix) ? 1 : 0) |
        (isPython && isUserLine(text) ? 2 : 0) |
        (text.startsWith(backwardPrefix) ? 4 : 0) |
        (!isPython && isOperator(text) ? 8 : 0);
    }
    return known[name];
  };
}

const isUsed = (category: number, bits: number): boolean => category === categoryIndex.cpu_op || (bits & 3) !== 0;

/**
 * Calls `found` for every wanted row of the runtime table. Returns false where the trace has too many host events at once.
 * `windowRows`: events per window.
 */
export function attribute(
  data: TraceData,
  wanted: Uint8Array,
  isOperator: (name: string) => boolean,
  found: Found,
  windowRows = usualRows,
): boolean {
  const bits = nameBits(data, isOperator);
  const windows = windowsOf(data, wanted, bits, windowRows);
  if (windows === null) return false;
  const sweep = new Sweep(data, wanted, bits, windows.largest, found);
  for (const [from, to] of windows.bounds) sweep.window(from, to);
  return true;
}

const buckets = 4096;

/** Windows of time with about `windowRows` events each; null where one would have too many. */
function windowsOf(
  data: TraceData,
  wanted: Uint8Array,
  bits: (name: number, category: number) => number,
  windowRows: number,
): { bounds: [from: number, to: number][]; largest: number } | null {
  const { runtime, host } = data;
  let first = Number.POSITIVE_INFINITY;
  let last = Number.NEGATIVE_INFINITY;
  let count = 0;
  const everything: [number, number] = [Number.NEGATIVE_INFINITY, Number.POSITIVE_INFINITY];
  const most = host.rows + runtime.rows;
  if (most <= windowRows) return { bounds: [everything], largest: most };
  const each = (visit: (ts: number) => void): void => {
    for (const segment of host.each())
      for (let i = 0; i < segment.rows; i++)
        if (isUsed(segment.category[i], bits(segment.name[i], segment.category[i]))) visit(segment.ts[i]);
    for (let i = 0; i < runtime.rows; i++) if (wanted[i] === 1) visit(runtime.ts[i]);
  };
  each((ts) => {
    if (ts < first) first = ts;
    if (ts > last) last = ts;
    count++;
  });
  if (!(last > first)) return count > mostRows ? null : { bounds: [everything], largest: count };
  const width = (last - first) / buckets;
  const counts = new Float64Array(buckets + 1);
  each((ts) => counts[Math.floor((ts - first) / width)]++);
  const bounds: [number, number][] = [];
  let from = Number.NEGATIVE_INFINITY;
  let rows = 0;
  let largest = 0;
  for (let i = 0; i <= buckets; i++) {
    if (rows > 0 && rows + counts[i] > windowRows) {
      // A bucket begins at the smallest time that is counted into it, which rounding may move.
      const to = first + i * width;
      bounds.push([from, to]);
      from = to;
      rows = 0;
    }
    rows += counts[i];
    largest = Math.max(largest, rows);
  }
  bounds.push([from, Number.POSITIVE_INFINITY]);
  return largest > mostRows ? null : { bounds, largest };
}

class Sweep {
  private ts = new Float64Array(0);
  private dur = new Float64Array(0);
  private lane = new Int32Array(0);
  private name = new Int32Array(0);
  private inputs = new Int32Array(0);
  private sequence = new Int32Array(0);
  private isCpu = new Uint8Array(0);
  /** Of the rows so far: row of the innermost and of the preferred operator around it, module, line, backward sequence. */
  private operator = new Int32Array(0);
  private preferred = new Int32Array(0);
  private module = new Int32Array(0);
  private line = new Int32Array(0);
  private backward = new Int32Array(0);
  private counted = new Uint8Array(0);
  private capacity = 0;
  /** Open events of each thread, innermost last. */
  private stacks: number[][];
  /** Module and line of forward operators by their sequence numbers. */
  private readonly forward = new Map<number, { module: number; line: number }>();

  constructor(
    private readonly data: TraceData,
    private readonly wanted: Uint8Array,
    private readonly bits: (name: number, category: number) => number,
    rows: number,
    private readonly found: Found,
  ) {
    this.stacks = data.lanes.map((): number[] => []);
    this.reserve(rows + 1024);
  }

  private reserve(rows: number): void {
    if (rows <= this.capacity) return;
    this.capacity = Math.ceil(rows * 1.25);
    this.ts = grown(this.ts, this.capacity);
    this.dur = grown(this.dur, this.capacity);
    this.lane = grown(this.lane, this.capacity);
    this.name = grown(this.name, this.capacity);
    this.inputs = grown(this.inputs, this.capacity);
    this.sequence = grown(this.sequence, this.capacity);
    this.isCpu = grown(this.isCpu, this.capacity);
    this.operator = grown(this.operator, this.capacity);
    this.preferred = grown(this.preferred, this.capacity);
    this.module = grown(this.module, this.capacity);
    this.line = grown(this.line, this.capacity);
    this.backward = grown(this.backward, this.capacity);
    this.counted = grown(this.counted, this.capacity);
  }

  /** Sweeps the events that start in [from, to). */
  window(from: number, to: number): void {
    const carried = this.carry();
    const { runtime, host } = this.data;
    let n = carried;
    for (const segment of host.each(from, to)) {
      this.reserve(n + segment.rows);
      const { ts, dur, lane, name, inputs, sequence, isCpu, bits } = this;
      for (let i = 0; i < segment.rows; i++) {
        const start = segment.ts[i];
        const category = segment.category[i];
        if (start < from || start >= to) continue;
        const isOperator = category === categoryIndex.cpu_op;
        if (!isOperator && !isUsed(category, bits(segment.name[i], category))) continue;
        ts[n] = start;
        dur[n] = segment.dur[i];
        lane[n] = segment.lane[i];
        name[n] = segment.name[i];
        inputs[n] = segment.inputs[i];
        sequence[n] = segment.sequence[i];
        isCpu[n++] = isOperator ? 1 : 0;
      }
    }
    const hostEnd = n;
    for (let i = 0; i < runtime.rows; i++) {
      if (this.wanted[i] !== 1 || runtime.ts[i] < from || runtime.ts[i] >= to) continue;
      if (n === this.capacity) this.reserve(n + 1);
      this.ts[n] = runtime.ts[i];
      this.lane[n] = runtime.lane[i];
      // The row of the call is in the place of its name.
      this.name[n++] = i;
    }
    const order = new Uint32Array(n - carried);
    for (let i = 0; i < order.length; i++) order[i] = carried + i;
    enclosingFirst(sortRows(order, this.ts), this.ts, this.dur, hostEnd);
    for (const row of order) this.visit(row, hostEnd);
  }

  private visit(row: number, hostEnd: number): void {
    const { ts, dur, operator, preferred, module, line, backward } = this;
    const stack = this.stacks[this.lane[row]];
    while (stack.length > 0) {
      const top = stack[stack.length - 1];
      if (ts[top] + dur[top] > ts[row]) break;
      stack.pop();
    }
    const outer = stack.length === 0 ? -1 : stack[stack.length - 1];
    if (row >= hostEnd) {
      this.report(this.name[row], outer);
      return;
    }
    const isCpu = this.isCpu[row] === 1;
    const bits = this.bits(this.name[row], isCpu ? categoryIndex.cpu_op : categoryIndex.python_function);
    operator[row] = outer < 0 ? -1 : operator[outer];
    preferred[row] = outer < 0 ? -1 : preferred[outer];
    module[row] = outer < 0 ? -1 : module[outer];
    line[row] = outer < 0 ? -1 : line[outer];
    backward[row] = outer < 0 ? -1 : backward[outer];
    this.counted[row] = 0;
    if (isCpu) {
      operator[row] = row;
      if (preferred[row] < 0 && (bits & 8) !== 0) preferred[row] = row;
      const sequence = this.sequence[row];
      if ((bits & 4) !== 0) backward[row] = Math.max(0, sequence);
      else if (sequence >= 0 && backward[row] < 0 && (module[row] >= 0 || line[row] >= 0)) {
        if (!this.forward.has(sequence) && this.forward.size < mostForward)
          this.forward.set(sequence, { module: module[row], line: line[row] });
      }
    } else {
      if ((bits & 1) !== 0) module[row] = this.name[row];
      if ((bits & 2) !== 0) line[row] = this.name[row];
    }
    stack.push(row);
  }

  private report(runtimeRow: number, outer: number): void {
    if (outer < 0) {
      this.found(runtimeRow, -1, -1, false, -1, -1, false);
      return;
    }
    const isBackward = this.backward[outer] >= 0;
    const source = isBackward ? this.forward.get(this.backward[outer]) : undefined;
    const row = this.preferred[outer] >= 0 ? this.preferred[outer] : this.operator[outer];
    this.found(
      runtimeRow,
      row < 0 ? -1 : this.name[row],
      row < 0 ? -1 : this.inputs[row],
      row >= 0 && this.counted[row] === 0,
      source === undefined ? this.module[outer] : source.module,
      source === undefined ? this.line[outer] : source.line,
      isBackward,
    );
    if (row >= 0) this.counted[row] = 1;
  }

  /** Moves the open events of the threads to the first rows; returns their number. Operators around them are open, too. */
  private carry(): number {
    const rows = this.stacks.flat();
    const place = new Map(rows.map((row, i) => [row, i]));
    const moved = (row: number): number => (row < 0 ? -1 : (place.get(row) ?? -1));
    for (const column of [this.operator, this.preferred]) {
      column.set(rows.map((row) => moved(column[row])));
    }
    const plain = [this.ts, this.dur, this.lane, this.name, this.inputs, this.isCpu, this.counted];
    for (const column of [...plain, this.module, this.line, this.backward]) {
      column.set(rows.map((row) => column[row]));
    }
    this.stacks = this.stacks.map((stack) => stack.map(moved));
    return rows.length;
  }
}

/** Of events with the same start, the longest encloses the others and launches (rows from `hostEnd` on) come last. */
function enclosingFirst(order: Uint32Array, ts: Float64Array, dur: Float64Array, hostEnd: number): void {
  for (let from = 0; from < order.length; ) {
    let to = from + 1;
    while (to < order.length && ts[order[to]] === ts[order[from]]) to++;
    if (to - from > 1)
      order
        .subarray(from, to)
        .sort((a, b) => (a >= hostEnd ? 1 : 0) - (b >= hostEnd ? 1 : 0) || dur[b] - dur[a] || a - b);
    from = to;
  }
}
