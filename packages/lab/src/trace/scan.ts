// The JSON scanner: functions over a window of bytes that allocate neither objects nor strings. `needMore` means that the
// window ends inside the token; the caller reads more bytes and scans again.
import { hashSeed } from "./symbols.js";

export const needMore = -1;

/** What the last `scanString` or `scanNumber` found; module state, because a returned object would cost an allocation. */
export const found = { hash: 0, number: 0, isFloat: false, escaped: false, whole: 0, nanoseconds: 0 };

export class TraceSyntaxError extends Error {
  constructor(
    message: string,
    /** Position in the window. */
    readonly position: number,
  ) {
    super(message);
  }
}

const quote = 0x22;
const backslash = 0x5c;

export function skipSpace(bytes: Uint8Array, at: number, end: number): number {
  while (at < end && bytes[at] <= 0x20) at++;
  return at;
}

/** Scans from after the opening quote to the closing one; leaves the hash of the raw bytes in `found`. */
export function scanString(bytes: Uint8Array, at: number, end: number): number {
  let hash = hashSeed;
  found.escaped = false;
  while (at < end) {
    const c = bytes[at];
    if (c === quote) {
      found.hash = hash;
      return at;
    }
    hash = Math.imul(hash ^ c, 16777619);
    at++;
    if (c === backslash) {
      found.escaped = true;
      if (at >= end) return needMore;
      hash = Math.imul(hash ^ bytes[at], 16777619);
      at++;
    }
  }
  return needMore;
}

/** Like `scanString` without the hash: long strings are searched by the built-in search. Returns behind the quote. */
export function skipString(bytes: Buffer, at: number, end: number): number {
  const near = Math.min(at + 48, end);
  while (at < near) {
    const c = bytes[at];
    if (c === quote) return at + 1;
    at += c === backslash ? 2 : 1;
  }
  while (at < end) {
    const close = bytes.indexOf(quote, at);
    if (close < 0 || close >= end) return needMore;
    let slashes = 0;
    for (let i = close - 1; i >= at && bytes[i] === backslash; i--) slashes++;
    if ((slashes & 1) === 0) return close + 1;
    at = close + 1;
  }
  return needMore;
}

function endsToken(c: number): boolean {
  return c === 0x2c || c === 0x7d || c === 0x5d || c <= 0x20;
}

function endOfToken(bytes: Uint8Array, at: number, end: number): number {
  while (at < end) {
    if (endsToken(bytes[at])) return at;
    at++;
  }
  return needMore;
}

const powersOfTen = [1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15];

/**
 * A number, or a bare word such as `nan`, `inf` or `true`, which becomes NaN or an infinity. Whole digits below 2^53
 * divided by an exact power of ten round correctly, so the common case needs no string; the rest is left to Number().
 */
export function scanNumber(bytes: Buffer, at: number, end: number): number {
  const start = at;
  let negative = false;
  if (at < end && bytes[at] === 0x2d) {
    negative = true;
    at++;
  }
  let value = 0;
  let digits = 0;
  let decimals = -1;
  while (at < end) {
    const c = bytes[at];
    if (c >= 0x30 && c <= 0x39) {
      value = value * 10 + (c - 0x30);
      digits++;
      if (decimals >= 0) decimals++;
    } else if (c === 0x2e && decimals < 0) decimals = 0;
    else break;
    at++;
  }
  if (at >= end) return needMore;
  if (digits > 0 && digits <= 16 && decimals <= 15 && value <= Number.MAX_SAFE_INTEGER && endsToken(bytes[at])) {
    if (decimals > 0) value /= powersOfTen[decimals];
    found.number = negative ? -value : value;
    found.isFloat = decimals >= 0;
    return at;
  }
  const stop = endOfToken(bytes, at, end);
  if (stop < 0) return needMore;
  if (stop === start) throw new TraceSyntaxError("a number is missing", at);
  const text = bytes.toString("latin1", start, stop);
  const word = bareWords[text.toLowerCase()];
  found.number = word !== undefined ? word : Number(text);
  found.isFloat = /[.eE]/.test(text);
  return stop;
}

/**
 * A time in microseconds as two exact numbers: whole microseconds and the nanoseconds behind the decimal point. A double of
 * microseconds since 1970 has a resolution of a quarter of a microsecond.
 */
