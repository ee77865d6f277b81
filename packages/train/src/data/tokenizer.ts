// Tokenizers: from bytes of text to ids; id 0 is padding and never a token. The hash tokenizer needs no file:
// lower-case, split at white space, FNV-1a over the code points of a word, as `lower().split()` and a loop over `ord`
// do in Python.
import { createHash } from "node:crypto";
import { readBytes } from "@weft/formats/file";
import { DataError, type TextTable } from "./table.js";

/** Converts text to ids. */
export interface Tokenizer {
  /** Identifies the tokenizer: part of the name of a token file. */
  readonly identity: string;
  /** Ids are below this. */
  readonly vocabulary: number;
  /** Appends the ids of bytes[start, end) to `out`. */
  encode(bytes: Buffer, start: number, end: number, out: IdList): void;
}

/** A growing list of ids. */
export class IdList {
  /** The ids, followed by free capacity. */
  ids = new Int32Array(1 << 16);
  /** Number of ids. */
  length = 0;
  /** Ensures capacity for more ids. */
  reserve(more: number): void {
    if (this.length + more <= this.ids.length) return;
    const larger = new Int32Array(Math.max(this.length + more, 2 * this.ids.length));
    larger.set(this.ids);
    this.ids = larger;
  }
  /** Appends an id. */
  push(id: number): void {
    this.reserve(1);
    this.ids[this.length++] = id;
  }
}

const offset = 2166136261 | 0;
const prime = 16777619;

/** Lower-cased byte of an ASCII character; 0 for white space; 255 for bytes above ASCII. */
const ascii = Uint8Array.from({ length: 256 }, (_, c) => {
  if (c >= 128) return 255;
  if (c === 32 || (c >= 9 && c <= 13) || (c >= 28 && c <= 31)) return 0;
  return c >= 65 && c <= 90 ? c + 32 : c;
});
// NUL is a word character and must not be taken for white space.
const nul = 254;
ascii[0] = nul;

const wideSpaces: ReadonlySet<number> = new Set([
  0x85,
  0xa0,
  0x1680,
  0x2028,
  0x2029,
  0x202f,
  0x205f,
  0x3000,
  ...Array.from({ length: 11 }, (_, i) => 0x2000 + i),
]);

/** The only letter whose lower case depends on its neighbors. */
const sigma = 0x3a3;
const lowered = new Map<number, readonly number[]>();

function lowerCase(point: number): readonly number[] {
  let found = lowered.get(point);
  if (found === undefined) {
    found = Array.from(String.fromCodePoint(point).toLowerCase(), (c) => c.codePointAt(0) as number);
    lowered.set(point, found);
  }
  return found;
}

/** The code point at a byte and its length in bytes, as point * 8 + length; invalid bytes give U+FFFD each. */
function decode(bytes: Buffer, at: number, end: number): number {
  const first = bytes[at];
  const more = first >= 0xf0 && first < 0xf5 ? 3 : first >= 0xe0 ? 2 : first >= 0xc2 ? 1 : 0;
  const damaged = 0xfffd * 8 + 1;
  if (more === 0 || first >= 0xf5 || at + more >= end) return damaged;
  let point = first & (0x3f >> more);
  for (let i = 1; i <= more; i++) {
    const next = bytes[at + i];
    if ((next & 0xc0) !== 0x80) return damaged;
    point = point * 64 + (next & 0x3f);
  }
  const least = [0, 0x80, 0x800, 0x10000][more];
  if (point < least || point > 0x10ffff || (point >= 0xd800 && point < 0xe000)) return damaged;
  return point * 8 + more + 1;
}

const fold = (hash: number, point: number): number => Math.imul(hash ^ point, prime);

/** Lower-cases a word with a sigma by the language's rules. */
function hashWord(word: string): number {
  let hash = offset;
  for (const c of word.toLowerCase()) hash = fold(hash, c.codePointAt(0) as number);
  return hash;
}

