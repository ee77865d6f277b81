// Replays a tape: runs the recorded functions on the recorded data, on any device or cluster, and compares every
// fetched result with the recorded one.
import { checkBuffers, type Device, type DeviceBuffer, type Executable } from "@weft/core/internal/device";
import {
  bfloat16Value,
  bytesOf,
  type DType,
  float16Value,
  type GraphFn,
  numel,
  storageView,
  WeftError,
} from "@weft/core/internal/graph";
import { decodeFunction } from "@weft/core/internal/ops";
import { type CustomKernelSupport, inlineCustom } from "@weft/core/internal/transform";
import { bytesOfLine, type TapeFile } from "./tape-file.js";

/** Result of a replay. */
export interface ReplayResult {
  /** Number of runs that were repeated. */
  runs: number;
  /** One result per fetch: its difference from the recorded one, relative to the largest element. */
  results: { step: number; what: string; difference: number; ok: boolean }[];
  /** Fetches whose recorded bytes are not on the tape. */
  unchecked: number;
}

/** Relative differences allowed between devices and device counts. */
const tolerance: Partial<Record<DType, number>> = {
  float16: 2e-2,
  bfloat16: 5e-2,
  float32: 2e-4,
  complex64: 2e-4,
  float64: 1e-10,
  complex128: 1e-10,
};

/** Runs a tape on a device and compares every fetched result. */
export async function replay(tape: TapeFile, device: Device): Promise<ReplayResult> {
  const programs = new Map<number, { fn: GraphFn; executable: Executable }>();
  const buffers = new Map<number, DeviceBuffer>();
  const avals = new Map<number, { dtype: DType; shape: readonly number[]; step: number }>();
  const result: ReplayResult = { runs: 0, results: [], unchecked: 0 };
  const need = (id: number): DeviceBuffer => {
    const buffer = buffers.get(id);
    if (buffer === undefined)
      throw new WeftError(
        `replay: tensor ${id} is not on the tape; its data exceeded the recording limit (WEFT_TAPE_MB)`,
      );
    return buffer;
  };
  for (const line of tape.lines) {
    if (line.type === "program") {
      const fn = decodeFunction(line.graph);
      // A custom op with a kernel on one device is inlined on another; sharding needs its rule, which is not
      // serialized.
      const supported: CustomKernelSupport = (node) =>
        !device.traits.remote && (device.supportsCustomKernel?.(node) ?? false);
      // Nothing is donated: a replay keeps every buffer that the tape did not free.
      programs.set(line.program, { fn, executable: device.compile(inlineCustom(fn, supported), {}) });
    } else if (line.type === "data") {
      const bytes = bytesOfLine(tape, line);
      if (bytes === null) continue;
      const buffer = device.allocate(bytes.byteLength);
      device.upload(buffer, bytes);
      buffers.set(line.id, buffer);
    } else if (line.type === "run") {
      const { fn, executable } = programs.get(line.program) ?? missing(line.program);
      const given = line.inputs.map(need);
      checkBuffers(fn, given);
      if (line.outputs.length !== fn.outputs.length)
        throw new WeftError(`replay: a run names ${line.outputs.length} results of ${fn.outputs.length}`);
      const made = executable.run(given);
      result.runs++;
      made.forEach((buffer, i) => {
        buffers.set(line.outputs[i], buffer);
        const { dtype, shape } = fn.outputs[i];
        avals.set(line.outputs[i], { dtype, shape, step: line.step });
      });
    } else if (line.type === "fetch") {
      const expected = bytesOfLine(tape, line);
      const aval = avals.get(line.id);
      if (expected === null || aval === undefined) {
        result.unchecked++;
        continue;
      }
      const got = await readBuffer(device, need(line.id), numel(aval.shape) * bytesOf(aval.dtype));
      const difference = distance(aval.dtype, got, expected);
      const ok = difference <= (tolerance[aval.dtype] ?? 0);
      result.results.push({ step: aval.step, what: `${aval.dtype}[${aval.shape.join(", ")}]`, difference, ok });
    } else if (line.type === "free") {
      const buffer = buffers.get(line.id);
      buffers.delete(line.id);
      if (buffer !== undefined) device.free(buffer);
    }
  }
  for (const buffer of buffers.values()) device.free(buffer);
  return result;
}

function missing(program: number): never {
  throw new WeftError(`replay: program ${program} is not on the tape`);
}

async function readBuffer(device: Device, buffer: DeviceBuffer, bytes: number): Promise<Uint8Array> {
  const coming = device.fetchAsync?.(buffer) ?? null;
  if (coming !== null) return new Uint8Array(await coming);
  const into = new Uint8Array(bytes);
  device.download(buffer, into);
  return into;
}

function numbers(dtype: DType, bytes: Uint8Array): Float64Array {
  const raw = storageView(dtype, bytes.slice().buffer);
  const value = dtype === "float16" ? float16Value : dtype === "bfloat16" ? bfloat16Value : Number;
  return Float64Array.from(raw as ArrayLike<number>, (x) => value(x));
}

/** Largest difference relative to the largest recorded element; NaN if exactly one value is NaN. */
function distance(dtype: DType, got: Uint8Array, expected: Uint8Array): number {
  if (got.byteLength !== expected.byteLength) return Number.POSITIVE_INFINITY;
  const [a, b] = [got, expected].map((bytes) => numbers(dtype, bytes));
  let [worst, scale] = [0, 0];
  for (let i = 0; i < a.length; i++) {
    if (Object.is(a[i], b[i])) continue;
    worst = Math.max(worst, Math.abs(a[i] - b[i]));
    if (Number.isNaN(a[i]) !== Number.isNaN(b[i])) return Number.NaN;
  }
  for (const x of b) if (Number.isFinite(x)) scale = Math.max(scale, Math.abs(x));
  return worst === 0 ? 0 : worst / (scale || 1);
}
