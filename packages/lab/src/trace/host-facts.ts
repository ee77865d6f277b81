// What the host did besides launching: reads that wait for the device, compilation, and the source lines behind both, where the
// profiler recorded Python frames (with_stack=True).

import { grown } from "./columns.js";
import type { TraceData } from "./data.js";
import { sortedBy } from "./intervals.js";
import { categoryIndex, dataLoaderName, isUserLine } from "./kinds.js";

interface HostEvents {
  count: number;
  us: number;
  /** Lines of the user's program with the most of this time: "train.py(42): main". */
  lines: { line: string; us: number }[];
}

/** Kinds of host events that findings are about. */
export const hostKinds = {
  dataWait: dataLoaderName,
  synchronization: /^aten::(?:item|is_nonzero|nonzero)$|^(?:cuda|hip)(?:Device|Stream|Event)Synchronize$/,
  /** Calls for memory of the driver: allocators of frameworks make them once, not in every step. */
  allocation: /^(?:cuda|hip)(?:Malloc|Free|HostAlloc|FreeHost|HostMalloc|HostFree)$/,
  compilation:
    /compile_inner|compile_fx|_compile_fx_inner|dynamo_timed|convert_frame|backend_compile|XlaCompile|PjRt.*Compile|^Compile\b|inductor_codecache/,
} as const;

type HostKind = keyof typeof hostKinds;

const kindNames = Object.keys(hostKinds) as HostKind[];
const mostLines = 3;

/** Host events beyond this number are ignored. */
const mostRows = 4e6;

/** Events in growing columns. */
class Collected {
  count = 0;
  ts = new Float64Array(1024);
  dur = new Float64Array(1024);
  lane = new Int32Array(1024);
  name = new Int32Array(1024);
  code = new Uint8Array(1024);

  add(ts: number, dur: number, lane: number, name: number, code: number): void {
    if (this.count === this.ts.length) {
      const length = 2 * this.count;
      this.ts = grown(this.ts, length);
      this.dur = grown(this.dur, length);
      this.lane = grown(this.lane, length);
      this.name = grown(this.name, length);
      this.code = grown(this.code, length);
    }
    this.ts[this.count] = ts;
    this.dur[this.count] = dur;
    this.lane[this.count] = lane;
    this.name[this.count] = name;
    this.code[this.count++] = code;
  }
}

/** Counts and times of the kinds before `cut`, without nested events of the same kind. */
export function hostFacts(data: TraceData, cut: number): Record<HostKind, HostEvents> {
  const facts = Object.fromEntries(
    kindNames.map((kind): [string, HostEvents] => [kind, { count: 0, us: 0, lines: [] }]),
  ) as Record<HostKind, HostEvents>;
  // By name: 255: not computed.
  const codes = new Uint8Array(data.symbols.size).fill(255);
  // 0: nothing; 1: a line of the user's program; 2 and more: a kind.
  const codeOf = (name: number, category: number): number => {
    let code = codes[name];
    if (code === 255) {
      const text = data.symbols.text(name);
      const kind = kindNames.findIndex((one) => hostKinds[one].test(text));
      const isLine = category === categoryIndex.python_function && isUserLine(text);
      code = kind >= 0 ? 2 + kind : isLine ? 1 : 0;
      codes[name] = code;
    }
    return code;
  };
  const rows = new Collected();
  for (const segment of data.host.each())
    for (let i = 0; i < segment.rows && rows.count < mostRows; i++) {
      const code = codeOf(segment.name[i], segment.category[i]);
      if (code > 0 && segment.ts[i] < cut)
        rows.add(segment.ts[i], segment.dur[i], segment.lane[i], segment.name[i], code);
    }
  const { runtime } = data;
  for (let i = 0; i < runtime.rows; i++) {
    const code = codeOf(runtime.name[i], -1);
    if (code > 1 && runtime.ts[i] < cut)
      rows.add(runtime.ts[i], runtime.dur[i], runtime.lane[i], runtime.name[i], code);
  }
  const lines = kindNames.map(() => new Map<number, number>());
  /** Of each thread the open events: their ends, the codes of all that are open, and the innermost line (-1: none). */
  const stacks = new Map<number, { end: number; codes: number; line: number }[]>();
  for (const row of sortedBy(rows.ts, rows.count)) {
    const [ts, dur, code, name] = [rows.ts[row], rows.dur[row], rows.code[row], rows.name[row]];
    let stack = stacks.get(rows.lane[row]);
    if (stack === undefined) stacks.set(rows.lane[row], (stack = []));
    while (stack.length > 0 && stack[stack.length - 1].end <= ts) stack.pop();
    const outer = stack[stack.length - 1];
    const open = outer?.codes ?? 0;
    if (code > 1 && (open & (1 << code)) === 0) {
      const kind = kindNames[code - 2];
      facts[kind].count++;
      facts[kind].us += dur;
      const line = outer?.line ?? -1;
      const perLine = lines[code - 2];
      if (line >= 0) perLine.set(line, (perLine.get(line) ?? 0) + dur);
    }
    stack.push({ end: ts + dur, codes: open | (1 << code), line: code === 1 ? name : (outer?.line ?? -1) });
  }
  kindNames.forEach((kind, k) => {
    facts[kind].lines = [...lines[k]]
      .sort((a, b) => b[1] - a[1])
      .slice(0, mostLines)
      .map(([name, us]) => ({ line: data.symbols.text(name), us }));
  });
  return facts;
}
