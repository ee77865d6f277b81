// Token files: a split tokenized once, stored under a hash of its content and the tokenizer, and mapped into memory by
// every process. Written atomically; a damaged one is rebuilt.
import { createHash, randomBytes } from "node:crypto";
import { closeSync, existsSync, fsyncSync, mkdirSync, openSync, renameSync, rmSync, writeSync } from "node:fs";
import { join } from "node:path";
import { crc32 } from "node:zlib";
import { type DatasetSource, dataHome, infoOf } from "./datasets.js";
import { mapFile } from "./map-file.js";
import { DataError } from "./table.js";
import { type Tokenizer, tokenize } from "./tokenizer.js";

const magic = "WEFTTOK1";
/** Offset of the arrays; before it is the JSON header, padded. */
const headerBytes = 512;

/** A tokenized split. */
export interface TokenSet {
  /** Name of the data set. */
  readonly dataset: string;
  /** Names of the classes. */
  readonly classes: readonly string[];
  /** Number of rows. */
  readonly rows: number;
  /** Class of each row. */
  readonly labels: Int32Array;
  /** Row i is ids[offsets[i]] to ids[offsets[i + 1]]. */
  readonly offsets: Uint32Array;
  /** Token ids of all rows, one after the other. */
  readonly ids: Int32Array;
  /** Number of token ids. */
  readonly vocabulary: number;
  /** Content key: the same texts with the same tokenizer. */
  readonly key: string;
  /** The file that other processes and threads map. */
  readonly file: string;
}

interface Header {
  dataset: string;
  rows: number;
  tokens: number;
  vocabulary: number;
  key: string;
  crc: number;
}

/** Called while texts are tokenized; the command line shows progress. */
export const tokenizeListeners = new Set<(what: string, done: number, total: number) => void>();

/** Opens the token file of a split; creates it if needed. */
export async function openTokens(source: DatasetSource, tokenizer: Tokenizer, home = dataHome()): Promise<TokenSet> {
  const key = createHash("sha256").update(`${magic}|${source.sha256}|${tokenizer.identity}`).digest("hex").slice(0, 32);
  const folder = join(home, "tokens");
  const file = join(folder, `${source.dataset}-${source.split}-${key}.tok`);
  const known = existsSync(file) ? readTokens(file) : null;
  const named = (set: TokenSet): TokenSet => (source.classes === undefined ? set : { ...set, classes: source.classes });
  if (known !== null && known.key === key) return named(known);
  const table = await source.read();
  const what = `tokenizing ${source.dataset} ${source.split}`;
  const { ids, offsets } = tokenize(table, tokenizer, (done) => {
    for (const listener of tokenizeListeners) listener(what, done, table.rows);
  });
  mkdirSync(folder, { recursive: true });
  const header = {
    dataset: source.dataset,
    rows: table.rows,
    tokens: ids.length,
    vocabulary: tokenizer.vocabulary,
    key,
  };
  writeTokens(file, header, [table.labels, offsets, ids]);
  const made = readTokens(file);
  if (made === null) throw new DataError(`${file}: could not be read back after it was written; is the disk in order?`);
  return named(made);
}

const bytesOf = (array: Int32Array | Uint32Array): Uint8Array =>
  new Uint8Array(array.buffer, array.byteOffset, array.byteLength);

export function writeTokens(
  file: string,
  header: Omit<Header, "crc">,
  parts: readonly (Int32Array | Uint32Array)[],
): void {
  const crc = parts.reduce((sum, part) => crc32(bytesOf(part), sum), 0);
  const head = Buffer.alloc(headerBytes, " ");
  head.write(magic, 0, "latin1");
  head.write(JSON.stringify({ ...header, crc }), magic.length, "utf8");
  // Several ranks may do this at once: each writes its own temporary file, and the last rename wins with the same
  // bytes.
  const temporary = `${file}.${process.pid}.${randomBytes(4).toString("hex")}.tmp`;
  const fd = openSync(temporary, "wx");
  try {
    for (const bytes of [head, ...parts.map(bytesOf)])
      for (let done = 0; done < bytes.length; )
        done += writeSync(fd, bytes, done, Math.min(1 << 26, bytes.length - done));
    fsyncSync(fd);
    closeSync(fd);
    renameSync(temporary, file);
  } catch (error) {
    rmSync(temporary, { force: true });
    throw error;
  }
}

/** Reads a token file; null if it is damaged. */
export function readTokens(file: string): TokenSet | null {
  const bytes = mapFile(file);
  if (bytes.byteLength < headerBytes) return null;
  const head = Buffer.from(bytes, 0, headerBytes).toString("utf8");
  if (!head.startsWith(magic)) return null;
  let header: Header;
  try {
    header = JSON.parse(head.slice(magic.length)) as Header;
  } catch {
    return null;
  }
  const { rows, tokens } = header;
  if (bytes.byteLength !== headerBytes + 4 * (rows + rows + 1 + tokens)) return null;
  if (crc32(new Uint8Array(bytes, headerBytes)) !== header.crc) return null;
  const labels = new Int32Array(bytes, headerBytes, rows);
  const offsets = new Uint32Array(bytes, headerBytes + 4 * rows, rows + 1);
  const ids = new Int32Array(bytes, headerBytes + 4 * (2 * rows + 1), tokens);
  const { dataset, vocabulary, key } = header;
  return { dataset, classes: infoOf(dataset)?.classes ?? [], rows, labels, offsets, ids, vocabulary, key, file };
}

/** The first rows of a set, for short runs. */
export function limitRows(set: TokenSet, rows: number | undefined): TokenSet {
  if (rows === undefined || rows >= set.rows) return set;
  return { ...set, rows, labels: set.labels.subarray(0, rows), offsets: set.offsets.subarray(0, rows + 1) };
}
