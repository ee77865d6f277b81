// The streaming parser of a trace file: emits events one by one and buffers one window, as large as the largest event.
import { EventSlots } from "./event.js";
import { needMore, scanString, skipSpace, skipValue, TraceSyntaxError } from "./scan.js";

/** Top-level fields of the file that are kept (and parsed); all others are skipped without being held. */
const headerFields = new Set([
  "schemaVersion",
  "deviceProperties",
  "distributedInfo",
  "displayTimeUnit",
  "baseTimeNanoseconds",
  "traceName",
  "host_name",
  "metadata",
  "record_shapes",
  "profile_memory",
]);

/** First bytes of files that hold a trace in a form that is not read. */
const containers = [
  { name: "zstd", magic: [0x28, 0xb5, 0x2f, 0xfd] },
  { name: "bzip2", magic: [0x42, 0x5a, 0x68] },
  { name: "xz", magic: [0xfd, 0x37, 0x7a, 0x58] },
  { name: "zip", magic: [0x50, 0x4b, 0x03, 0x04] },
  { name: "twice compressed gzip", magic: [0x1f, 0x8b] },
];

const windowBytes = 1 << 21;
const largestEvent = 1 << 26;
/** An unfinished event of more bytes is parsed again when it has twice as many, not with every read: that would be quadratic. */
const longEvent = 1 << 16;
const largestHeaderField = 1 << 24;

export interface EventSink {
  event(slots: EventSlots, bytes: Buffer): void;
  header(name: string, raw: string): void;
}

type State = "start" | "root" | "events" | "skipping" | "done";

export class TraceStream {
  private window: Buffer = Buffer.allocUnsafe(windowBytes);
  private at = 0;
  private end = 0;
  /** Offset in the (uncompressed) file of the window's first byte. */
  private base = 0;
  private state: State = "start";
  private afterSkip: State = "root";
  private skipDepth = 0;
  private skipInString = false;
  private skipEscaped = false;
  private rootIsArray = false;
  private sawEvents = false;
  private readonly slots: EventSlots;
  /** Offset behind the last event that was read whole. */
  private behindLastEvent = 0;
  /** Bytes from `at` on without which parsing would not get further. */
  private neededBytes = 0;
  /** Offset of the first byte behind the end of the root value that is no space; -1: none. */
  private trailing = -1;
  events = 0;

  constructor(
    private readonly sink: EventSink,
    everyEvent = false,
  ) {
    this.slots = new EventSlots(everyEvent);
  }

  /**
   * Parses a block that should consist of whole events, without copying it. Returns false where it does not: where it ends
   * inside an event or behind the last one.
   */
  parseBlock(block: Buffer): boolean {
    this.window = block;
    this.base = 0;
    this.at = 0;
    this.end = block.length;
    this.state = "events";
    this.run();
    return this.isBetweenEvents;
  }

  /** Whether the bytes so far end behind a whole event of the list. */
  get isBetweenEvents(): boolean {
    return this.state === "events" && this.at === this.end;
  }

  /** Counts a block of whole events that was parsed elsewhere; `behindLast`: offset behind its last event. */
  skipBlock(bytes: number, events: number, behindLast: number): void {
    this.base += this.end;
    this.at = 0;
    this.end = 0;
    if (events > 0) this.behindLastEvent = this.base + behindLast;
    this.base += bytes;
    this.events += events;
  }

  get bytesRead(): number {
    return this.base + this.end;
  }

  /** Offset behind the last complete event. */
  get goodBytes(): number {
    return this.behindLastEvent;
  }

  /** The free part of the window. Call `advance` with the number of bytes written to it. */
  room(): Buffer {
    if (this.at > 0) {
      this.window.copyWithin(0, this.at, this.end);
      this.base += this.at;
      this.end -= this.at;
      this.at = 0;
    }
    if (this.end > this.window.length / 2) {
      const wider = Buffer.allocUnsafe(this.window.length * 2);
      this.window.copy(wider, 0, 0, this.end);
      this.window = wider;
    }
    return this.window.subarray(this.end);
  }

  advance(bytes: number): void {
    this.end += bytes;
    this.run();
  }

  push(chunk: Uint8Array): void {
    let from = 0;
    while (from < chunk.length) {
      const room = this.room();
      const n = Math.min(room.length, chunk.length - from);
      room.set(chunk.subarray(from, from + n));
      from += n;
      this.advance(n);
    }
  }

  /** Ends the input; returns whether the file was complete, and if not, the problem. */
  finish(): string | null {
    this.neededBytes = 0;
    this.run();
    const space = skipSpace(this.window, this.at, this.end);
    if (this.state === "done") return this.sawEvents ? null : this.noEvents();
    if (this.state === "start" && space >= this.end) return "the file is empty";
    // The format allows the array form to omit its closing bracket.
    if (this.state === "events" && this.rootIsArray && space >= this.end) return null;
    if (!this.sawEvents) return "the file ends before its traceEvents";
    if (this.state === "events")
      return `the file ends inside its events, at byte ${this.bytesRead}: ${this.events} events up to byte ${this.behindLastEvent} are whole and were kept, the rest is missing`;
    return null;
  }

  private noEvents(): string {
    const lines = ": its first line is an object of its own (JSON lines are not a trace; a list of events is)";
    return `the file has no traceEvents${this.trailing < 0 ? "" : lines}`;
  }

  /** What is said of bytes behind the end of a whole trace; null without them. */
  get problemBehindEnd(): string | null {
    if (this.trailing < 0 || !this.sawEvents) return null;
    return `the trace ends before byte ${this.trailing}, and what follows was left out (several profiles in one file: give each its own)`;
  }

