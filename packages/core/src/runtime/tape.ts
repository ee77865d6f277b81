// The tape: everything that a device is asked to do, as JSON lines (docs/tape.md): functions, data, runs with their
// cause, kernels with times, and what was read. WEFT_TAPE=file turns it on; a tape can be replayed elsewhere.
import { createHash } from "node:crypto";
import { appendFileSync, lstatSync, mkdirSync, rmSync, writeFileSync } from "node:fs";
import type { CompileOptions, Device, DeviceBuffer, Executable } from "../device/index.js";
import { type Aval, type GraphFn, showAval, toPlain, WeftError } from "../graph/index.js";
import { settings } from "../settings/index.js";
import { captureSite } from "./memory.js";

/** Lines that are collected before they are written. */
const batch = 256;
/** Data up to this is written into the line itself. */
const inlineBytes = 4096;

const tapeVersion = 1;

/** Makes a folder. One that is another user's may hold links to files of this user, which would be overwritten. */
function makeOwnFolder(folder: string): void {
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  const { uid, mode } = lstatSync(folder);
  if (uid !== (process.geteuid?.() ?? uid) || (mode & 0o022) !== 0)
    throw new WeftError(
      `the tape's folder ${folder} belongs to another user or can be written by others; give another name (WEFT_TAPE)`,
    );
}

class TapeWriter {
  #lines: string[] = [];
  #timer: NodeJS.Timeout | null = null;
  #dataLeft = settings.tapeMegabytes.get() * 1e6;
  /** Of everything written so far. */
  readonly #hash = createHash("sha256");
  #count = 0;
  /** Nothing more is recorded: the disk is full, or the file system is gone. */
  #broken = false;

  constructor(readonly path: string) {
    const head = {
      type: "tape",
      version: tapeVersion,
      clock: "unix microseconds of each worker",
      node: process.version,
    };
    const text = `${JSON.stringify(head)}\n`;
    const there = lstatSync(path, { throwIfNoEntry: false });
    if (there !== undefined && !there.isFile() && !there.isSymbolicLink())
      throw new WeftError(`the tape ${path} would replace what is not a plain file; give another name (WEFT_TAPE)`);
    try {
      // Tapes contain the program's data. A file that others could read, or had open, is replaced.
      rmSync(path, { force: true });
      writeFileSync(path, text, { mode: 0o600, flag: "wx" });
    } catch (error) {
      throw new WeftError(
        `the tape ${path} cannot be created: ${(error as Error).message}; give another name (WEFT_TAPE)`,
      );
    }
    this.#hash.update(text);
    this.#count = 1;
    process.once("exit", () => this.end());
  }

