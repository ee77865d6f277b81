// Merges the traces of all ranks into one file for Perfetto or chrome://tracing. Events are copied byte for byte; only process
// ids, flow ids and (where the clocks differ) times are rewritten, these in whole nanoseconds.

import { once } from "node:events";
import { createWriteStream } from "node:fs";
import type { Writable } from "node:stream";
import { createGzip } from "node:zlib";
import { argumentIndex, type EventSlots, type Token } from "./event.js";
import { streamFile } from "./read.js";
import { TraceStream } from "./stream.js";

/** One trace of a merge. */
export interface MergeInput {
  file: string;
  rank: number;
  /** Offset that is added to every time. */
  offsetUs: number;
}

/** Stride between the process ids of two ranks; larger than any process id on Linux. */
const pidStride = 10_000_000;

class Copier {
  private first = true;
  private pieces: Buffer[] = [];
  events = 0;

  /** Whole nanoseconds: a sum in floating point would move times of today's clocks by a quarter of a microsecond. */
  private readonly offset: number;

  constructor(private readonly input: MergeInput) {
    this.offset = Math.round(input.offsetUs * 1000);
  }

  private shifted(e: EventSlots): string {
    const nanoseconds = BigInt(e.tsWhole) * 1000n + BigInt(e.tsNanoseconds + this.offset);
    const size = nanoseconds < 0n ? -nanoseconds : nanoseconds;
    return `${nanoseconds < 0n ? "-" : ""}${size / 1000n}.${String(size % 1000n).padStart(3, "0")}`;
  }

  take(): Buffer | null {
    if (this.pieces.length === 0) return null;
    const all = Buffer.concat(this.pieces);
    this.pieces = [];
    return all;
  }

  header(): void {}

  event(e: EventSlots, bytes: Buffer): void {
    if (e.phase === 0) return;
    const edits: { token: { start: number; end: number }; text: string }[] = [];
    const edit = (token: Token, text: string): void => {
      const quotes = token.quoted ? 1 : 0;
      edits.push({ token: { start: token.start - quotes, end: token.end + quotes }, text });
    };
    if (e.pid.end > e.pid.start) edit(e.pid, this.pid(bytes, e.pid));
    if (e.id.end > e.id.start) edit(e.id, JSON.stringify(`${this.input.rank}.${text(bytes, e.id)}`));
    if (this.offset !== 0 && Number.isFinite(e.ts))
      edits.push({ token: { start: e.tsStart, end: e.tsEnd }, text: this.shifted(e) });
    if (text(bytes, e.name) === "process_name" && e.phase === 0x4d) {
      this.processName(e, bytes);
      return;
    }
    edits.sort((a, b) => a.token.start - b.token.start);
    this.pieces.push(this.first ? Buffer.from("\n") : Buffer.from(",\n"));
    this.first = false;
    let at = e.start;
    for (const { token, text } of edits) {
      this.pieces.push(Buffer.from(bytes.subarray(at, token.start)), Buffer.from(text));
      at = token.end;
    }
    this.pieces.push(Buffer.from(bytes.subarray(at, e.end)));
    this.events++;
  }

  private processName(e: EventSlots, bytes: Buffer): void {
    const original = e.has(argumentIndex.name) ? e.raw(bytes, argumentIndex.name) : text(bytes, e.pid);
    const event = `{"ph":"M","name":"process_name","pid":${this.pid(bytes, e.pid)},"args":{"name":"rank ${this.input.rank}: ${original}"}}`;
    this.pieces.push(Buffer.from((this.first ? "\n" : ",\n") + event));
    this.first = false;
    this.events++;
  }

  private pid(bytes: Buffer, token: Token): string {
    const raw = text(bytes, token);
    const number = Number(raw);
    return !token.quoted && Number.isInteger(number) && number >= 0 && number < pidStride
      ? String(this.input.rank * pidStride + number)
      : JSON.stringify(`rank ${this.input.rank} ${raw}`);
  }
}

const text = (bytes: Buffer, token: Token): string => bytes.toString("utf8", token.start, token.end);

/** Writes one trace of all inputs, compressed when the name ends in .gz. Returns the number of events and the problems. */
export async function mergeTraces(
  inputs: readonly MergeInput[],
  file: string,
): Promise<{ events: number; problems: string[] }> {
  const target = createWriteStream(file, { flags: "wx" });
  const out: Writable = file.endsWith(".gz") ? createGzip() : target;
  const done = new Promise<void>((resolve, reject) => {
    target.on("finish", resolve);
    target.on("error", reject);
    out.on("error", reject);
  });
  // Awaited at the end; an early failure must not become an unhandled rejection.
  done.catch(() => {});
  if (out !== target) out.pipe(target);
  const write = async (chunk: Buffer | string): Promise<void> => {
    if (!out.write(chunk)) await Promise.race([once(out, "drain"), done]);
  };
  const problems: string[] = [];
  let events = 0;
  await write('{"displayTimeUnit":"ns","traceEvents":[');
  for (const input of inputs) {
    const copier = new Copier(input);
    const stream = new TraceStream(copier, true);
    let separated = events === 0;
    const flush = async (): Promise<void> => {
      let piece = copier.take();
      if (piece === null) return;
      if (!separated) {
        piece = Buffer.concat([Buffer.from(","), piece]);
        separated = true;
      }
      await write(piece);
    };
    try {
      await streamFile(input.file, stream, { onProgress: flush });
      const problem = stream.finish();
      if (problem !== null) problems.push(`${input.file}: ${problem}`);
    } catch (error) {
      problems.push(`${input.file}: ${(error as Error).message}; ${stream.events} events were kept`);
    }
    await flush();
    events += copier.events;
  }
  await write("\n]}\n");
  out.end();
  await done;
  return { events, problems };
}
