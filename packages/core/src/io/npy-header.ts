// The header of a .npy file: a Python literal in a fixed frame. It is parsed as data; nothing in it is ever executed.
import { bytesOf, type DType } from "../graph/index.js";
import { type ByteSource, FileError } from "./file.js";
import { claimedBytes } from "./host.js";

export interface NpyHeader {
  /** Dtype of the elements. */
  dtype: DType;
  /** Shape of the array. */
  shape: number[];
  /** Whether the first axis varies fastest. */
  fortranOrder: boolean;
  /** Whether the high byte comes first. */
  bigEndian: boolean;
  /** Bytes of the frame and the header: offset of the elements. */
  length: number;
}

/** NumPy has no bfloat16; arrays of the ml_dtypes package, which JAX uses, are saved as two raw bytes per element. */
const descriptors: Record<DType, string> = {
  bool: "|b1",
  int8: "|i1",
  uint8: "|u1",
  int16: "<i2",
  uint16: "<u2",
  int32: "<i4",
  uint32: "<u4",
  int64: "<i8",
  uint64: "<u8",
  float16: "<f2",
  bfloat16: "<V2",
  float32: "<f4",
  float64: "<f8",
  complex64: "<c8",
  complex128: "<c16",
};
const dtypeByCode = new Map(Object.entries(descriptors).map(([dtype, descr]) => [descr.slice(1), dtype as DType]));

const magic = "\x93NUMPY";
/** NumPy itself stops at 10,000 characters; only structured dtypes, which are refused anyway, come near. */
const maxHeader = 2 ** 16;

type Literal = string | boolean | bigint | Literal[] | Map<string, Literal>;

/** Parses the part of Python's literals that headers are made of: dictionaries, tuples, lists, strings, numbers. */
class LiteralParser {
  private at = 0;
  constructor(private readonly text: string) {}

  parse(): Literal {
    const value = this.value(0);
    this.skipSpace();
    if (this.at !== this.text.length) throw new SyntaxError(`unexpected text at character ${this.at}`);
    return value;
  }

  private skipSpace(): void {
    while (/\s/.test(this.text[this.at] ?? "")) this.at++;
  }

  private take(token: string): boolean {
    this.skipSpace();
    if (!this.text.startsWith(token, this.at)) return false;
    this.at += token.length;
    return true;
  }

  private value(depth: number): Literal {
    if (depth > 8) throw new SyntaxError("nested too deeply");
    if (this.take("{")) return this.dictionary(depth);
    if (this.take("(")) return this.list(")", depth);
    if (this.take("[")) return this.list("]", depth);
    if (this.take("True")) return true;
    if (this.take("False")) return false;
    this.skipSpace();
    const rest = this.text.slice(this.at);
    // Python 2 wrote long integers with an L.
    const match = /^(?:'([^'\\\n]*)'|"([^"\\\n]*)"|(-?\d{1,40})L?)/.exec(rest);
    if (match === null) throw new SyntaxError(`unexpected text at character ${this.at}`);
    this.at += match[0].length;
    return match[3] === undefined ? (match[1] ?? match[2]) : BigInt(match[3]);
  }

  private list(end: string, depth: number): Literal[] {
    const items: Literal[] = [];
    while (!this.take(end)) {
      items.push(this.value(depth + 1));
      if (this.take(",")) continue;
      if (!this.take(end)) throw new SyntaxError(`expected , or ${end} at character ${this.at}`);
      break;
    }
    return items;
  }

  private dictionary(depth: number): Map<string, Literal> {
    const entries = new Map<string, Literal>();
    while (!this.take("}")) {
      const key = this.value(depth + 1);
      if (typeof key !== "string" || entries.has(key)) throw new SyntaxError(`bad key before character ${this.at}`);
      if (!this.take(":")) throw new SyntaxError(`expected : at character ${this.at}`);
      entries.set(key, this.value(depth + 1));
      if (this.take(",")) continue;
      if (!this.take("}")) throw new SyntaxError(`expected , or } at character ${this.at}`);
      break;
    }
    return entries;
  }
}