  write(...records: readonly object[]): void {
    if (this.#broken) return;
    for (const record of records) this.#lines.push(JSON.stringify(record));
    if (this.#lines.length >= batch) this.flush();
    else if (this.#timer === null) {
      this.#timer = setTimeout(() => this.flush(), 200);
      this.#timer.unref();
    }
  }

  /** Where the bytes of a tensor are: in the line, in a file beside the tape, or nowhere when the tape is full. */
  data(bytes: Uint8Array): { sha256: string; base64?: string; file?: string } {
    const sha256 = createHash("sha256").update(bytes).digest("hex");
    if (bytes.byteLength <= inlineBytes) return { sha256, base64: Buffer.from(bytes).toString("base64") };
    if (this.#broken || this.#dataLeft < bytes.byteLength) return { sha256 };
    const folder = `${this.path}.data`;
    const file = `${sha256.slice(0, 32)}.bin`;
    if (lstatSync(`${folder}/${file}`, { throwIfNoEntry: false }) === undefined) {
      this.#dataLeft -= bytes.byteLength;
      makeOwnFolder(folder);
      try {
        writeFileSync(`${folder}/${file}`, bytes, { mode: 0o600, flag: "wx" });
      } catch (error) {
        this.#giveUp(error as Error);
        rmSync(`${folder}/${file}`, { force: true });
        return { sha256 };
      }
    }
    return { sha256, file };
  }

  flush(): void {
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#timer = null;
    if (this.#lines.length > 0) this.#append(false);
  }

  /** Writes what is left. A tape without this last line was cut, or its program was killed. */
  end(): void {
    this.flush();
    if (!this.#broken) this.#append(true);
  }

  /** Appends the collected lines and the checksum of the tape up to there. */
  #append(end: boolean): void {
    const text = this.#lines.map((line) => `${line}\n`).join("");
    this.#count += this.#lines.length;
    this.#lines = [];
    const sha256 = this.#hash.update(text).copy().digest("hex");
    const check = `${JSON.stringify({ type: "check", lines: this.#count++, sha256, end })}\n`;
    this.#hash.update(check);
    try {
      appendFileSync(this.path, text + check);
    } catch (error) {
      this.#giveUp(error as Error);
    }
  }

  /** A program does not end because its recording does. The tape has no last line, so that readers know. */
  #giveUp(error: Error): void {
    if (!this.#broken) process.stderr.write(`weft: the recording of the tape ${this.path} ends: ${error.message}\n`);
    this.#broken = true;
    this.#lines = [];
  }
}

let writer: TapeWriter | null = null;

/** The rank of a process that a launcher started; null for a single process. */
function launchedRank(): number | null {
  const { OMPI_COMM_WORLD_RANK, SLURM_STEP_ID, SLURM_PROCID } = process.env;
  const own = settings.rank.get();
  if (own !== undefined) return own;
  const rank = OMPI_COMM_WORLD_RANK ?? (SLURM_STEP_ID === undefined ? undefined : SLURM_PROCID);
  return rank === undefined || !/^\d+$/.test(rank) ? null : Number(rank);
}

/** The tape of this process: WEFT_TAPE, with the rank behind it where there are several; null without one. */
export function tape(): TapeWriter | null {
  const wanted = settings.tape.get();
  if (wanted === undefined) return null;
  const rank = launchedRank();
  const path = rank === null ? wanted : `${wanted}.${rank}`;
  if (writer === null || writer.path !== path) {
    writer?.end();
    writer = new TapeWriter(path);
  }
  return writer;
}

/** One kernel, as it ran on a device. */
interface InstructionRecord {
  type: "instruction";
  /** The worker's number: its rank for the lab. */
  worker: number;
  workerId: string;
  step: number;
  program: number;
  op: string;
  kind: string;
  startUs: number;
  endUs: number;
  bytes: number;
  flops: number;
  /** The line of the user's program, where known. */
  cause: string | null;
  inputs: number[];
  outputs: number[];
  /** The results as this worker holds them. */
  shapes: string[];
}

interface RunFacts {
  program: number;
  inputs: readonly number[];
  outputs: readonly number[];
  step: number;
  site: string | null;
  worker: number;
  workerId: string;
  /** In performance.now() of this process. */
  begin: number;
  end: number;
}

/** One record per kernel, with measured times if the device has timers. */
export function instructionRecords(
  facts: RunFacts,
  results: readonly Aval[],
  executable: Executable,
): InstructionRecord[] {
  const { kernels, lastTimes } = executable;
  const { program, inputs, outputs, step, site, worker, workerId, begin, end } = facts;
  const startUs = (performance.timeOrigin + begin) * 1e3;
  const common = {
    type: "instruction" as const,
    worker,
    workerId,
    step,
    program,
    cause: site,
    inputs: [...inputs],
    outputs: [...outputs],
    shapes: results.map(showAval),
  };
  const sum = (key: "bytes" | "flops"): number => kernels.reduce((n, k) => n + k[key], 0);
  if (lastTimes === undefined || lastTimes.length !== kernels.length || kernels.length === 0) {
    const name = kernels.length === 1 ? kernels[0].name : "program";
    const [bytes, flops] = [sum("bytes"), sum("flops")];
    return [{ ...common, op: name, kind: "program", startUs, endUs: startUs + (end - begin) * 1e3, bytes, flops }];
  }
  let at = startUs;
  return kernels.map((kernel, i) => {
    const { name: op, kind, bytes, flops } = kernel;
    const record = { ...common, op, kind, startUs: at, endUs: at + lastTimes[i] * 1e6, bytes, flops };
    at = record.endUs;
    return record;
  });
}

const recorded = new WeakMap<Device, Device>();

/** The device itself, or a proxy that also records every call to the tape. */
export function taped(device: Device): Device {
  const out = tape();
  if (out === null) return device;
  const cached = recorded.get(device);
  if (cached !== undefined) return cached;
  const made = record(device, out);
  recorded.set(device, made);
  recorded.set(made, made);
  return made;
}

function record(device: Device, out: TapeWriter): Device {
  const ids = new WeakMap<DeviceBuffer, number>();
  let lastId = 0;
  let programs = 0;
  let steps = 0;
  const idOf = (buffer: DeviceBuffer): number => {
    let id = ids.get(buffer);
    if (id === undefined) {
      id = ++lastId;
      ids.set(buffer, id);
    }
    return id;
  };
  // Clusters time their workers themselves; what they call instructions comes from there.
  const remote = device.traits.remote;
  const read = (buffer: DeviceBuffer, bytes: Uint8Array): void =>
    out.write({ type: "fetch", id: idOf(buffer), ...out.data(bytes) });
  /** An executable whose runs are recorded. */
  const recordRuns = (fn: GraphFn, options: CompileOptions, inner: Executable): Executable => {
    const program = ++programs;
    out.write({ type: "program", program, donated: options.donated ?? [], graph: toPlain(fn) });
    const run = (inputs: readonly DeviceBuffer[]): DeviceBuffer[] => {
      if (!remote) device.timing = true;
      const step = steps++;
      const cause = captureSite()();
      const before = inputs.map(idOf);
      const begin = performance.now();
      const results = inner.run(inputs);
      if (!remote) device.synchronize();
      const end = performance.now();
      // Donated memory holds a result now.
      for (const buffer of results) ids.delete(buffer);
      const outputs = results.map(idOf);
      out.write({ type: "run", step, program, inputs: before, outputs, cause });
      const facts = {
        program,
        inputs: before,
        outputs,
        step,
        site: cause,
        worker: launchedRank() ?? 0,
        workerId: device.name,
        begin,
        end,
      };
      if (!remote) out.write(...instructionRecords(facts, fn.outputs, inner));
      return results;
    };
    const { kernels, scratchBytes, aliases } = inner;
    return {
      kernels,
      scratchBytes,
      aliases,
      run,
      release: () => inner.release(),
      get lastTimes() {
        return inner.lastTimes;
      },
    };
  };
  const own: Partial<Device> = {
    upload(buffer, from) {
      device.upload(buffer, from);
      out.write({ type: "data", id: idOf(buffer), bytes: from.byteLength, ...out.data(from) });
    },
    download(buffer, into) {
      device.download(buffer, into);
      read(buffer, into);
    },
    free(buffer) {
      if (ids.has(buffer)) out.write({ type: "free", id: idOf(buffer) });
      ids.delete(buffer);
      device.free(buffer);
    },
    compile: (fn, options) => recordRuns(fn, options, device.compile(fn, options)),
  };
  // Calls in the background no longer know the line of the program that issued them.
  own.compileAsync = undefined;
  // Padding is recorded as a program, which a replay knows how to run.
  own.resize = undefined;
  if (device.fetch !== undefined)
    own.fetch = (buffer) => {
      const bytes = device.fetch!(buffer);
      if (bytes !== null) read(buffer, new Uint8Array(bytes));
      return bytes;
    };
  if (device.fetchAsync !== undefined)
    own.fetchAsync = (buffer) => {
      const id = idOf(buffer);
      const coming = device.fetchAsync!(buffer);
      if (coming === null) return null;
      return coming.then((bytes) => {
        out.write({ type: "fetch", id, ...out.data(new Uint8Array(bytes)) });
        return bytes;
      });
    };
  // Methods use private fields, so they must be called on the device itself.
  return new Proxy(device, {
    get(target, key) {
      if (Object.hasOwn(own, key)) return own[key as keyof Device];
      const value = Reflect.get(target, key, target) as unknown;
      return typeof value === "function" ? value.bind(target) : value;
    },
    set: (target, key, value) => Reflect.set(target, key, value, target),
  });
}
