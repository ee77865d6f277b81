// .safetensors files: a JSON header that places every tensor, then their bytes without gaps.
import { bytesOf, type DType, numel, type Shape } from "../graph/index.js";
import { FileError, InputFile, writeAtomically } from "./file.js";
import {
  type ArraySource,
  allocate,
  byteCount,
  bytesView,
  claimedBytes,
  type HostArray,
  loadArray,
  normalizeBool,
} from "./host.js";

/** The format's names for our dtypes; complex128 has none. */
const codes: Partial<Record<DType, string>> = {
  bool: "BOOL",
  int8: "I8",
  uint8: "U8",
  int16: "I16",
  uint16: "U16",
  int32: "I32",
  uint32: "U32",
  int64: "I64",
  uint64: "U64",
  float16: "F16",
  bfloat16: "BF16",
  float32: "F32",
  float64: "F64",
  complex64: "C64",
};
const dtypeByCode = new Map(Object.entries(codes).map(([dtype, code]) => [code, dtype as DType]));

/** The format's own limit on its header. */
const maxHeader = 100_000_000;
const metadataKey = "__metadata__";

interface Placed {
  /** The format's name of the dtype, which Weft may not support. */
  code: string;
  shape: number[];
  /** Bytes within the data section. */
  start: number;
  end: number;
}

/** An open .safetensors file; tensors are read one by one. */
export interface SafetensorsFile {
  /** Names of the tensors. */
  readonly names: readonly string[];
  /** Strings that the writer stored beside the tensors. */
  readonly metadata: Readonly<Record<string, string>>;
  /** Shape and dtype without reading the data; the dtype is null if Weft does not support it. */
  info(name: string): { shape: Shape; dtype: DType | null };
  /** Reads a tensor. */
  read(name: string): Promise<HostArray>;
  /** Closes the file. */
  close(): Promise<void>;
}

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" && value !== null && !Array.isArray(value);
const isIndexArray = (value: unknown): value is number[] =>
  Array.isArray(value) && value.every((n) => Number.isSafeInteger(n) && (n as number) >= 0);

function parseTensor(label: string, entry: unknown, dataBytes: number): Placed {
  if (!isObject(entry) || typeof entry.dtype !== "string") throw new FileError(label, "its header entry has no dtype");
  if (!isIndexArray(entry.shape))
    throw new FileError(label, `its shape ${JSON.stringify(entry.shape)} is not a list of possible dimensions`);
  const offsets = entry.data_offsets;
  if (!isIndexArray(offsets) || offsets.length !== 2 || offsets[0] > offsets[1])
    throw new FileError(label, `its data_offsets ${JSON.stringify(offsets)} are not a range`);
  const [start, end] = offsets;
  if (end > dataBytes)
    throw new FileError(label, `claims bytes ${start} to ${end} of ${dataBytes}; is the file truncated?`);
  const dtype = dtypeByCode.get(entry.dtype);
  if (dtype !== undefined) {
    const claimed = claimedBytes(label, entry.shape, bytesOf(dtype));
    if (claimed !== end - start)
      throw new FileError(
        label,
        `${entry.dtype}[${entry.shape.join(", ")}] takes ${claimed} bytes and has ${end - start}`,
      );
  }
  return { code: entry.dtype, shape: entry.shape, start, end };
}

function parseMetadata(path: string, value: unknown): Record<string, string> {
  if (value === undefined) return {};
  if (!isObject(value) || !Object.values(value).every((v) => typeof v === "string"))
    throw new FileError(path, "its metadata is not a map from strings to strings");
  return value as Record<string, string>;
}

/** The tensors must fill the data section: an overlap or a gap means that some offset is wrong. */
function checkFilled(path: string, tensors: ReadonlyMap<string, Placed>, dataBytes: number): void {
  const order = [...tensors].sort(([, a], [, b]) => a.start - b.start || a.end - b.end);
  let at = 0;
  for (const [name, { start, end }] of order) {
    if (start !== at)
      throw new FileError(
        path,
        `tensor ${name} starts at byte ${start} of the data, ${start < at ? "inside the one before" : "after a gap from"} ${at}`,
      );
    at = end;
  }
  if (at !== dataBytes) throw new FileError(path, `has ${dataBytes} bytes of data and tensors for ${at}`);
}

interface Header {
  tensors: Map<string, Placed>;
  metadata: Record<string, string>;
  /** Offset of the data section. */
  dataStart: number;
}

