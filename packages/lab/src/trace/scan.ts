// The JSON scanner: functions over a window of bytes that allocate neither objects nor strings. `needMore` means that the
// window ends inside the token; the caller reads more bytes and scans again.
import { hashBytes, hashFactor, hashSeed } from "./symbols.js";

export const needMore = -1;

/** What the last scan found; module state, because a returned object would cost an allocation. */
export const found = { hash: 0, length: 0, number: 0, isFloat: false, whole: 0, nanoseconds: 0 };

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

/** Bytes that end a string or may. */
const endsString = new Uint8Array(256);
endsString[quote] = 1;
endsString[backslash] = 1;

/** Scans from after the opening quote to the closing one; leaves the `hashBytes` of the raw bytes in `found`. */
export function scanString(bytes: Buffer, at: number, end: number): number {
  const start = at;
  let hash = hashSeed;
  for (; at + 3 <= end; at += 3) {
    const a = bytes[at];
    const b = bytes[at + 1];
    const c = bytes[at + 2];
    if ((endsString[a] | endsString[b] | endsString[c]) !== 0) {
      if (a === quote) {
        found.hash = hash;
        return at;
      }
      if (a === backslash) break;
      if (b === quote) {
        found.hash = Math.imul(hash ^ a, hashFactor);
        return at + 1;
      }
      if (b === backslash || c === backslash) break;
      found.hash = Math.imul(hash ^ (a | (b << 8)), hashFactor);
      return at + 2;
    }
    hash = Math.imul(hash ^ (a | (b << 8) | (c << 16)), hashFactor);
  }
  const behind = skipString(bytes, at, end);
  if (behind < 0) return needMore;
  found.hash = hashBytes(bytes, start, behind - 1);
  return behind - 1;
}

/** Like `scanString` without the hash: long strings are searched by the built-in search. Returns behind the quote. */
export function skipString(bytes: Buffer, at: number, end: number): number {
  const near = Math.min(at + 48, end);
  while (at + 2 <= near) {
    if ((endsString[bytes[at]] | endsString[bytes[at + 1]]) === 0) at += 2;
    else if (bytes[at] === quote) return at + 1;
    else if (bytes[at] === backslash) at += 2;
    else if (bytes[at + 1] === quote) return at + 2;
    else at += 3;
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
    while (
      at + 4 <= end &&
      (structural[bytes[at]] | structural[bytes[at + 1]] | structural[bytes[at + 2]] | structural[bytes[at + 3]]) === 0
    )
      at += 4;
    while (at < end && structural[bytes[at]] === 0) at++;
    if (at >= end) return needMore;
    const c = bytes[at++];
    if (c === quote) {
      while (at < end && endsString[bytes[at]] === 0) at++;
      if (at < end && bytes[at] === quote) at++;
      else {
        at = skipString(bytes, at, end);
        if (at < 0) return needMore;
      }
    } else if (c === 0x7b || c === 0x5b) depth++;
    else if (--depth === 0) return at;
  }
}

/** A set of keys, found by their first letter and compared byte by byte. */
export class KeyTable {
  /** Of each first letter: its keys, the length before the bytes; the ids of the keys at the same places. */
  private readonly keys: (Uint8Array | null)[] = Array.from({ length: 256 }, () => null);
  private readonly ids: Int32Array[] = Array.from({ length: 256 }, () => new Int32Array(0));

  constructor(names: readonly string[]) {
    for (const letter of new Set(names.map((name) => name.charCodeAt(0)))) {
      const own = names.flatMap((name, id) =>
        name.charCodeAt(0) === letter ? [{ id, bytes: Buffer.from(name) }] : [],
      );
      this.keys[letter] = Uint8Array.from(own.flatMap(({ bytes }) => [bytes.length, ...bytes]));
      this.ids[letter] = Int32Array.from(own, ({ id }) => id);
    }
  }

  /**
   * Index of the key that begins at `at`, behind its quote; its length is then in `found.length`. -1: another key, or one that
   * goes on behind the window.
   */
  find(bytes: Uint8Array, at: number, end: number): number {
    const letter = at < end ? bytes[at] : 0;
    const keys = this.keys[letter];
    if (keys === null) return -1;
    for (let from = 0, index = 0; from < keys.length; from += keys[from] + 1, index++) {
      const length = keys[from];
      if (at + length >= end || bytes[at + length] !== quote) continue;
      let i = 1;
      while (i < length && keys[from + 1 + i] === bytes[at + i]) i++;
      if (i < length) continue;
      found.length = length;
      return this.ids[letter][index];
    }
    return -1;
  }
}
