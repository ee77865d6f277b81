// Parses one event of the Chrome trace event format in place: positions and numbers of the fields that the analyses use. The
// same slots are reused for every event.
import {
  found,
  KeyTable,
  needMore,
  scanNumber,
  scanString,
  scanTime,
  skipRest,
  skipSpace,
  skipString,
  skipValue,
  TraceSyntaxError,
} from "./scan.js";
import { hashBytes } from "./symbols.js";

// Numbers, because a switch over strings costs one comparison per case and runs ten times per event.
const keyPh = 0;
const keyCat = 1;
const keyName = 2;
const keyPid = 3;
const keyTid = 4;
const keyTs = 5;
const keyDur = 6;
const keyArgs = 7;
const keyId = 8;
const eventTable = new KeyTable(["ph", "cat", "name", "pid", "tid", "ts", "dur", "args", "id"]);

/** Phases that the analyses use: whole events, halves of events, names. Others (flows, counters, instants) are skipped. */
const usedPhase = new Uint8Array(256);
for (const c of "XBEM") usedPhase[c.charCodeAt(0)] = 1;

/** The arguments that are parsed, in the order of their bits in `EventSlots.args`. */
const argumentKeys = [
  "stream",
  "correlation",
  "bytes",
  "memory bandwidth (GB/s)",
  "Collective name",
  "In msg nelems",
  "Out msg nelems",
  "Group size",
  "dtype",
  "Process Group Name",
  "wait_on_stream",
  "wait_on_cuda_event_record_corr_id",
  "Input Dims",
  "Input type",
  "name",
  "hlo_op",
  "device_ordinal",
  "step_num",
  "Seq",
  "step",
  "Concrete Inputs",
  "Sequence number",
  "device",
] as const;
const argumentTable = new KeyTable(argumentKeys);

type ArgumentKey = (typeof argumentKeys)[number];

export const argumentIndex = Object.fromEntries(argumentKeys.map((key, i) => [key, i])) as Record<ArgumentKey, number>;

/** Number of event names whose kind is cached; a power of two. */
const plainNames = 1024;

/** A token in the window: the bytes [start, end) and their hash; `quoted` when it was a JSON string. */
export interface Token {
  start: number;
  end: number;
  hash: number;
  quoted: boolean;
}

const token = (): Token => ({ start: 0, end: 0, hash: 0, quoted: false });

export class EventSlots {
  start = 0;
  end = 0;
  /** First byte of `ph`, 0 when there is none. */
  phase = 0;
  readonly category = token();
  readonly name = token();
  readonly pid = token();
  readonly tid = token();
  readonly id = token();
  ts = Number.NaN;
  tsIsFloat = false;
  dur = Number.NaN;
  /** Start in whole microseconds and nanoseconds behind the point, and duration in nanoseconds: exact, unlike `ts` and `dur`. */
  tsWhole = 0;
  tsNanoseconds = 0;
  /** Position of the value of `ts`, with its quotes. */
  tsStart = 0;
  tsEnd = 0;
  durNanoseconds = 0;
  /** One bit per argument of the event. */
  args = 0;
  readonly argNumber = new Float64Array(argumentKeys.length);
  readonly argStart = new Int32Array(argumentKeys.length);
  readonly argEnd = new Int32Array(argumentKeys.length);
  readonly argHash = new Int32Array(argumentKeys.length);

  has(argument: number): boolean {
    return (this.args & (1 << argument)) !== 0;
  }

  /** The argument as a number; NaN where it is missing or not a number. Quoted numbers are accepted. */
  number(argument: number): number {
    return this.has(argument) ? this.argNumber[argument] : Number.NaN;
  }

  raw(bytes: Buffer, argument: number): string {
    return this.has(argument) ? bytes.toString("utf8", this.argStart[argument], this.argEnd[argument]) : "";
  }

  private readonly plainHash = new Int32Array(plainNames);
  private readonly plainLength = new Int32Array(plainNames);
  private readonly isPlain = new Uint8Array(plainNames);