async function readHeader(file: InputFile): Promise<Header> {
  const { path, size } = file;
  if (size < 8) throw new FileError(path, `is no .safetensors file: it has ${size} bytes`);
  const claimed = (await file.read(0, 8, "its header length")).readBigUInt64LE(0);
  if (claimed > BigInt(size - 8))
    throw new FileError(path, `truncated or no .safetensors file: its header claims ${claimed} bytes of ${size}`);
  if (claimed > BigInt(maxHeader))
    throw new FileError(path, `has a header of ${claimed} bytes; at most ${maxHeader} are read`);
  const length = Number(claimed);
  const bytes = await file.read(8, length, "its header");
  let parsed: unknown;
  try {
    parsed = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes));
  } catch (error) {
    throw new FileError(path, `its header is not JSON: ${(error as Error).message}`);
  }
  if (!isObject(parsed)) throw new FileError(path, "its header is not a JSON object");
  const dataStart = 8 + length;
  const tensors = new Map<string, Placed>();
  for (const [name, entry] of Object.entries(parsed)) {
    if (name !== metadataKey) tensors.set(name, parseTensor(`${path}: tensor ${name}`, entry, size - dataStart));
  }
  checkFilled(path, tensors, size - dataStart);
  return { tensors, metadata: parseMetadata(path, parsed[metadataKey]), dataStart };
}

async function readTensor(file: InputFile, header: Header, name: string): Promise<HostArray> {
  const { code, shape, start } = placed(file.path, header, name);
  const label = `${file.path}: tensor ${name}`;
  const dtype = dtypeByCode.get(code);
  if (dtype === undefined)
    throw new FileError(
      label,
      `has the dtype ${code}, which Weft lacks; it reads ${[...dtypeByCode.keys()].join(", ")}`,
    );
  const data = allocate(label, dtype, numel(shape));
  await file.readInto(bytesView(data), header.dataStart + start);
  normalizeBool(dtype, data);
  return { shape, dtype, data };
}

function placed(path: string, header: Header, name: string): Placed {
  const tensor = header.tensors.get(name);
  if (tensor !== undefined) return tensor;
  const some = [...header.tensors.keys()].slice(0, 8).join(", ");
  throw new FileError(path, `has no tensor ${JSON.stringify(name)}; it has ${header.tensors.size}: ${some}`);
}

/** Opens a .safetensors file. */
export async function openSafetensors(path: string): Promise<SafetensorsFile> {
  const file = await InputFile.open(path);
  let header: Header;
  try {
    header = await readHeader(file);
  } catch (error) {
    await file.close();
    throw error;
  }
  return {
    names: [...header.tensors.keys()],
    metadata: header.metadata,
    info: (name) => {
      const { shape, code } = placed(path, header, name);
      return { shape, dtype: dtypeByCode.get(code) ?? null };
    },
    read: (name) => readTensor(file, header, name),
    close: () => file.close(),
  };
}

/** Reads all tensors of a .safetensors file. */
export async function readSafetensors(path: string): Promise<Record<string, HostArray>> {
  const file = await openSafetensors(path);
  try {
    const read: [string, HostArray][] = [];
    for (const name of file.names) read.push([name, await file.read(name)]);
    return Object.fromEntries(read);
  } finally {
    await file.close();
  }
}

/** Writes a .safetensors file, one tensor at a time. Lazy arrays are loaded when they are written. */
export async function writeSafetensors(
  path: string,
  tensors: Record<string, ArraySource>,
  metadata?: Record<string, string>,
): Promise<void> {
  // Wide elements first, so that every tensor starts at a multiple of its element size.
  const order = Object.entries(tensors).sort(
    ([nameA, a], [nameB, b]) => bytesOf(b.dtype) - bytesOf(a.dtype) || (nameA < nameB ? -1 : 1),
  );
  const entries: [string, unknown][] = metadata === undefined ? [] : [[metadataKey, parseMetadata(path, metadata)]];
  let at = 0;
  for (const [name, source] of order) {
    if (name === metadataKey) throw new FileError(path, `no tensor can be named ${metadataKey}`);
    const code = codes[source.dtype];
    if (code === undefined)
      throw new FileError(path, `${name} is ${source.dtype}, which the format lacks; write its parts, or a .npz file`);
    const end = at + byteCount(path, name, source);
    entries.push([name, { dtype: code, shape: source.shape, data_offsets: [at, end] }]);
    at = end;
  }
  const json = Buffer.from(JSON.stringify(Object.fromEntries(entries)), "utf8");
  const header = Buffer.alloc(8 + Math.ceil(json.length / 8) * 8, " ");
  header.writeBigUInt64LE(BigInt(header.length - 8), 0);
  json.copy(header, 8);
  if (header.length - 8 > maxHeader)
    throw new FileError(path, `${order.length} tensors make a header of ${header.length} bytes`);
  await writeAtomically(path, async (file) => {
    await file.write(header);
    for (const [name, source] of order) await file.write(bytesView((await loadArray(path, name, source)).data));
  });
}