/** A tokenizer that hashes words; it needs no file. */
export function hashTokenizer(vocabulary: number): Tokenizer {
  if (!Number.isInteger(vocabulary) || vocabulary < 2)
    throw new DataError(`a hash vocabulary needs at least 2 ids (0 is padding), got ${vocabulary}`);
  const buckets = vocabulary - 1;
  return {
    identity: `hash fnv1a ${vocabulary}`,
    vocabulary,
    encode(bytes, start, end, out) {
      // Upper bound: a word has at least one byte and a separator.
      out.reserve((end - start + 1) >> 1);
      const { ids } = out;
      let { length } = out;
      for (let at = start; at < end; ) {
        const wordStart = at;
        let hash = offset;
        let c = 0;
        // Inner loop: ASCII letters, digits and punctuation.
        while (at < end && (c = ascii[bytes[at]]) < nul && c !== 0) {
          hash = Math.imul(hash ^ c, prime);
          at++;
        }
        if (at < end && c >= nul) {
          const word = wideWord(bytes, at, end, hash, wordStart);
          at = word.end;
          hash = word.hash;
          if (at > wordStart) ids[length++] = 1 + ((hash >>> 0) % buckets);
          at += word.space;
          continue;
        }
        if (at > wordStart) ids[length++] = 1 + ((hash >>> 0) % buckets);
        at++;
      }
      out.length = length;
    },
  };
}

/** Continues a word with non-ASCII characters: its hash, its end, and the width of the following space. */
function wideWord(
  bytes: Buffer,
  from: number,
  end: number,
  begun: number,
  wordStart: number,
): { hash: number; end: number; space: number } {
  let hash = begun;
  let at = from;
  let space = 0;
  let special = false;
  while (at < end) {
    const c = ascii[bytes[at]];
    if (c === 0) {
      space = 1;
      break;
    }
    if (c !== 255) {
      hash = fold(hash, c === nul ? 0 : c);
      at++;
      continue;
    }
    const decoded = decode(bytes, at, end);
    const point = Math.floor(decoded / 8);
    if (wideSpaces.has(point)) {
      space = decoded % 8;
      break;
    }
    if (point === sigma) special = true;
    for (const lower of lowerCase(point)) hash = fold(hash, lower);
    at += decoded % 8;
  }
  return { hash: special ? hashWord(bytes.toString("utf8", wordStart, at)) : hash, end: at, space };
}

/** WordPiece, BPE or Unigram from a `tokenizer.json`. Its ids are shifted by one, because 0 is padding. */
export async function fileTokenizer(path: string): Promise<Tokenizer> {
  const { tokenizerOf } = await import("@weft/models");
  const raw = readBytes(path, 256 << 20);
  let made: ReturnType<typeof tokenizerOf>;
  try {
    made = tokenizerOf(JSON.parse(raw.toString("utf8")), path);
  } catch (error) {
    throw new DataError(
      `${path}: not a tokenizer file (tokenizer.json of a WordPiece, BPE or Unigram model): ${(error as Error).message}`,
    );
  }
  return {
    // The number changes with the rules by which texts are cut: tokens on disk are those of the rules that made them.
    identity: `file 2 ${createHash("sha256").update(raw).digest("hex")}`,
    vocabulary: made.vocabulary + 1,
    encode(bytes, start, end, out) {
      for (const id of made.encode(bytes.toString("utf8", start, end)).ids) out.push(id + 1);
    },
  };
}

/** `hash`, or the path of a tokenizer file. */
export async function makeTokenizer(kind: string, vocabulary: number): Promise<Tokenizer> {
  if (kind === "hash") return hashTokenizer(vocabulary);
  const made = await fileTokenizer(kind);
  if (made.vocabulary > vocabulary)
    throw new DataError(
      `model.vocab_size ${vocabulary} is too small for the tokenizer ${kind}, which makes ids up to ${made.vocabulary - 1}; set vocab_size: ${made.vocabulary}`,
    );
  return made;
}

/** Ids of a whole table, and where each row starts. */
export function tokenize(
  table: TextTable,
  tokenizer: Tokenizer,
  onRows: (done: number) => void = () => {},
): { ids: Int32Array; offsets: Uint32Array } {
  const out = new IdList();
  const offsets = new Uint32Array(table.rows + 1);
  for (let row = 0; row < table.rows; row++) {
    tokenizer.encode(table.bytes, table.offsets[row], table.offsets[row + 1], out);
    offsets[row + 1] = out.length;
    if ((row + 1) % 1000 === 0) onRows(row + 1);
  }
  return { ids: out.ids.subarray(0, out.length), offsets };
}