  private clear(start: number): void {
    this.start = start;
    this.phase = 0;
    this.category.end = this.category.start = 0;
    this.name.end = this.name.start = 0;
    this.pid.end = this.pid.start = 0;
    this.tid.end = this.tid.start = 0;
    this.id.end = this.id.start = 0;
    this.ts = Number.NaN;
    this.tsIsFloat = false;
    this.dur = Number.NaN;
    this.args = 0;
  }

  /** With `everything` set, events that no analysis uses are parsed too. */
  constructor(private readonly everything = false) {}

  /** Parses the object that starts at `at`; returns the position after it, or `needMore`. */
  parse(bytes: Buffer, at: number, end: number): number {
    this.clear(at);
    at++;
    for (;;) {
      at = skipSpace(bytes, at, end);
      if (at >= end) return needMore;
      const c = bytes[at];
      if (c === 0x2c) {
        at++;
        continue;
      }
      if (c === 0x7d) {
        this.end = at + 1;
        return at + 1;
      }
      if (c !== 0x22) throw new TraceSyntaxError("expected a key of an event", at);
      const key = eventTable.find(bytes, at + 1, end);
      at = key < 0 ? skipString(bytes, at + 1, end) : at + found.length + 2;
      if (at < 0) return needMore;
      at = skipSpace(bytes, at, end);
      if (at >= end) return needMore;
      if (bytes[at] !== 0x3a) throw new TraceSyntaxError("expected a colon behind a key of an event", at);
      at = skipSpace(bytes, at + 1, end);
      if (at >= end) return needMore;
      at = this.field(key, bytes, at, end);
      if (at < 0) return needMore;
      if (key === keyPh && usedPhase[this.phase] === 0 && !this.everything) {
        at = skipRest(bytes, at, end);
        if (at > 0) this.end = at;
        return at;
      }
    }
  }

  private field(key: number, bytes: Buffer, at: number, end: number): number {
    switch (key) {
      case keyPh: {
        if (bytes[at] !== 0x22) return skipValue(bytes, at, end);
        const stop = scanString(bytes, at + 1, end);
        if (stop < 0) return needMore;
        if (stop > at + 1) this.phase = bytes[at + 1];
        return stop + 1;
      }
      case keyCat:
        return readToken(this.category, bytes, at, end);
      case keyName:
        return readToken(this.name, bytes, at, end);
      case keyPid:
        return readToken(this.pid, bytes, at, end);
      case keyTid:
        return readToken(this.tid, bytes, at, end);
      case keyId:
        return readToken(this.id, bytes, at, end);
      case keyTs: {
        const next = readTime(bytes, at, end);
        this.tsStart = at;
        this.tsEnd = next;
        this.ts = found.number;
        this.tsIsFloat = found.isFloat;
        this.tsWhole = found.whole;
        this.tsNanoseconds = found.nanoseconds;
        return next;
      }
      case keyDur: {
        const next = readTime(bytes, at, end);
        this.dur = found.number;
        this.durNanoseconds = found.whole * 1000 + found.nanoseconds;
        return next;
      }
      case keyArgs:
        return bytes[at] === 0x7b ? this.readArguments(bytes, at + 1, end) : skipValue(bytes, at, end);
      default:
        return skipValue(bytes, at, end);
    }
  }

  private readArguments(bytes: Buffer, at: number, end: number): number {
    for (;;) {
      at = skipSpace(bytes, at, end);
      if (at >= end) return needMore;
      const c = bytes[at];
      if (c === 0x2c) {
        at++;
        continue;
      }
      if (c === 0x7d) return at + 1;
      if (c !== 0x22) throw new TraceSyntaxError("expected a key inside args", at);
      const key = argumentTable.find(bytes, at + 1, end);
      at = key < 0 ? skipString(bytes, at + 1, end) : at + found.length + 2;
      if (at < 0) return needMore;
      at = skipSpace(bytes, at, end);
      if (at >= end) return needMore;
      if (bytes[at] !== 0x3a) throw new TraceSyntaxError("expected a colon inside args", at);
      at = skipSpace(bytes, at + 1, end);
      if (at >= end) return needMore;
      at = key < 0 ? skipValue(bytes, at, end) : this.argument(key, bytes, at, end);
      if (at < 0) return needMore;
      // A kernel that is not a collective needs only its device, its stream and its correlation id.
      if ((this.args & kernelArguments) === kernelArguments && this.isPlainKernel(bytes))
        return skipRest(bytes, at, end);
    }
  }

