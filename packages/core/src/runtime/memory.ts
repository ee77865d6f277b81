// Ownership of tensor memory. A buffer lives as long as its TensorValue is reachable. The garbage collector frees what the
// program does not; under memory pressure it is invoked explicitly, also in synchronous loops.
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { collectNow, type Device, type DeviceBuffer, OutOfMemoryError } from "../device/index.js";
import { type Aval, bytesOf, type NodeValue, numel, showAval, WeftError } from "../graph/index.js";
import { settings } from "../settings/index.js";

type Ending = "disposed" | "donated";

/** The value of a computed tensor: memory on a device, owned. */
export class TensorValue implements NodeValue {
  /** Uncomputed nodes that will read the value. */
  #readers = 0;
  #buffer: DeviceBuffer | null;
  readonly id: number;
  /** How the user released it; it is freed when no pending work reads it. */
  #ended: Ending | null = null;

  constructor(
    readonly device: Device,
    buffer: DeviceBuffer,
    readonly aval: Aval,
    site: string | null,
  ) {
    this.#buffer = buffer;
    this.id = memoryManager.register(this, device, buffer, aval, site);
  }

  /** Throws if the user has released it. */
  assertUsable(): void {
    if (this.#ended !== null || this.#buffer === null) throw this.#gone();
  }

  #gone(): WeftError {
    const remedy =
      this.#ended === "donated"
        ? "use what the jitted function returned instead, or do not donate it"
        : "use it before it is disposed (or its scope ends), or return it from the scope";
    return new WeftError(`this ${showAval(this.aval)} tensor was ${this.#ended ?? "disposed"}; ${remedy}`);
  }

  addReader(): void {
    this.assertUsable();
    this.#readers++;
  }

  /** Registers a running call as a reader, which may have been issued before the tensor was released. */
  hold(): void {
    this.#readers++;
  }

  get hasReaders(): boolean {
    return this.#readers > 0;
  }