function parseDescriptor(label: string, descr: Literal | undefined): { dtype: DType; bigEndian: boolean } {
  if (Array.isArray(descr)) throw new FileError(label, "holds records; save each field as an array of its own");
  if (typeof descr !== "string") throw new FileError(label, "its header has no dtype");
  if (/^.?O/.test(descr))
    throw new FileError(label, "holds pickled Python objects, which are never loaded; save numbers instead");
  const match = /^([<>|=]?)([a-zA-Z]\d+)$/.exec(descr);
  const dtype = match === null ? undefined : dtypeByCode.get(match[2]);
  if (match === null || dtype === undefined) {
    const known = [...dtypeByCode.keys()].join(", ");
    throw new FileError(label, `holds elements of type '${descr}'; convert them in NumPy to one of ${known}`);
  }
  return { dtype, bigEndian: match[1] === ">" };
}

function parseShape(label: string, shape: Literal | undefined): number[] {
  if (!Array.isArray(shape)) throw new FileError(label, "its header has no shape");
  return shape.map((d) => {
    if (typeof d !== "bigint") throw new FileError(label, "its shape holds something that is not a whole number");
    if (d < 0n || d > BigInt(Number.MAX_SAFE_INTEGER))
      throw new FileError(label, `its shape holds ${d}, which is not a possible dimension`);
    return Number(d);
  });
}

function parseFields(label: string, text: string): Omit<NpyHeader, "length"> {
  let fields: Literal;
  try {
    fields = new LiteralParser(text).parse();
  } catch (error) {
    throw new FileError(label, `its header cannot be read: ${(error as Error).message}`);
  }
  if (!(fields instanceof Map)) throw new FileError(label, "its header is not a dictionary");
  const fortranOrder = fields.get("fortran_order");
  if (typeof fortranOrder !== "boolean") throw new FileError(label, "its header does not say fortran_order");
  return {
    ...parseDescriptor(label, fields.get("descr")),
    shape: parseShape(label, fields.get("shape")),
    fortranOrder,
  };
}

/** Reads the header from the start of a source, and checks that what it claims is exactly what the source holds. */
export async function readNpyHeader(source: ByteSource): Promise<NpyHeader> {
  const { label, size } = source;
  if (size < 10) throw new FileError(label, `is no .npy file: it has ${size} bytes`);
  const prefix = Buffer.alloc(8);
  await source.readInto(prefix);
  if (prefix.toString("latin1", 0, 6) !== magic)
    throw new FileError(label, "is no .npy file: its first bytes are others");
  const version = prefix[6];
  if (version < 1 || version > 3) throw new FileError(label, `has format version ${version}; versions 1 to 3 are read`);
  const countBytes = version === 1 ? 2 : 4;
  if (size < 8 + countBytes) throw new FileError(label, "truncated: it ends inside its header");
  const count = Buffer.alloc(countBytes);
  await source.readInto(count);
  const textLength = count.readUIntLE(0, countBytes);
  const length = 8 + countBytes + textLength;
  if (length > size)
    throw new FileError(label, `truncated: its header claims ${textLength} bytes and the file has ${size}`);
  if (textLength > maxHeader)
    throw new FileError(label, `has a header of ${textLength} bytes; at most ${maxHeader} are read`);
  const text = Buffer.alloc(textLength);
  await source.readInto(text);
  const fields = parseFields(label, text.toString(version === 3 ? "utf8" : "latin1"));
  const claimed = claimedBytes(label, fields.shape, bytesOf(fields.dtype));
  const held = size - length;
  if (claimed !== held) {
    const shown = `${fields.dtype}[${fields.shape.join(", ")}]`;
    const problem = claimed > held ? "truncated, or its shape is wrong" : "has more bytes than its shape says";
    throw new FileError(label, `${problem}: ${shown} takes ${claimed} bytes and ${held} follow the header`);
  }
  return { ...fields, length };
}

/** The frame and header of an array; the elements follow. */
export function npyHeader(shape: readonly number[], dtype: DType): Uint8Array {
  const tuple = shape.length === 1 ? `(${shape[0]},)` : `(${shape.join(", ")})`;
  const text = `{'descr': '${descriptors[dtype]}', 'fortran_order': False, 'shape': ${tuple}, }`;
  // Elements start at a multiple of 64, so that the file can be mapped.
  const padded = Math.ceil((10 + text.length + 1) / 64) * 64;
  const header = Buffer.alloc(padded, " ");
  header.write(`${magic}\x01\x00`, 0, "latin1");
  header.writeUInt16LE(padded - 10, 8);
  header.write(text, 10, "latin1");
  header[padded - 1] = 0x0a;
  return header;
}
