// Attributes launches to the host events around them: the operator, the module and the line of the user's program. Events of a
// thread nest, so one sweep in time order with a stack per thread finds them. A backward operator belongs to the module and
// line of its forward operator, which has the same autograd sequence number.
import { sortedBy } from "./intervals.js";
import { categoryIndex, isUserLine } from "./kinds.js";
import type { TraceData } from "./read.js";

/** Host events beyond this many are not attributed: the sweep needs them all in memory. */
const mostRows = 12e6;

/**
 * Where a launch came from. `operator`: a row of `Attribution`, of the outermost operator that `isOperator` accepts, else of
 * the innermost. `module` and `line`: names, as ids of the trace's symbols. Each is -1 where there is none.
 */
type Found = (runtimeRow: number, operator: number, module: number, line: number, backward: boolean) => void;

export interface Attribution {
  /** Name and inputs of host rows. */
  name: Int32Array;
  inputs: Int32Array;
  /** Calls `found` for every wanted row of the runtime table. */
  each(found: Found): void;
}

const modulePrefix = "nn.Module: ";
const backwardPrefix = "autograd::engine::evaluate_function";

/** Prepares the sweep; null where the trace has too many host events. `wanted` marks rows of the runtime table. */
export function attribution(
  data: TraceData,
  wanted: Uint8Array,
  isOperator: (name: string) => boolean,
): Attribution | null {
  const { runtime, symbols } = data;
  if (data.host.rows > mostRows) return null;
  // Bits of a name: 1 module, 2 line, 4 backward, 8 preferred operator; 128: computed.
  const flagsOf = new Uint8Array(symbols.size);
  const flags = (name: number, category: number): number => {
    let bits = flagsOf[name];
    if (bits === 0) {
      const text = symbols.text(name);
      const isPython = category === categoryIndex.python_function;
      bits =
        128 |
        (isPython && text.startsWith(modulePrefix) ? 1 : 0) |
        (isPython && isUserLine(text) ? 2 : 0) |
        (text.startsWith(backwardPrefix) ? 4 : 0) |
        (!isPython && isOperator(text) ? 8 : 0);
      flagsOf[name] = bits;
    }
    return bits;
  };
  let count = 0;
  const isUsed = (category: number, bits: number): boolean => category === categoryIndex.cpu_op || (bits & 3) !== 0;
  for (const segment of data.host.each())
    for (let i = 0; i < segment.rows; i++)
      if (isUsed(segment.category[i], flags(segment.name[i], segment.category[i]))) count++;
  const launches = wanted.reduce((sum, one) => sum + one, 0);
  const rows = count + launches;
  const ts = new Float64Array(rows);
  const dur = new Float64Array(rows);
  const lane = new Int32Array(rows);
  const name = new Int32Array(rows);
  const inputs = new Int32Array(rows);
  const sequence = new Int32Array(rows);
  const isCpu = new Uint8Array(rows);
  let n = 0;
  for (const segment of data.host.each())
    for (let i = 0; i < segment.rows; i++) {
      if (!isUsed(segment.category[i], flags(segment.name[i], segment.category[i]))) continue;
      ts[n] = segment.ts[i];
      dur[n] = segment.dur[i];
      lane[n] = segment.lane[i];
      name[n] = segment.name[i];
      inputs[n] = segment.inputs[i];
      sequence[n] = segment.sequence[i];
      isCpu[n++] = segment.category[i] === categoryIndex.cpu_op ? 1 : 0;
    }
  const runtimeRow = new Int32Array(launches);
  for (let i = 0; i < runtime.rows; i++)
    if (wanted[i] === 1) {
      runtimeRow[n - count] = i;
      ts[n] = runtime.ts[i];
      lane[n++] = runtime.lane[i];
    }

  return {
    name,
    inputs,
    each(found) {
      const order = enclosingFirst(sortedBy(ts, rows), ts, dur, count);
      const operator = new Int32Array(count).fill(-1);
      const preferred = new Int32Array(count).fill(-1);
      const module = new Int32Array(count).fill(-1);
      const line = new Int32Array(count).fill(-1);
      const backward = new Int32Array(count).fill(-1);
      const forward = new Map<number, number>();
      const stacks = data.lanes.map((): number[] => []);
      for (let k = 0; k < rows; k++) {
        const row = order[k];
        const stack = stacks[lane[row]];
        while (stack.length > 0) {
          const top = stack[stack.length - 1];
          if (ts[top] + dur[top] > ts[row]) break;
          stack.pop();
        }
        const outer = stack.length === 0 ? -1 : stack[stack.length - 1];
        if (row >= count) {
          const source = outer < 0 || backward[outer] < 0 ? outer : (forward.get(backward[outer]) ?? outer);
          found(
            runtimeRow[row - count],
            outer < 0 ? -1 : preferred[outer] >= 0 ? preferred[outer] : operator[outer],
            source < 0 ? -1 : module[source],
            source < 0 ? -1 : line[source],
            outer >= 0 && backward[outer] >= 0,
          );
          continue;
        }
        const bits = flags(name[row], isCpu[row] === 1 ? categoryIndex.cpu_op : categoryIndex.python_function);
        if (outer >= 0) {
          operator[row] = operator[outer];
          preferred[row] = preferred[outer];
          module[row] = module[outer];
          line[row] = line[outer];
          backward[row] = backward[outer];
        }
        if (isCpu[row] === 1) {
          operator[row] = row;
          if (preferred[row] < 0 && (bits & 8) !== 0) preferred[row] = row;
          if ((bits & 4) !== 0) backward[row] = Math.max(0, sequence[row]);
          else if (sequence[row] >= 0 && backward[row] < 0 && !forward.has(sequence[row]))
            forward.set(sequence[row], row);
        } else {
          if ((bits & 1) !== 0) module[row] = name[row];
          if ((bits & 2) !== 0) line[row] = name[row];
        }
        stack.push(row);
      }
    },
  };
}

/** Of events with the same start, the longest encloses the others and launches (rows from `count` on) come last. */
function enclosingFirst(order: Uint32Array, ts: Float64Array, dur: Float64Array, count: number): Uint32Array {
  for (let from = 0; from < order.length; ) {
    let to = from + 1;
    while (to < order.length && ts[order[to]] === ts[order[from]]) to++;
    if (to - from > 1)
      order.subarray(from, to).sort((a, b) => (a >= count ? 1 : 0) - (b >= count ? 1 : 0) || dur[b] - dur[a] || a - b);
    from = to;
  }
  return order;
}
