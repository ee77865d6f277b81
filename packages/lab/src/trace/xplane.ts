// Profiles of JAX and XProf in their binary form (xplane.pb): a protocol buffer of planes (devices), lines (threads, streams)
// and events in picoseconds. They become events of a Chrome trace, in the form that XProf itself exports, for the one reader.
import { readFileSync, statSync } from "node:fs";
import type { TraceStream } from "./stream.js";

/** A field of a message: its number, and a number or bytes. */
interface Field {
  number: number;
  value: bigint;
  bytes: Buffer;
}

const none = Buffer.alloc(0);
const largestFile = 2 ** 31 - 1;
/** Longer names are cut: every event repeats its name. */
const longestName = 4096;

const textOf = (bytes: Buffer): string => bytes.toString("utf8", 0, longestName);

/** The fields of a message. Throws RangeError where the bytes are no message. */
function* fields(message: Buffer): Generator<Field> {
  let at = 0;
  const varint = (): bigint => {
    // Up to 49 bits as a number, which is faster; the rest as a bigint.
    let value = 0;
    let scale = 1;
    for (let i = 0; i < 7; i++, scale *= 128) {
      if (at >= message.length) throw new RangeError("a number is cut off");
      const byte = message[at++];
      value += (byte & 0x7f) * scale;
      if (byte < 0x80) return BigInt(value);
    }
    let large = BigInt(value);
    for (let shift = 49n; shift < 70n; shift += 7n) {
      if (at >= message.length) throw new RangeError("a number is cut off");
      const byte = message[at++];
      large |= BigInt(byte & 0x7f) << shift;
      if (byte < 0x80) return BigInt.asUintN(64, large);
    }
    throw new RangeError("a number has more than ten bytes");
  };
  while (at < message.length) {
    const key = Number(varint());
    const number = key >>> 3;
    const kind = key & 7;
    if (kind === 0) yield { number, value: varint(), bytes: none };
    else if (kind === 2) {
      const length = Number(varint());
      if (at + length > message.length) throw new RangeError("a message is cut off");
      yield { number, value: 0n, bytes: message.subarray(at, at + length) };
      at += length;
    } else if (kind === 1 || kind === 5) {
      const width = kind === 1 ? 8 : 4;
      if (at + width > message.length) throw new RangeError("a number is cut off");
      yield { number, value: 0n, bytes: message.subarray(at, at + width) };
      at += width;
    } else throw new RangeError(`wire type ${kind} does not exist`);
  }
}

/** True for a file name or a beginning of an XSpace: field 1, a message. */
export const isXplane = (file: string): boolean => /\.xplane\.pb$/.test(file);

/** Names by id of a map<int64, metadata>. */
function metadataName(entry: Buffer): [bigint, string] {
  let id = 0n;
  let name = "";
  for (const field of fields(entry)) {
    if (field.number === 1) id = field.value;
    else if (field.number === 2)
      for (const inner of fields(field.bytes)) if (inner.number === 2) name = textOf(inner.bytes);
  }
  return [id, name];
}

/** The arguments of an event that the analyses read. */
const wanted = new Set(["hlo_op", "device_ordinal", "step_num"]);

class Plane {
  name = "";
  readonly lines: Buffer[] = [];
  readonly eventNames = new Map<bigint, string>();
  readonly statNames = new Map<bigint, string>();

  constructor(message: Buffer) {
    for (const { number, bytes } of fields(message)) {
      if (number === 2) this.name = textOf(bytes);
      else if (number === 3) this.lines.push(bytes);
      else if (number === 4 || number === 5) {
        const [id, name] = metadataName(bytes);
        (number === 4 ? this.eventNames : this.statNames).set(id, name);
      }
    }
  }

  stats(message: Buffer): [string, unknown] | null {
    let name: string | undefined;
    let value: unknown = 0;
    for (const field of fields(message)) {
      if (field.number === 1) name = this.statNames.get(field.value);
      else if (field.number === 2 && field.bytes.length === 8) value = field.bytes.readDoubleLE(0);
      else if (field.number === 3) value = Number(field.value);
      else if (field.number === 4) value = Number(BigInt.asIntN(64, field.value));
      else if (field.number === 5) value = textOf(field.bytes);
      else if (field.number === 7) value = this.statNames.get(field.value) ?? "";
    }
    return name !== undefined && wanted.has(name) ? [name, value] : null;
  }
}

/** Picoseconds as nanoseconds; halves go up. */
function nanosecondsOf(picoseconds: bigint): bigint {
  const doubled = picoseconds + 500n;
  return doubled < 0n ? -((999n - doubled) / 1000n) : doubled / 1000n;
}

/** Nanoseconds as decimal microseconds. */
function microseconds(nanoseconds: bigint): string {
  const size = nanoseconds < 0n ? -nanoseconds : nanoseconds;
  return `${nanoseconds < 0n ? "-" : ""}${size / 1000n}.${String(size % 1000n).padStart(3, "0")}`;
}

/** Feeds a profile to a stream. A file that is cut off gives the planes before the cut. */
export function streamXplane(file: string, stream: TraceStream): void {
  const { size } = statSync(file);
  if (size > largestFile) throw new RangeError(`${file} has ${size} bytes; at most ${largestFile} can be read`);
  stream.push(Buffer.from('{"traceEvents":[{"ph":"M","name":"process_sort_index","pid":0,"tid":0}'));
  let pid = 0;
  for (const { number, bytes } of fields(readFileSync(file)))
    if (number === 1) pushPlane(new Plane(bytes), ++pid, stream);
  stream.push(Buffer.from("]}"));
}

function pushPlane(plane: Plane, pid: number, stream: TraceStream): void {
  const emit = (event: object | string): void =>
    stream.push(Buffer.from(`,${typeof event === "string" ? event : JSON.stringify(event)}`));
  emit({ ph: "M", name: "process_name", pid, tid: 0, args: { name: plane.name } });
  plane.lines.forEach((message, tid) => {
    let name = "";
    let displayName = "";
    let origin = 0n;
    const events: Buffer[] = [];
    for (const field of fields(message)) {
      if (field.number === 2) name = textOf(field.bytes);
      else if (field.number === 11) displayName = textOf(field.bytes);
      else if (field.number === 3) origin = BigInt.asIntN(64, field.value);
      else if (field.number === 4) events.push(field.bytes);
    }
    emit({ ph: "M", name: "thread_name", pid, tid, args: { name: displayName || name } });
    for (const event of events) {
      let id = 0n;
      let offset = 0n;
      let duration = 0n;
      const args: Record<string, unknown> = {};
      for (const field of fields(event)) {
        if (field.number === 1) id = field.value;
        else if (field.number === 2) offset = BigInt.asIntN(64, field.value);
        else if (field.number === 3) duration = BigInt.asIntN(64, field.value);
        else if (field.number === 4) {
          const stat = plane.stats(field.bytes);
          if (stat !== null) args[stat[0]] = stat[1];
        }
      }
      // Start and end are rounded each, so that neighbors stay neighbors.
      const begin = origin * 1000n + offset;
      const start = nanosecondsOf(begin);
      const length = nanosecondsOf(begin + duration) - start;
      emit(
        `{"ph":"X","name":${JSON.stringify(plane.eventNames.get(id) ?? "")},"pid":${pid},"tid":${tid},"ts":${microseconds(start)},"dur":${microseconds(length)},"args":${JSON.stringify(args)}}`,
      );
    }
  });
}
