// Tapes of Weft (docs/tape.md), from WEFT_TAPE or `weft train --tape`: their instructions as events of a Chrome trace, in the
// form of `weft tape export`, so that one reader serves all.
import { createReadStream } from "node:fs";
import type { TraceReadOptions } from "./read.js";
import type { TraceStream } from "./stream.js";

/** True for the beginning of a tape. */
export const isTape = (beginning: Buffer): boolean => /^\s*\{\s*"type"\s*:\s*"tape"/.test(beginning.toString("latin1"));

const longestLine = 1 << 24;

/** Feeds the instructions of a tape to a stream; other lines, and lines that are no JSON (a cut tape), are passed over. */
export async function streamTape(file: string, stream: TraceStream, options: TraceReadOptions): Promise<void> {
  const source = createReadStream(file);
  const named = new Set<number>();
  stream.push(Buffer.from('{"traceEvents":[{"ph":"M","name":"process_sort_index","pid":0,"tid":0}'));
  try {
    for await (const line of linesOf(source)) {
      options.signal?.throwIfAborted();
      if (!line.includes('"instruction"')) continue;
      const event = eventOf(line);
      if (event === null) continue;
      if (!named.has(event.pid)) {
        named.add(event.pid);
        const args = { name: `worker ${event.pid}` };
        stream.push(Buffer.from(`,${JSON.stringify({ ph: "M", name: "process_name", pid: event.pid, tid: 0, args })}`));
      }
      stream.push(Buffer.from(`,${JSON.stringify(event)}`));
    }
  } finally {
    source.destroy();
  }
  stream.push(Buffer.from("]}"));
}

/** The lines of a file; longer ones than a tape has are passed over without being held. */
async function* linesOf(source: AsyncIterable<Buffer>): AsyncGenerator<string> {
  let rest: Buffer[] = [];
  let length = 0;
  for await (const chunk of source) {
    let from = 0;
    for (let end = chunk.indexOf(0x0a); end >= 0; end = chunk.indexOf(0x0a, from)) {
      length += end - from;
      if (length <= longestLine) yield Buffer.concat([...rest, chunk.subarray(from, end)]).toString("utf8");
      rest = [];
      length = 0;
      from = end + 1;
    }
    length += chunk.length - from;
    if (length <= longestLine) rest.push(chunk.subarray(from));
    else rest = [];
  }
  if (length <= longestLine) yield Buffer.concat(rest).toString("utf8");
}

function eventOf(line: string): { pid: number; [field: string]: unknown } | null {
  let instruction: Record<string, unknown>;
  try {
    instruction = JSON.parse(line) as Record<string, unknown>;
  } catch {
    return null;
  }
  const { type, worker, rank, op, kind, startUs, endUs, step } = instruction;
  const pid = typeof worker === "number" ? worker : rank;
  if (type !== "instruction" || typeof pid !== "number" || typeof startUs !== "number" || typeof endUs !== "number")
    return null;
  return {
    ph: "X",
    name: String(op),
    cat: String(kind),
    pid,
    tid: kind === "collective" ? 1 : 0,
    ts: startUs,
    dur: endUs - startUs,
    args: typeof step === "number" ? { step } : {},
  };
}
