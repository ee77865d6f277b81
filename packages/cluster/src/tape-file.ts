// Reads tapes: validates, summarizes and compares them, and converts them to Chrome traces (Perfetto). It knows the
// format (docs/tape.md), not devices.
import { createHash } from "node:crypto";
import { createReadStream, lstatSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { Readable } from "node:stream";
import { structuralKey, WeftError } from "@weft/core/internal/graph";
import { decodeFunction } from "@weft/core/internal/ops";
import { type Instruction, type TapeLine, tapeLineSchema, tapeVersion } from "@weft/formats";

/** A parsed tape. */
export interface TapeFile {
  /** Where it was read. */
  path: string;
  /** All lines of the tape. */
  lines: TapeLine[];
  /** Kernels, library calls and collectives of all workers. */
  instructions: Instruction[];
  /** Unreadable lines: usually the last line of a program that was killed. */
  unreadable: number;
  /** Why the tape is not what was recorded: it was cut or altered, or has no checksums. Empty for a complete tape. */
  problems: string[];
}

/** Follows the checksums of a tape while it is read. */
class Checksums {
  readonly problems: string[] = [];
  readonly #hash = createHash("sha256");
  #lines = 0;
  #checked = 0;
  #ended = false;

  add(text: string, line: TapeLine | null): void {
    if (line?.type === "check") {
      const good = line.lines === this.#lines && line.sha256 === this.#hash.copy().digest("hex");
      // After one difference all following checksums differ too.
      if (!good && this.problems.length === 0)
        this.problems.push(`lines ${this.#checked + 1} to ${this.#lines} were altered, removed or inserted`);
      this.#checked = this.#lines + 1;
    }
    this.#ended = line?.type === "check" && line.end;
    this.#lines++;
    this.#hash.update(`${text}\n`);
  }

  finish(): string[] {
    if (this.#checked === 0) this.problems.push("it has no checksums");
    else if (!this.#ended) this.problems.push("its end is missing: it was cut, or its program was killed");
    return this.problems;
  }
}

/** Longest line of a tape; data of more bytes is in files beside it. */
const maxLine = 512 << 20;

/** The text of a tape: of a plain file, in lines of bounded length. */
async function* tapeText(path: string): AsyncGenerator<Buffer> {
  if (!statSync(path).isFile()) throw new WeftError(`${path} is not a plain file, so it is not a tape`);
  let length = 0;
  for await (const chunk of createReadStream(path) as AsyncIterable<Buffer>) {
    const last = chunk.lastIndexOf(10);
    length = last < 0 ? length + chunk.length : chunk.length - last - 1;
    if (length > maxLine) throw new WeftError(`${path} has a line of more than ${maxLine} bytes, so it is not a tape`);
    yield chunk;
  }
}

/** Reads and validates a tape file. */
export async function readTape(path: string): Promise<TapeFile> {
  const lines: TapeLine[] = [];
  let unreadable = 0;
  const checksums = new Checksums();
  for await (const text of createInterface({ input: Readable.from(tapeText(path)), crlfDelay: Infinity })) {
    const line = parseLine(text);
    checksums.add(text, line);
    if (line !== null) lines.push(line);
    else if (text.trim() !== "") unreadable++;
  }
  const [head] = lines;
  if (head?.type !== "tape") throw new WeftError(`${path} is not a tape; WEFT_TAPE=${path} makes one`);
  if (head.version !== tapeVersion)
    throw new WeftError(`${path} is a tape of version ${head.version}; this weft reads version ${tapeVersion}`);
  const instructions = lines.filter((l): l is Instruction => l.type === "instruction");
  return { path, lines, instructions, unreadable, problems: checksums.finish() };
}

function parseLine(text: string): TapeLine | null {
  try {
    return tapeLineSchema.safeParse(JSON.parse(text)).data ?? null;
  } catch {
    return null;
  }
}

/** Opens plain files only: a pipe would be waited for, and a device read without end. */
function readPlainFile(path: string): Buffer {
  if (lstatSync(path, { throwIfNoEntry: false })?.isFile() !== true)
    throw new WeftError(`${path} is missing or not a plain file; the tape needs it`);
  return readFileSync(path);
}

/** The recorded bytes; null if the tape has only their hash. Bytes with another hash are reported in `tape.problems`. */
export function bytesOfLine(
  tape: TapeFile,
  { base64, file, sha256 }: { base64?: string; file?: string; sha256: string },
): Uint8Array | null {
  if (base64 === undefined && file === undefined) return null;
  const bytes =
    base64 !== undefined ? Buffer.from(base64, "base64") : readPlainFile(join(`${tape.path}.data`, file as string));
  if (createHash("sha256").update(bytes).digest("hex") !== sha256)
    tape.problems.push(`the data ${file === undefined ? "in a line" : `in ${file}`} was altered`);
  return Uint8Array.from(bytes);
}

/** Totals of one operation. */
interface OpRow {
  op: string;
  kind: string;
  count: number;
  us: number;
  bytes: number;
  flops: number;
}

/** Totals of one worker. */
interface WorkerRow {
  worker: number;
  workerId: string;
  instructions: number;
  busyUs: number;
  communicateUs: number;
  /** Time from its first instruction to its last. */
  spanUs: number;
}

/** Summary of a tape. */
export interface TapeStats {
  /** Number of runs of programs. */
  runs: number;
  /** Number of compiled programs. */
  programs: number;
  /** Number of results that were fetched. */
  fetches: number;
  /** Totals by operation, the longest first. */
  ops: OpRow[];
  /** Totals by worker. */
  workers: WorkerRow[];
}

function rowsBy<K, R>(
  items: readonly Instruction[],
  key: (i: Instruction) => K,
  make: (i: Instruction) => R,
  add: (row: R, i: Instruction) => void,
): R[] {
  const rows = new Map<K, R>();
  for (const item of items) {
    const k = key(item);
    let row = rows.get(k);
    if (row === undefined) {
      row = make(item);
      rows.set(k, row);
    }
    add(row, item);
  }
  return [...rows.values()];
}

/** Summarizes a tape by operation and by worker. */
export function tapeStats({ lines, instructions }: TapeFile): TapeStats {
  const ops = rowsBy(
    instructions,
    (i) => i.op,
    ({ op, kind }): OpRow => ({ op, kind, count: 0, us: 0, bytes: 0, flops: 0 }),
    (row, i) => {
      row.count++;
      row.us += i.endUs - i.startUs;
      row.bytes += i.bytes;
      row.flops += i.flops;
    },
  ).sort((a, b) => b.us - a.us);
  const ends = new Map<number, [number, number]>();
  const workers = rowsBy(
    instructions,
    (i) => i.worker,
    ({ worker, workerId }): WorkerRow => ({
      worker,
      workerId,
      instructions: 0,
      busyUs: 0,
      communicateUs: 0,
      spanUs: 0,
    }),
    (row, i) => {
      row.instructions++;
      row.busyUs += i.endUs - i.startUs;
      if (i.kind === "collective") row.communicateUs += i.endUs - i.startUs;
      const [from, to] = ends.get(i.worker) ?? [i.startUs, i.endUs];
      ends.set(i.worker, [Math.min(from, i.startUs), Math.max(to, i.endUs)]);
      const [first, last] = ends.get(i.worker)!;
      row.spanUs = last - first;
    },
  ).sort((a, b) => a.worker - b.worker);
  const count = (type: TapeLine["type"]): number => lines.filter((l) => l.type === type).length;
  return { runs: count("run"), programs: count("program"), fetches: count("fetch"), ops, workers };
}

/** Converts the tape to a Chrome trace: one process per worker, with separate rows for compute and communication. */
export function chromeTrace({ instructions }: TapeFile): { traceEvents: object[] } {
  const origin = instructions.reduce((least, i) => Math.min(least, i.startUs), Number.POSITIVE_INFINITY);
  const names = new Map(instructions.map((i) => [i.worker, i.workerId]));
  const meta = [...names].flatMap(([pid, name]) => [
    { ph: "M", name: "process_name", pid, tid: 0, args: { name: `worker ${name}` } },
    { ph: "M", name: "thread_name", pid, tid: 0, args: { name: "compute" } },
    { ph: "M", name: "thread_name", pid, tid: 1, args: { name: "communicate" } },
  ]);
  const events = instructions.map((i) => ({
    ph: "X",
    name: i.op,
    cat: i.kind,
    pid: i.worker,
    tid: i.kind === "collective" ? 1 : 0,
    ts: i.startUs - origin,
    dur: i.endUs - i.startUs,
    args: { step: i.step, program: i.program, bytes: i.bytes, flops: i.flops, cause: i.cause, results: i.shapes },
  }));
  return { traceEvents: [...meta, ...events] };
}

/** Differences of two tapes. */
interface TapeDiff {
  /** The first request that differs; null if all are equal. */
  firstDifference: string | null;
  /** Fetched results in order, and whether their bits are equal. */
  fetches: { index: number; equal: boolean }[];
  ops: { op: string; firstUs: number; secondUs: number; firstCount: number; secondCount: number }[];
}

interface TapeRequest {
  /** Independent of ids and of source lines. */
  what: string;
  shown: string;
}

function requestsOf({ lines }: TapeFile): TapeRequest[] {
  const keys = new Map<number, string>();
  return lines.flatMap((l) => {
    if (l.type === "program") {
      const key = structuralKey(decodeFunction(l.graph));
      keys.set(l.program, createHash("sha256").update(key).digest("hex"));
    }
    if (l.type === "run") {
      const what = `run ${keys.get(l.program)?.slice(0, 12)}`;
      return [{ what, shown: l.cause === null ? what : `${what} at ${l.cause}` }];
    }
    if (l.type !== "data") return [];
    const what = `data of ${l.bytes} bytes ${l.sha256.slice(0, 12)}`;
    return [{ what, shown: what }];
  });
}

/** Compares two tapes: requests, fetched results and times. */
export function diffTapes(first: TapeFile, second: TapeFile): TapeDiff {
  const [a, b] = [requestsOf(first), requestsOf(second)];
  const at = Array.from({ length: Math.max(a.length, b.length) }, (_, i) => i).find((i) => a[i]?.what !== b[i]?.what);
  const fetches = (tape: TapeFile): string[] => tape.lines.flatMap((l) => (l.type === "fetch" ? [l.sha256] : []));
  const [x, y] = [fetches(first), fetches(second)];
  const [p, q] = [tapeStats(first).ops, tapeStats(second).ops];
  const names = [...new Set([...p, ...q].map((row) => row.op))];
  return {
    firstDifference:
      at === undefined ? null : `instruction ${at + 1}: ${a[at]?.shown ?? "nothing"} | ${b[at]?.shown ?? "nothing"}`,
    fetches: Array.from({ length: Math.max(x.length, y.length) }, (_, index) => ({
      index,
      equal: x[index] === y[index],
    })),
    ops: names.map((op) => {
      const [m, n] = [p.find((r) => r.op === op), q.find((r) => r.op === op)];
      return { op, firstUs: m?.us ?? 0, secondUs: n?.us ?? 0, firstCount: m?.count ?? 0, secondCount: n?.count ?? 0 };
    }),
  };
}