  private run(): void {
    if (this.end - this.at < this.neededBytes) return;
    this.neededBytes = 0;
    try {
      while (this.step());
    } catch (error) {
      if (error instanceof TraceSyntaxError)
        throw new TraceSyntaxError(
          `${error.message} at byte ${this.base + error.position}`,
          this.base + error.position,
        );
      throw error;
    }
  }

  private step(): boolean {
    switch (this.state) {
      case "start":
        return this.readStart();
      case "root":
        return this.readRootField();
      case "events":
        return this.readEvents();
      case "skipping":
        return this.skipOn();
      case "done": {
        const at = skipSpace(this.window, this.at, this.end);
        if (at < this.end && this.trailing < 0) this.trailing = this.base + at;
        this.at = this.end;
        return false;
      }
    }
  }

  private readStart(): boolean {
    let at = skipSpace(this.window, this.at, this.end);
    if (at + 3 > this.end) return false;
    // A byte order mark is accepted.
    if (this.window[at] === 0xef && this.window[at + 1] === 0xbb && this.window[at + 2] === 0xbf)
      at = skipSpace(this.window, at + 3, this.end);
    const c = this.window[at];
    if (c === 0x7b) this.state = "root";
    else if (c === 0x5b) {
      this.rootIsArray = true;
      this.sawEvents = true;
      this.state = "events";
    } else if ((c === 0xff && this.window[at + 1] === 0xfe) || (c === 0xfe && this.window[at + 1] === 0xff))
      throw new TraceSyntaxError("this is text in UTF-16; convert it (iconv -f UTF-16 -t UTF-8),", at);
    else {
      const packed = containers.find(({ magic }) => magic.every((byte, i) => this.window[this.at + i] === byte));
      if (packed !== undefined) throw new TraceSyntaxError(`this is a ${packed.name} file; unpack it first,`, this.at);
      throw new TraceSyntaxError("this is not a JSON trace: it starts with neither { nor [,", at);
    }
    this.at = at + 1;
    return true;
  }

  private readRootField(): boolean {
    const bytes = this.window;
    const end = this.end;
    let at = skipSpace(bytes, this.at, end);
    while (at < end && bytes[at] === 0x2c) at = skipSpace(bytes, at + 1, end);
    if (at >= end) return false;
    if (bytes[at] === 0x7d) {
      this.at = at + 1;
      this.state = "done";
      return true;
    }
    if (bytes[at] !== 0x22) throw new TraceSyntaxError("expected a top-level key", at);
    const keyEnd = scanString(bytes, at + 1, end);
    if (keyEnd < 0) return false;
    const key = bytes.toString("utf8", at + 1, keyEnd);
    let value = skipSpace(bytes, keyEnd + 1, end);
    if (value >= end) return false;
    if (bytes[value] !== 0x3a) throw new TraceSyntaxError("expected a colon behind a top-level key", value);
    value = skipSpace(bytes, value + 1, end);
    if (value >= end) return false;
    if (key === "traceEvents") {
      if (bytes[value] !== 0x5b) throw new TraceSyntaxError("traceEvents should be a list", value);
      this.at = value + 1;
      this.sawEvents = true;
      this.state = "events";
      return true;
    }
    if (headerFields.has(key)) {
      const next = skipValue(bytes, value, end);
      if (next >= 0) {
        this.sink.header(key, bytes.toString("utf8", value, next));
        this.at = next;
        return true;
      }
      if (end - value < largestHeaderField) return false;
    }
    this.at = value;
    this.beginSkipping();
    return true;
  }

  private readEvents(): boolean {
    const bytes = this.window;
    const end = this.end;
    const slots = this.slots;
    let at = this.at;
    for (;;) {
      at = skipSpace(bytes, at, end);
      if (at >= end) {
        this.at = at;
        return false;
      }
      const c = bytes[at];
      if (c === 0x2c) {
        at++;
        continue;
      }
      if (c === 0x5d) {
        this.at = at + 1;
        this.state = this.rootIsArray ? "done" : "root";
        return true;
      }
      if (c !== 0x7b) {
        this.at = at;
        throw new TraceSyntaxError("expected an event", at);
      }
      this.at = at;
      const next = slots.parse(bytes, at, end);
      if (next === needMore) {
        if (end - at > largestEvent)
          throw new TraceSyntaxError(`an event is larger than ${largestEvent >> 20} MiB; it begins`, at);
        if (end - at > longEvent) this.neededBytes = 2 * (end - at);
        return false;
      }
      at = next;
      this.at = at;
      this.events++;
      this.behindLastEvent = this.base + at;
      this.sink.event(slots, bytes);
    }
  }

  private beginSkipping(): void {
    this.afterSkip = "root";
    this.state = "skipping";
    this.skipDepth = 0;
    this.skipInString = false;
    this.skipEscaped = false;
  }

  /** Skips a value of any size without buffering it. */
  private skipOn(): boolean {
    const bytes = this.window;
    let at = this.at;
    while (at < this.end) {
      const c = bytes[at];
      if (this.skipInString) {
        at++;
        if (this.skipEscaped) this.skipEscaped = false;
        else if (c === 0x5c) this.skipEscaped = true;
        else if (c === 0x22) {
          this.skipInString = false;
          if (this.skipDepth === 0) return this.skipped(at);
        }
        continue;
      }
      if (this.skipDepth === 0 && (c === 0x2c || c === 0x7d || c === 0x5d)) return this.skipped(at);
      at++;
      if (c === 0x22) this.skipInString = true;
      else if (c === 0x7b || c === 0x5b) this.skipDepth++;
      else if (c === 0x7d || c === 0x5d) {
        this.skipDepth--;
        if (this.skipDepth === 0) return this.skipped(at);
      }
    }
    this.at = at;
    return false;
  }

  private skipped(at: number): boolean {
    this.at = at;
    this.state = this.afterSkip;
    return true;
  }
}
