// Reads a trace file (JSON, gzip, SQLite and others, detected by its first bytes) into device, runtime and host tables. A damaged file keeps the
// events before the damage and reports it.
import { statSync } from "node:fs";
import { type FileHandle, open } from "node:fs/promises";
import { checkFile } from "../import/index.js";
import { type ByteSink, ParallelStream, threadsForBytes } from "./blocks.js";
import { TraceData } from "./data.js";
import type { DevicePeaks } from "./gpus.js";
import { gunzipFile } from "./gzip.js";
import { nsysTrace } from "./nsys.js";
import { rocpdTrace } from "./rocpd.js";
import { TraceSyntaxError } from "./scan.js";
import { Sorter } from "./sorter.js";
import { isSqlite, type SqliteSource, streamSqlite } from "./sqlite.js";
import { TraceStream } from "./stream.js";
import { isTape, streamTape } from "./tape.js";
import { isXplane, streamXplane } from "./xplane.js";

export interface TraceReadOptions {
  /** Called periodically with the bytes read and the file size; reading waits for the returned promise. */
  onProgress?: (bytes: number, total: number) => void | Promise<void>;
  /** Host segments (65,536 rows, 2.4 MB each) in memory before the oldest are spilled to a temporary file. */
  residentSegments?: number;
  /** Threads that parse one file; as many as it is worth when not given. */
  threads?: number;
  /** Bytes that one of several threads parses at a time. */
  blockBytes?: number;
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
  const { data, sorter } = await readOnce(file, options);
  if (sorter.doubtful.farTimes <= data.device.rows + data.runtime.rows + data.host.rows || sorter.farUs === null)
    return data;
  // The first event is the odd one out: most others are too far from it, so that one of them gives the zero of the time axis.
  data.host.dispose();
  return (await readOnce(file, options, sorter.farUs)).data;
}

async function readOnce(
  file: string,
  options: TraceReadOptions,
  originUs?: number,
): Promise<{ data: TraceData; sorter: Sorter }> {
  const data = new TraceData(file, expectedRows(file), options.residentSegments, options.hta ? "us" : "ns");
  if (originUs !== undefined) data.originUs = originUs;
  const sorter = new Sorter(data, originUs !== undefined);
  const stream = new TraceStream(sorter);
  const threads = options.threads ?? threadsForBytes(uncompressedBytes(file));
  const parallel = threads > 1 ? new ParallelStream(stream, sorter, data, threads, options.blockBytes) : null;
  try {
    const onProblem = (problem: string): void => {
      data.problems.push(problem);
    };
    try {
      data.source = await streamFile(file, stream, { ...options, onProblem }, parallel ?? stream);
    } finally {
      // A damaged file is used up to the damage.
      await parallel?.finish();
    }
    const problem = stream.finish();
    if (problem !== null) {
      data.complete = false;
      data.problems.push(problem);
    }
    if (stream.problemBehindEnd !== null) data.problems.push(stream.problemBehindEnd);
  } catch (error) {
    if (options.signal?.aborted || (error as NodeJS.ErrnoException).syscall !== undefined) {
      data.host.dispose();
      throw error;
    }
    data.complete = false;
    data.problems.push(brokenMessage(error, stream));
  } finally {
    parallel?.stop();
  }
  data.events = stream.events;
  data.bytes = stream.bytesRead;
  const { doubtful } = sorter;
  data.withoutStream = doubtful.withoutStream;
  const from = originUs === undefined ? "the first" : "most others";
  const problems: [number, string][] = [
    [doubtful.negativeDurations, "events with a negative duration were left out"],
    [doubtful.withoutDuration, "events without a duration were left out"],
    [
      doubtful.badTimes + doubtful.farTimes,
      `events whose time is not a number, or more than 104 days from ${from}, were left out`,
    ],
    [doubtful.unmatchedEnds, "end events without a beginning were left out"],
    [doubtful.disordered, "beginnings and ends of events are not in the order of time: their durations may be wrong"],
    [doubtful.withoutStream, "kernels and copies without a stream were left out: device times lack them"],
  ];
  for (const [count, what] of problems) if (count > 0) data.problems.push(`${count} ${what}`);
  if (Math.abs(data.originUs) > Number.MAX_SAFE_INTEGER)
    data.problems.push(
      `times begin at ${data.originUs} us, centuries from now: they seem to be in nanoseconds, but the format counts in microseconds (displayTimeUnit is only how to show them), so that every duration may be 1000 times too long`,
    );
  return { data, sorter };
}

/** gzip leaves a twentieth of a trace. */
function uncompressedBytes(file: string): number {
  return statSync(file).size * (file.endsWith(".gz") ? 20 : 1);
}

/** An event with its launch takes about a kilobyte of JSON. */
function expectedRows(file: string): number {
  return Math.max(1024, Math.min(1 << 24, Math.ceil(uncompressedBytes(file) / 700)));
}

function brokenMessage(error: unknown, stream: TraceStream): string {
  const kept = `${stream.events} events up to byte ${stream.goodBytes} were kept, the rest is missing`;
  if (error instanceof TraceSyntaxError) return `broken JSON: ${error.message}; ${kept}`;
  const code = (error as NodeJS.ErrnoException).code ?? "";
  if (code === "Z_BUF_ERROR") return `the gzip file is cut short; ${kept}`;
  if (code.startsWith("Z_")) return `the gzip file is damaged (${(error as Error).message}); ${kept}`;
  return `${(error as Error).message}; ${kept}`;
}

/**
 * Feeds the events of a file to a stream; of a plain or gzip file its bytes, to `bytes`. Returns the profiler that wrote it.
 */
export async function streamFile(
  file: string,
  stream: TraceStream,
  options: TraceReadOptions = {},
  bytes: ByteSink = stream,
): Promise<"kineto" | SqliteSource> {
  if (!statSync(file).isDirectory()) checkFile(file);
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
    else if (isSqlite(magic)) return await streamSqlite(file, stream, [nsysTrace, rocpdTrace], options);
    else if (isTape(magic)) await streamTape(file, stream, options);
    else if (magic[0] === 0x1f && magic[1] === 0x8b) {
      const problem = await gunzipFile(file, handle, info.size, async (chunk, consumed) => {
        options.signal?.throwIfAborted();
        await bytes.push(chunk);
        return options.onProgress?.(consumed, info.size);
      });
      if (problem !== null) options.onProblem?.(problem);
    } else await streamPlain(handle, info.size, bytes, options);
    return "kineto";
  } finally {
    await handle.close();
  }
}

async function streamPlain(
  handle: FileHandle,
  size: number,
  bytes: ByteSink,
  options: TraceReadOptions,
): Promise<void> {
  let position = 0;
  for (;;) {
    options.signal?.throwIfAborted();
    const room = bytes.room();
    const { bytesRead } = await handle.read(room, 0, room.length, position);
    if (bytesRead === 0) return;
    position += bytesRead;
    await bytes.advance(bytesRead);
    await options.onProgress?.(position, size);
  }
}
