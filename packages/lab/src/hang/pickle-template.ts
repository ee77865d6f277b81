// Dumps repeat the same dict thousands of times with other numbers in it. A template is the bytes of such a dict, with the
// places of its numbers: a dict that matches is read by comparing bytes, and shares all its other values with the first one.

/** The bytes and values that dicts of one form share. */
export interface PickleTemplate {
  /** Keys and values of the first dict; its numbers are replaced in each other one. */
  readonly items: readonly unknown[];
  /** Positions in `items` of the numbers. */
  readonly holes: readonly number[];
  /** Bytes before each number, and those behind the last one. */
  readonly runs: readonly Buffer[];
}

/** Fewer items are not worth a template. */
const leastItems = 16;
const mostTemplates = 64;
/** After this number of dicts without a match, and with few matches, comparing costs more than it saves. */
const mostMisses = 1000;

const opMark = 0x28;
/** Lengths of the opcodes that a template may have, without those that store something or whose length varies. */
const lengths = new Uint8Array(256);
for (const [code, length] of [
  [0x68, 2], // BINGET
  [0x6a, 5], // LONG_BINGET
  [0x4b, 2], // BININT1
  [0x4d, 3], // BININT2
  [0x4a, 5], // BININT
  [0x47, 9], // BINFLOAT
  [0x4e, 1], // NONE
  [0x88, 1], // NEWTRUE
  [0x89, 1], // NEWFALSE
  [0x5d, 1], // EMPTY_LIST
  [0x29, 1], // EMPTY_TUPLE
  [opMark, 1],
  [0x65, 1], // APPENDS
  [0x61, 1], // APPEND
  [0x74, 1], // TUPLE
  [0x85, 1],
  [0x86, 1],
  [0x87, 1],
])
  lengths[code] = length;
/** Opcodes that take everything above a mark, and those that make one value of several: by how many the values change. */
const closes = new Set([0x65, 0x74]);
const merges = new Map([
  [0x85, 0],
  [0x86, -1],
  [0x87, -2],
  [0x61, -1],
]);
const opLong1 = 0x8a;
const isNumber = (code: number): boolean => code === 0x4b || code === 0x4d || code === 0x4a || code === opLong1;

/** The template of a dict whose items are the bytes [start, end); null where it stores something or has an unusual form. */
export function templateOf(
  bytes: Buffer,
  start: number,
  end: number,
  items: readonly unknown[],
): PickleTemplate | null {
  if (items.length < leastItems) return null;
  const holes: number[] = [];
  const runs: Buffer[] = [];
  let runStart = start;
  /** Values of the dict so far, and open marks inside the last one. */
  let values = 0;
  let depth = 0;
  for (let at = start; at < end; ) {
    const code = bytes[at];
    const length = code === opLong1 ? 2 + bytes[at + 1] : lengths[code];
    if (length === 0 || at + length > end) return null;
    if (depth === 0) {
      if (isNumber(code) && values % 2 === 1) {
        holes.push(values);
        // A copy, because the template outlives the bytes of its file.
        runs.push(Buffer.from(bytes.subarray(runStart, at)));
        runStart = at + length;
      }
      if (code === opMark) depth++;
      else if (closes.has(code)) return null;
      else values += merges.get(code) ?? 1;
    } else if (code === opMark) depth++;
    else if (closes.has(code)) {
      depth--;
      // APPENDS leaves the list below the mark, TUPLE makes a value.
      if (depth === 0 && code === 0x74) values++;
    }
    at += length;
  }
  if (depth !== 0 || values !== items.length) return null;
  if (holes.some((hole) => typeof items[hole] !== "number")) return null;
  runs.push(Buffer.from(bytes.subarray(runStart, end)));
  return { items, holes, runs };
}

/** Where a match ended, and the numbers it found; module state, because a returned object would cost an allocation. */
export const matched = { end: 0, numbers: [] as number[] };

/** Whether the bytes at `at` have the form of a template; leaves the end and the numbers in `matched`. */
function matches({ runs, holes }: PickleTemplate, bytes: Buffer, at: number): boolean {
  const numbers: number[] = [];
  for (let k = 0; ; k++) {
    const run = runs[k];
    if (at + run.length + 10 > bytes.length) return false;
    for (let i = 0; i < run.length; i++) if (bytes[at + i] !== run[i]) return false;
    at += run.length;
    if (k === holes.length) break;
    const code = bytes[at];
    if (code === 0x4b) {
      numbers.push(bytes[at + 1]);
      at += 2;
    } else if (code === 0x4d) {
      numbers.push(bytes[at + 1] | (bytes[at + 2] << 8));
      at += 3;
    } else if (code === 0x4a) {
      numbers.push(bytes[at + 1] | (bytes[at + 2] << 8) | (bytes[at + 3] << 16) | (bytes[at + 4] << 24));
      at += 5;
    } else if (code === opLong1 && bytes[at + 1] === 8) {
      const low = bytes[at + 2] | (bytes[at + 3] << 8) | (bytes[at + 4] << 16) | (bytes[at + 5] << 24);
      const high = bytes[at + 6] | (bytes[at + 7] << 8) | (bytes[at + 8] << 16) | (bytes[at + 9] << 24);
      numbers.push(high * 2 ** 32 + (low >>> 0));
      at += 10;
    } else if (code === opLong1 && bytes[at + 1] > 0 && bytes[at + 1] < 7) {
      numbers.push(bytes.readIntLE(at + 2, bytes[at + 1]));
      at += 2 + bytes[at + 1];
    } else return false;
  }
  matched.end = at;
  matched.numbers = numbers;
  return true;
}

/** The templates of one pickle. Loops repeat: what followed the last template before is tried first. */
export class PickleTemplates {
  private templates: PickleTemplate[] = [];
  private next: number[] = [];
  private last = -1;
  private hits = 0;
  private misses = 0;

  /** The template that the items at `at` match, or null. */
  find(bytes: Buffer, at: number): PickleTemplate | null {
    if (this.templates.length === 0 || this.misses > mostMisses + this.hits) return null;
    const predicted = this.next[this.last + 1] ?? -1;
    if (predicted >= 0 && matches(this.templates[predicted], bytes, at)) return this.use(predicted);
    for (let i = 0; i < this.templates.length; i++)
      if (i !== predicted && matches(this.templates[i], bytes, at)) return this.use(i);
    this.misses++;
    return null;
  }

  add(template: PickleTemplate): void {
    if (this.templates.length >= mostTemplates) return;
    this.templates.push(template);
    this.use(this.templates.length - 1);
  }

  /** Forgets all: a stored value that templates refer to has changed. */
  clear(): void {
    this.templates = [];
    this.next = [];
    this.last = -1;
  }

  private use(index: number): PickleTemplate {
    this.hits++;
    this.next[this.last + 1] = index;
    this.last = index;
    return this.templates[index];
  }
}