  /** The buffer, for work that was issued while the tensor was usable. */
  get buffer(): DeviceBuffer {
    if (this.#buffer === null) throw this.#gone();
    return this.#buffer;
  }

  get alive(): boolean {
    return this.#buffer !== null;
  }

  /** Releases the tensor: frees the memory now, or when pending work has read it. */
  release(how: Ending = "disposed"): void {
    this.#ended ??= how;
    if (this.#readers === 0) this.free();
  }

  /** A pending reader has run. */
  readerDone(): void {
    this.#readers--;
    if (this.#ended !== null && this.#readers === 0) this.free();
  }

  /** Frees the memory now, even if pending work reads it. */
  free(): void {
    if (this.#buffer === null) return;
    this.#buffer = null;
    memoryManager.unregister(this.id);
  }

  /** Transfers ownership of the buffer, for a donated argument whose memory a result reuses. */
  takeBuffer(): DeviceBuffer {
    const buffer = this.buffer;
    this.#ended = "donated";
    this.#buffer = null;
    memoryManager.forget(this.id);
    return buffer;
  }
}

interface Entry {
  /** Null while the value is young. */
  ref: WeakRef<TensorValue> | null;
  device: Device;
  buffer: DeviceBuffer;
  aval: Aval;
  site: string | null;
}

export interface MemoryReport {
  /** Number of tensors that hold memory. */
  tensors: number;
  /** Bytes of all of them. */
  bytes: number;
  /** Largest first: how many tensors and bytes each shape (and call site, when recorded) holds. */
  groups: { what: string; site: string | null; count: number; bytes: number }[];
}

/** Values that may be young at a time, and the bytes of the largest: what they hold although nobody can reach them. */
const maxYoung = 64;
const maxYoungBytes = 1 << 16;

class MemoryManager {
  #entries = new Map<number, Entry>();
  /**
   * Small values of this turn of the event loop that the garbage collector does not watch yet. Most are released soon, and a weak
   * reference with a finalizer takes as long as the rest of a small call.
   */
  #young: TensorValue[] = [];
  #willSettle = false;
  #nextId = 1;
  #bytes = 0;
  /** Collect when this much is held; grows with what survives a collection. */
  #threshold = 0;
  /** Limit that the user set; null: that of the device. */
  #limit: number | null = settings.memoryLimit.get() || null;
  #finalizers = new FinalizationRegistry<number>((id) => this.unregister(id));
  #scopes: WeakRef<TensorValue>[][] = [];
  collections = 0;
  /** Whether every tensor remembers the line of the program that made it. */
  recordSites = settings.memorySites.get();

  get heldBytes(): number {
    return this.#bytes;
  }

  /** Bytes that may be held before unreachable tensors are looked for. */
  set pressureLimit(bytes: number) {
    this.#limit = bytes;
    this.#threshold = 0;
  }

  register(value: TensorValue, device: Device, buffer: DeviceBuffer, aval: Aval, site: string | null): number {
    const id = this.#nextId++;
    const entry: Entry = { ref: null, device, buffer, aval, site: site ?? this.callSite() };
    this.#entries.set(id, entry);
    this.#bytes += buffer.bytes;
    if (this.#scopes.length > 0) this.#scopes[this.#scopes.length - 1].push(this.#watch(value, id, entry));
    else if (buffer.bytes > maxYoungBytes) this.#watch(value, id, entry);
    else this.#addYoung(value);
    return id;
  }

  /** From now on the garbage collector frees the value when the program cannot reach it. */
  #watch(value: TensorValue, id: number, entry: Entry): WeakRef<TensorValue> {
    entry.ref = new WeakRef(value);
    this.#finalizers.register(value, id);
    return entry.ref;
  }

  #addYoung(value: TensorValue): void {
    if (this.#young.length === maxYoung) this.#settle();
    this.#young.push(value);
    if (this.#willSettle) return;
    this.#willSettle = true;
    setImmediate(() => {
      this.#willSettle = false;
      this.#settle();
    });
  }

  /** Ends the youth of values: those that were not released are watched. */
  #settle(): void {
    for (const value of this.#young) {
      const entry = this.#entries.get(value.id);
      if (entry !== undefined) this.#watch(value, value.id, entry);
    }
    this.#young.length = 0;
  }

  /** The line of the user's program that is running, if those are recorded. */
  callSite(): string | null {
    return this.recordSites ? captureSite()() : null;
  }

  /** Starts to remember what is computed; scopes nest. Weakly: a long scope must not keep what nobody can reach. */
  openScope(): WeakRef<TensorValue>[] {
    const made: WeakRef<TensorValue>[] = [];
    this.#scopes.push(made);
    return made;
  }

  /** Ends a scope and says what it made; what is still there belongs to the enclosing one too. */
  closeScope(made: WeakRef<TensorValue>[]): TensorValue[] {
    const at = this.#scopes.lastIndexOf(made);
    if (at >= 0) this.#scopes.length = at;
    const enclosing = this.#scopes[at - 1];
    const values: TensorValue[] = [];
    for (const ref of made) {
      const value = ref.deref();
      if (value === undefined || !value.alive) continue;
      values.push(value);
      enclosing?.push(ref);
    }
    return values;
  }

  /** Frees the buffer of an entry and forgets it; a second call does nothing. */
  unregister(id: number): void {
    const entry = this.#entries.get(id);
    if (entry === undefined) return;
    this.#entries.delete(id);
    this.#bytes -= entry.buffer.bytes;
    entry.device.free(entry.buffer);
  }

  /** Forgets an entry without freeing its buffer. */
  forget(id: number): void {
    const entry = this.#entries.get(id);
    if (entry === undefined) return;
    this.#entries.delete(id);
    this.#bytes -= entry.buffer.bytes;
  }

  /** Before an allocation: looks for unreachable tensors when enough has piled up. */
  relieve(coming: number, device: Device): void {
    const limit = this.#limit ?? device.pressureBytes ?? 2 ** 30;
    if (this.#bytes + coming < Math.max(this.#threshold, limit)) return;
    this.collect();
    // What is coming belongs to the bar: a call that needs more than the limit by itself must not collect every time.
    this.#threshold = (this.#bytes + coming) * 1.5;
  }

  /** Frees every tensor that nobody can reach, now. */
  collect(): void {
    this.collections++;
    this.#settle();
    collectNow();
    for (const [id, entry] of this.#entries) if (entry.ref?.deref() === undefined) this.unregister(id);
    this.#threshold = this.#bytes * 1.5;
  }

  report(): MemoryReport {
    const groups = new Map<string, MemoryReport["groups"][number]>();
    for (const { aval, site } of this.#entries.values()) {
      const what = showAval(aval);
      const key = `${what}@${site}`;
      const group = groups.get(key) ?? { what, site, count: 0, bytes: 0 };
      group.count++;
      group.bytes += numel(aval.shape) * bytesOf(aval.dtype);
      groups.set(key, group);
    }
    const sorted = [...groups.values()].sort((a, b) => b.bytes - a.bytes);
    return { tensors: this.#entries.size, bytes: this.#bytes, groups: sorted };
  }

  /** Runs something that allocates; when the device is full, frees what can be freed and tries once more. */
  withRetry<T>(device: Device, action: () => T): T {
    try {
      return action();
    } catch (error) {
      if (!(error instanceof OutOfMemoryError)) throw error;
      this.collect();
      device.trim();
      try {
        return action();
      } catch (again) {
        if (!(again instanceof OutOfMemoryError)) throw again;
        throw new OutOfMemoryError(`${again.message}\n${this.#whoHolds()}`, again.requested);
      }
    }
  }

  #whoHolds(): string {
    const { tensors, bytes, groups } = this.report();
    const lines = groups
      .slice(0, 5)
      .map((g) => `  ${g.count} x ${g.what}, ${megabytes(g.bytes)}${g.site === null ? "" : `, made at ${g.site}`}`);
    const hint = this.recordSites ? "" : "\n(WEFT_MEMORY_SITES=1 shows the lines that made them)";
    return `held by ${tensors} tensors, ${megabytes(bytes)} in all, the largest:\n${lines.join("\n")}${hint}`;
  }
}

/** The line of the user's program that is running now; looked up when it is asked for, since that is expensive. */
export function captureSite(): () => string | null {
  const limit = Error.stackTraceLimit;
  Error.stackTraceLimit = 40;
  const here = new Error();
  Error.stackTraceLimit = limit;
  return () => {
    const lines = here.stack?.split("\n").slice(1) ?? [];
    const outside = lines.find(
      (line) => !libraryFolders.some((folder) => line.includes(folder)) || /\.test\.[jt]s/.test(line),
    );
    return outside?.trim().replace(/^at /, "") ?? null;
  };
}

/** Folders of Weft's own packages, beside each other in the workspace and in node_modules: not the user's program. */
const scope = fileURLToPath(new URL("../../..", import.meta.url));
const libraryFolders = ["core", "cluster", "train", "quantum"].map((name) => join(scope, name, "dist"));

const megabytes = (bytes: number): string =>
  bytes >= 1e9 ? `${(bytes / 1e9).toFixed(2)} GB` : `${(bytes / 1e6).toFixed(1)} MB`;

export const memoryManager = new MemoryManager();
