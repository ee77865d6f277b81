// What the host did besides launching: reads that wait for the device, compilation, and the source lines behind both, where the
// profiler recorded Python frames (with_stack=True).
import { sortedBy } from "./intervals.js";
import { categoryIndex, dataLoaderName, isUserLine } from "./kinds.js";
import type { TraceData } from "./read.js";

export interface HostEvents {
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

export type HostKind = keyof typeof hostKinds;

const kindNames = Object.keys(hostKinds) as HostKind[];
const mostLines = 3;

/** Counts and times of the kinds before `cut`, without nested events of the same kind. */
export function hostFacts(data: TraceData, cut: number): Record<HostKind, HostEvents> {
  const facts = Object.fromEntries(
    kindNames.map((kind) => [kind, { count: 0, us: 0, lines: [] }]),
  ) as unknown as Record<HostKind, HostEvents>;
  const codes = new Map<number, number>();
  // 0: nothing; 1: a line of the user's program; 2 and more: a kind.
  const codeOf = (name: number, category: number): number => {
    let code = codes.get(name);
    if (code === undefined) {
      const text = data.symbols.text(name);
      const kind = kindNames.findIndex((one) => hostKinds[one].test(text));
      const isLine = category === categoryIndex.python_function && isUserLine(text);
      code = kind >= 0 ? 2 + kind : isLine ? 1 : 0;
      codes.set(name, code);
    }
    return code;
  };
  const rows: { ts: number; end: number; lane: number; name: number; code: number }[] = [];
  for (const segment of data.host.each())
    for (let i = 0; i < segment.rows && rows.length < 4e6; i++) {
      const code = codeOf(segment.name[i], segment.category[i]);
      if (code > 0 && segment.ts[i] < cut)
        rows.push({
          ts: segment.ts[i],
          end: segment.ts[i] + segment.dur[i],
          lane: segment.lane[i],
          name: segment.name[i],
          code,
        });
    }
  const { runtime } = data;
  for (let i = 0; i < runtime.rows; i++) {
    const code = codeOf(runtime.name[i], -1);
    if (code > 1 && runtime.ts[i] < cut)
      rows.push({
        ts: runtime.ts[i],
        end: runtime.ts[i] + runtime.dur[i],
        lane: runtime.lane[i],
        name: runtime.name[i],
        code,
      });
  }
  const lines = kindNames.map(() => new Map<number, number>());
  const open = new Map<number, { end: number; code: number; name: number }[]>();
  const order = sortedBy(
    Float64Array.from(rows, (row) => row.ts),
    rows.length,
  );
  for (const index of order) {
    const row = rows[index];
    let stack = open.get(row.lane);
    if (stack === undefined) open.set(row.lane, (stack = []));
    while (stack.length > 0 && stack[stack.length - 1].end <= row.ts) stack.pop();
    if (row.code > 1 && !stack.some((outer) => outer.code === row.code)) {
      const kind = kindNames[row.code - 2];
      facts[kind].count++;
      facts[kind].us += row.end - row.ts;
      const line = stack.findLast((outer) => outer.code === 1);
      if (line !== undefined) {
        const perLine = lines[row.code - 2];
        perLine.set(line.name, (perLine.get(line.name) ?? 0) + row.end - row.ts);
      }
    }
    stack.push({ end: row.end, code: row.code, name: row.name });
  }
  kindNames.forEach((kind, k) => {
    facts[kind].lines = [...lines[k]]
      .sort((a, b) => b[1] - a[1])
      .slice(0, mostLines)
      .map(([name, us]) => ({ line: data.symbols.text(name), us }));
  });
  return facts;
}