  private isPlainKernel(bytes: Buffer): boolean {
    if (!isToken(bytes, this.category, kernelCategory)) return false;
    const { start, end, hash } = this.name;
    if (end === start) return false;
    // Names repeat, so the kind of the last name with this hash and length is cached.
    const slot = (hash ^ (hash >>> 15)) & (plainNames - 1);
    if (this.plainHash[slot] !== hash || this.plainLength[slot] !== end - start) {
      this.plainHash[slot] = hash;
      this.plainLength[slot] = end - start;
      this.isPlain[slot] = isCollectiveName(bytes, start, end) ? 0 : 1;
    }
    return this.isPlain[slot] === 1;
  }

  private argument(key: number, bytes: Buffer, at: number, end: number): number {
    const c = bytes[at];
    let next: number;
    if (c === 0x22) {
      const stop = scanString(bytes, at + 1, end);
      if (stop < 0) return needMore;
      this.argStart[key] = at + 1;
      this.argEnd[key] = stop;
      this.argHash[key] = found.hash;
      const text = stop - at <= 24 ? bytes.toString("latin1", at + 1, stop) : "";
      this.argNumber[key] = text === "" ? Number.NaN : Number(text);
      next = stop + 1;
    } else {
      next = c === 0x7b || c === 0x5b ? skipValue(bytes, at, end) : scanNumber(bytes, at, end);
      if (next < 0) return needMore;
      this.argStart[key] = at;
      this.argEnd[key] = next;
      this.argNumber[key] = c === 0x7b || c === 0x5b ? Number.NaN : found.number;
    }
    this.args |= 1 << key;
    return next;
  }
}

/** Both "nccl..." and "...ncclKernel..." are collectives, as are vendor variants that contain these letters. */
function isCollectiveName(bytes: Buffer, start: number, end: number): boolean {
  for (let i = start; i + 2 < end; i++)
    if (bytes[i] === 0x63 && bytes[i + 1] === 0x63 && bytes[i + 2] === 0x6c) return true;
  return false;
}

const kernelCategory = Buffer.from("kernel");
const kernelArguments = (1 << argumentIndex.device) | (1 << argumentIndex.stream) | (1 << argumentIndex.correlation);

function isToken(bytes: Buffer, token: Token, text: Buffer): boolean {
  if (token.end - token.start !== text.length) return false;
  for (let i = 0; i < text.length; i++) if (bytes[token.start + i] !== text[i]) return false;
  return true;
}

function readToken(into: Token, bytes: Buffer, at: number, end: number): number {
  if (bytes[at] === 0x22) {
    const stop = scanString(bytes, at + 1, end);
    if (stop < 0) return needMore;
    into.start = at + 1;
    into.end = stop;
    into.hash = found.hash;
    into.quoted = true;
    return stop + 1;
  }
  const stop = skipValue(bytes, at, end);
  if (stop < 0) return needMore;
  into.start = at;
  into.end = stop;
  into.quoted = false;
  into.hash = hashBytes(bytes, at, stop);
  return stop;
}

function readTime(bytes: Buffer, at: number, end: number): number {
  const c = bytes[at];
  if (c === 0x7b || c === 0x5b) {
    found.number = Number.NaN;
    found.isFloat = false;
    return skipValue(bytes, at, end);
  }
  if (c !== 0x22) return scanTime(bytes, at, end);
  const stop = scanString(bytes, at + 1, end);
  if (stop < 0) return needMore;
  const text = bytes.toString("latin1", at + 1, stop).trim();
  // A quoted time is scanned like a bare one, with the end that a bare one has.
  const quoted = Buffer.from(`${text} `);
  if (text === "" || scanTime(quoted, 0, quoted.length) < 0) found.number = Number.NaN;
  return stop + 1;
}