export function scanTime(bytes: Buffer, at: number, end: number): number {
  const start = at;
  const negative = at < end && bytes[at] === 0x2d;
  if (negative) at++;
  let whole = 0;
  let digits = 0;
  while (at < end && bytes[at] >= 0x30 && bytes[at] <= 0x39) {
    whole = whole * 10 + (bytes[at++] - 0x30);
    digits++;
  }
  let all = whole;
  let nanoseconds = 0;
  let decimals = 0;
  const isFloat = at < end && bytes[at] === 0x2e;
  if (isFloat) {
    at++;
    for (; at < end && bytes[at] >= 0x30 && bytes[at] <= 0x39; at++, decimals++) {
      all = all * 10 + (bytes[at] - 0x30);
      if (decimals < 3) nanoseconds = nanoseconds * 10 + (bytes[at] - 0x30);
      else if (decimals === 3 && bytes[at] >= 0x35) nanoseconds++;
    }
    for (let i = decimals; i < 3; i++) nanoseconds *= 10;
  }
  if (at >= end) return needMore;
  if (digits > 0 && whole <= Number.MAX_SAFE_INTEGER && endsToken(bytes[at])) {
    found.whole = negative ? -whole : whole;
    found.nanoseconds = negative ? -nanoseconds : nanoseconds;
    found.isFloat = isFloat;
    // As `scanNumber` does.
    if (digits + decimals <= 16 && decimals <= 15 && all <= Number.MAX_SAFE_INTEGER)
      found.number = (negative ? -all : all) / powersOfTen[decimals];
    else found.number = Number(bytes.toString("latin1", start, at));
    return at;
  }
  const next = scanNumber(bytes, start, end);
  found.whole = Math.floor(found.number);
  found.nanoseconds = Math.round((found.number - found.whole) * 1000);
  return next;
}

// Kineto prints NaN and infinity as C++ does.
const bareWords: Record<string, number> = {
  inf: Number.POSITIVE_INFINITY,
  "-inf": Number.NEGATIVE_INFINITY,
  infinity: Number.POSITIVE_INFINITY,
  "-infinity": Number.NEGATIVE_INFINITY,
  null: Number.NaN,
  true: Number.NaN,
  false: Number.NaN,
};

/** Skips any value, parsing only what is needed to find its end. */
export function skipValue(bytes: Buffer, at: number, end: number): number {
  if (at >= end) return needMore;
  const c = bytes[at];
  if (c === quote) return skipString(bytes, at + 1, end);
  if (c !== 0x7b && c !== 0x5b) {
    const stop = endOfToken(bytes, at, end);
    if (stop === at) throw new TraceSyntaxError("a value is missing", at);
    return stop;
  }
  return skipRest(bytes, at + 1, end);
}

/** Bytes that matter when a value is skipped. */
const structural = new Uint8Array(256);
for (const c of '"{}[]') structural[c.charCodeAt(0)] = 1;

/** Skips from inside an object or list to the position after its end. */
export function skipRest(bytes: Buffer, at: number, end: number): number {
  let depth = 1;
  for (;;) {
    while (at < end && structural[bytes[at]] === 0) at++;
    if (at >= end) return needMore;
    const c = bytes[at++];
    if (c === quote) {
      at = skipString(bytes, at, end);
      if (at < 0) return needMore;
    } else if (c === 0x7b || c === 0x5b) depth++;
    else if (--depth === 0) return at;
  }
}

/** A set of keys, found by the hash of the scanner and compared byte by byte. */
export class KeyTable {
  private readonly slots = new Int32Array(256).fill(-1);
  private readonly hashes: Int32Array;
  private readonly keys: Buffer[];

  constructor(names: readonly string[]) {
    this.keys = names.map((name) => Buffer.from(name));
    this.hashes = new Int32Array(names.length);
    for (let id = 0; id < names.length; id++) {
      let hash = hashSeed;
      for (const c of this.keys[id]) hash = Math.imul(hash ^ c, 16777619);
      this.hashes[id] = hash;
      let slot = hash & 255;
      while (this.slots[slot] >= 0) slot = (slot + 1) & 255;
      this.slots[slot] = id;
    }
  }

  /** Index of the key in the list, or -1. */
  find(bytes: Uint8Array, start: number, end: number, hash: number): number {
    let slot = hash & 255;
    for (;;) {
      const id = this.slots[slot];
      if (id < 0) return -1;
      if (this.hashes[id] === hash) {
        const key = this.keys[id];
        if (key.length === end - start) {
          let i = 0;
          while (i < key.length && key[i] === bytes[start + i]) i++;
          if (i === key.length) return id;
        }
      }
      slot = (slot + 1) & 255;
    }
  }
}
