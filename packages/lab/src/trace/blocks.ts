// Reads one file with several threads. The bytes are cut where an event seems to begin, and this and other threads parse blocks.
// A block counts only if the one before it ended behind a whole event and it does so, too: then it was cut at the right place.
// All others are parsed again here, so that the result is always that of one thread.
import { availableParallelism } from "node:os";
import { Worker } from "node:worker_threads";
import { type BlockAnswer, type BlockQuestion, parseBlock } from "./block.js";
import type { TraceData } from "./data.js";
import { appendPiece } from "./piece.js";
import type { Sorter } from "./sorter.js";
import type { TraceStream } from "./stream.js";
import { hashSeed } from "./symbols.js";

const usualBlock = 4 << 20;
/** Bytes that are read at a time until the first event is known. */
const headBytes = 1 << 16;
/** How far before the end of a block the beginning of an event is searched for. */
const searchBytes = 1 << 20;
/** Smaller files are read before the threads have started. */
const worthThreads = 24 << 20;
const mostThreads = 4;
/** Blocks that another thread has at a time; when all have as many, this thread parses the next one. */
const blocksAhead = 2;
/** Blocks of this thread that may wait for earlier ones of others. */
const ownBlocks = 3;

/** Number of threads that are worthwhile for a file of this uncompressed size; 1: only the main thread. */
export function threadsForBytes(bytes: number): number {
  return bytes < worthThreads ? 1 : Math.min(mostThreads, availableParallelism());
}

/** What takes the bytes of a file. */
export interface ByteSink {
  room(): Buffer;
  advance(bytes: number): void | Promise<void>;
  push(chunk: Uint8Array): void | Promise<void>;
}

/** Position of the last `{` that seems to begin an event: behind `},` and before a quote. -1: none near the end. */
export function lastEventStart(bytes: Buffer): number {
  const isSpace = (c: number): boolean => c === 0x20 || c === 0x0a || c === 0x0d || c === 0x09;
  for (
    let at = bytes.lastIndexOf(0x7b);
    at > 0 && at > bytes.length - searchBytes;
    at = bytes.lastIndexOf(0x7b, at - 1)
  ) {
    let after = at + 1;
    while (after < bytes.length && isSpace(bytes[after])) after++;
    if (bytes[after] !== 0x22) continue;
    let before = at - 1;
    while (before > 0 && isSpace(bytes[before])) before--;
    if (bytes[before] !== 0x2c) continue;
    do before--;
    while (before > 0 && isSpace(bytes[before]));
    if (bytes[before] === 0x7d) return at;
  }
  return -1;
}

class Thread {
  private readonly worker = new Worker(new URL("./block-worker.js", import.meta.url), { workerData: { hashSeed } });
  private readonly waiting: { resolve: (answer: BlockAnswer) => void; reject: (error: Error) => void }[] = [];

  constructor() {
    this.worker.on("message", (answer: BlockAnswer) => this.waiting.shift()?.resolve(answer));
    this.worker.on("error", (error) => {
      for (const { reject } of this.waiting.splice(0)) reject(error);
    });
  }

  /** Blocks that it has not answered. */
  get outstanding(): number {
    return this.waiting.length;
  }

  parse(question: BlockQuestion): Promise<BlockAnswer> {
    return new Promise((resolve, reject) => {
      this.waiting.push({ resolve, reject });
      this.worker.postMessage(question);
    });
  }

  /** Lets the thread end by itself: Node aborts the process where a thread ends while V8 still compiles for it. */
  stop(): void {
    this.worker.postMessage(null);
  }
}

/** Takes the bytes of a file like `TraceStream`, and parses them in several threads. */
export class ParallelStream implements ByteSink {
  /** Started with the first bytes: formats that are no JSON need none. */
  private threads: Thread[] = [];
  /** Blocks in the order of the file. */
  private readonly pending: { block: Buffer; answer: Promise<BlockAnswer> }[] = [];
  private readonly spare: Buffer[] = [];
  private block: Buffer;
  private used = 0;

  constructor(
    private readonly stream: TraceStream,
    private readonly sorter: Sorter,
    private readonly data: TraceData,
    private readonly threadCount: number,
    private readonly blockBytes = usualBlock,
  ) {
    this.block = this.newBlock();
  }

  private newBlock(): Buffer {
    return this.spare.pop() ?? Buffer.from(new SharedArrayBuffer(this.blockBytes));
  }

  room(): Buffer {
    return this.block.subarray(this.used, this.hasBegun ? this.blockBytes : this.used + headBytes);
  }

  /** Whether the header and the first event, which has the zero of the time axis, have been read. */
  private get hasBegun(): boolean {
    return this.pending.length > 0 || (this.stream.isBetweenEvents && this.sorter.knowsOrigin);
  }

  async advance(bytes: number): Promise<void> {
    if (this.threads.length === 0) this.threads = Array.from({ length: this.threadCount - 1 }, () => new Thread());
    this.used += bytes;
    if (this.used >= this.blockBytes || !this.hasBegun) await this.cut();
  }

  async push(chunk: Uint8Array): Promise<void> {
    for (let from = 0; from < chunk.length; ) {
      const room = this.room();
      const n = Math.min(room.length, chunk.length - from);
      room.set(chunk.subarray(from, from + n));
      from += n;
      await this.advance(n);
    }
  }

  /** Parses what is left. */
  async finish(): Promise<void> {
    while (this.pending.length > 0) await this.take();
    this.stream.push(this.block.subarray(0, this.used));
    this.used = 0;
  }

  stop(): void {
    for (const { answer } of this.pending) answer.catch(() => {});
    for (const thread of this.threads) thread.stop();
  }

  private async cut(): Promise<void> {
    const at = lastEventStart(this.block.subarray(0, this.used));
    if (at < 0 || !this.hasBegun) {
      while (this.pending.length > 0) await this.take();
      const whole = at < 0 ? this.used : at;
      this.stream.push(this.block.subarray(0, whole));
      this.block.copyWithin(0, whole, this.used);
      this.used -= whole;
      return;
    }
    const next = this.newBlock();
    this.block.copy(next, 0, at, this.used);
    const { unit, originUs } = this.data;
    const question = { bytes: this.block.buffer as SharedArrayBuffer, length: at, unit, originUs };
    const free = this.threads.reduce((a, b) => (b.outstanding < a.outstanding ? b : a));
    const answer = free.outstanding < blocksAhead ? free.parse(question) : Promise.resolve(parseBlock(question));
    // Awaited in order; until then a failure must not count as unhandled.
    answer.catch(() => {});
    this.pending.push({ block: this.block.subarray(0, at), answer });
    this.used -= at;
    this.block = next;
    if (this.pending.length >= blocksAhead * this.threads.length + ownBlocks) await this.take();
  }

  /** Takes the oldest block. */
  private async take(): Promise<void> {
    const { block, answer } = this.pending.shift()!;
    const { piece, events, behindLast } = await answer;
    if (piece !== null && this.stream.isBetweenEvents) {
      appendPiece(this.data, this.sorter, piece);
      this.stream.skipBlock(block.length, events, behindLast);
    } else this.stream.push(block);
    this.spare.push(Buffer.from(block.buffer));
  }
}
