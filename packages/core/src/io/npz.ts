// .npz files: named arrays, each a .npy file in a zip archive, as NumPy's savez and savez_compressed make them.
import { totalmem } from "node:os";
import { checkOptions } from "../graph/index.js";
import { FileError, InputFile, writeAtomically } from "./file.js";
import { type ArraySource, bytesView, type HostArray, loadArray } from "./host.js";
import { readNpyFrom } from "./npy.js";
import { npyHeader } from "./npy-header.js";
import { openEntry, type PlacedEntry, readDirectory } from "./zip.js";
import { ZipWriter } from "./zip-writer.js";

/** Limits for reading .npz archives. @inline */
interface NpzReadOptions {
  /** Maximum number of decompressed bytes; by default the memory of this machine. */
  maxBytes?: number;
}

/** An open .npz archive; arrays are read one by one. */
export interface NpzFile {
  /** Names of the arrays, in the order of the archive. */
  readonly names: readonly string[];
  /** Reads an array. */
  read(name: string): Promise<HostArray>;
  /** Closes the archive. */
  close(): Promise<void>;
}

const suffix = ".npy";

async function readEntry(file: InputFile, entry: PlacedEntry): Promise<HostArray> {
  const source = openEntry(file, entry);
  try {
    const array = await readNpyFrom(source);
    await source.finish();
    return array;
  } finally {
    await source.cancel();
  }
}

function checkSize(path: string, entries: readonly PlacedEntry[], maxBytes = totalmem()): void {
  const total = entries.reduce((sum, entry) => sum + entry.size, 0);
  if (total > maxBytes) {
    const what = entries.length === 1 ? entries[0].name : `its ${entries.length} arrays`;
    throw new FileError(path, `${what} would unfold to ${total} bytes; at most ${maxBytes} are allowed (maxBytes)`);
  }
}

async function openArchive(path: string): Promise<{ file: InputFile; arrays: Map<string, PlacedEntry> }> {
  const file = await InputFile.open(path);
  try {
    const entries = await readDirectory(file);
    // NumPy writes only arrays; other entries are ignored.
    const arrays = entries.filter((entry) => entry.name.endsWith(suffix));
    return { file, arrays: new Map(arrays.map((entry) => [entry.name.slice(0, -suffix.length), entry])) };
  } catch (error) {
    await file.close();
    throw error;
  }
}

/** Opens a .npz archive. */
export async function openNpz(path: string, options: NpzReadOptions = {}): Promise<NpzFile> {
  checkOptions("openNpz", options, ["maxBytes"]);
  const { file, arrays } = await openArchive(path);
  return {
    names: [...arrays.keys()],
    read: async (name) => {
      const entry = arrays.get(name);
      if (entry === undefined)
        throw new FileError(path, `has no array ${JSON.stringify(name)}; it has ${[...arrays.keys()].join(", ")}`);
      checkSize(path, [entry], options.maxBytes);
      return readEntry(file, entry);
    },
    close: () => file.close(),
  };
}

/** Reads all arrays of a .npz archive. */
export async function readNpz(path: string, options: NpzReadOptions = {}): Promise<Record<string, HostArray>> {
  checkOptions("readNpz", options, ["maxBytes"]);
  const { file, arrays } = await openArchive(path);
  try {
    checkSize(path, [...arrays.values()], options.maxBytes);
    const read: [string, HostArray][] = [];
    for (const [name, entry] of arrays) read.push([name, await readEntry(file, entry)]);
    return Object.fromEntries(read);
  } finally {
    await file.close();
  }
}

/** Options of {@link writeNpz}. @inline */
interface NpzWriteOptions {
  /** Compresses the arrays. Off by default, because weights hardly shrink and reading is ten times slower. */
  compress?: boolean;
}

/** Writes a .npz archive. */
export async function writeNpz(
  path: string,
  arrays: Record<string, ArraySource>,
  options: NpzWriteOptions = {},
): Promise<void> {
  checkOptions("writeNpz", options, ["compress"]);
  await writeAtomically(path, async (file) => {
    const zip = new ZipWriter(path, file);
    for (const [name, source] of Object.entries(arrays)) {
      const array = await loadArray(path, name, source);
      await zip.add(
        name + suffix,
        [npyHeader(array.shape, array.dtype), bytesView(array.data)],
        options.compress ?? false,
      );
    }
    await zip.finish();
  });
}
