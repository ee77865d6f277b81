// A client's tensors on a worker, their failures, and pending fetches. Each client sees only its own.
import type { Device, DeviceBuffer } from "@weft/core/internal/device";
import { limits, WeftError } from "@weft/core/internal/graph";
import type { ClientSettings, FailureCode } from "./protocol.js";
import { type SharedMapping, unmapMemory } from "./shared-memory.js";

export interface Failure {
  message: string;
  code: FailureCode;
}

/** Limits on remembered failures, and on pending fetches. */
const maxFailures = 100_000;
const maxWaiting = 100_000;

export class FailedError extends WeftError {
  constructor(readonly failure: Failure) {
    super(failure.message);
  }
}

/** A pending fetch; `owner` is the connection that asks. */
interface Waiting {
  owner: object;
  resolve(found: Held | Failure): void;
}

interface Held {
  buffer: DeviceBuffer;
  bytes: number;
  /** Fetches still reading it; freeing waits for them. */
  readers: number;
  freed: boolean;
}

export class Namespace {
  readonly #held = new Map<number, Held>();
  readonly #failures = new Map<number, Failure>();
  readonly #waiting = new Map<number, Waiting[]>();
  /** Number of pending fetches, of all tensors and connections. */
  #pending = 0;
  bytes = 0;
  /** Number of programs that the client has defined here. */
  programs = 0;
  /** The memory that the client passed to this worker, from which uploads are copied. */
  #memory: SharedMapping | null = null;

  constructor(
    readonly client: number,
    /** Authorizes data connections; the dispatcher issued it. */
    readonly key: string,
    readonly settings: ClientSettings,
    readonly device: Device,
  ) {}

  get memory(): SharedMapping | null {
    return this.#memory;
  }

  set memory(mapping: SharedMapping | null) {
    if (this.#memory !== null) unmapMemory(this.#memory);
    this.#memory = mapping;
  }

  get tensors(): number {
    return this.#held.size;
  }

  /** Checks the client's limits before an allocation. */
  admit(count: number, bytes: number): void {
    const { maxTensors: asked = limits.tensors, maxBytes = Number.POSITIVE_INFINITY } = this.settings;
    const maxTensors = Math.min(asked, limits.tensors);
    if (this.#held.size + count > maxTensors)
      throw new WeftError(
        `this client holds ${this.#held.size} tensors on a worker, its limit is ${maxTensors}; dispose of some, or raise maxTensors in connect`,
      );
    if (this.bytes + bytes > maxBytes)
      throw new WeftError(
        `this client holds ${this.bytes} bytes on a worker and needs ${bytes} more, its limit is ${maxBytes}; dispose of tensors, or raise maxBytes in connect`,
      );
  }

  put(id: number, buffer: DeviceBuffer): void {
    const held = { buffer, bytes: buffer.bytes, readers: 0, freed: false };
    this.drop(id);
    this.#held.set(id, held);
    this.bytes += held.bytes;
    this.#notify(id, held);
  }

  fail(id: number, failure: Failure): void {
    this.drop(id);
    this.#failures.set(id, failure);
    if (this.#failures.size > maxFailures) this.#failures.delete(this.#failures.keys().next().value!);
    this.#notify(id, failure);
  }

  #notify(id: number, found: Held | Failure): void {
    const waiting = this.#waiting.get(id) ?? [];
    this.#waiting.delete(id);
    this.#pending -= waiting.length;
    for (const { resolve } of waiting) resolve(found);
  }

  /** Returns a tensor that must already exist. */
  get(id: number): Held {
    const held = this.#held.get(id);
    if (held !== undefined) return held;
    throw new FailedError(this.#failures.get(id) ?? { message: `tensor ${id} is not on this worker`, code: "error" });
  }

  /** Calls back when the tensor is available or failed, possibly immediately, unless `owner` gives up first. */
  whenAvailable(id: number, owner: object, resolve: (found: Held | Failure) => void): void {
    const found = this.#held.get(id) ?? this.#failures.get(id);
    if (found !== undefined) {
      resolve(found);
      return;
    }
    if (this.#pending >= maxWaiting) {
      resolve({ message: `more than ${maxWaiting} fetches are pending; await some first`, code: "error" });
      return;
    }
    this.#pending++;
    const waiting = this.#waiting.get(id);
    if (waiting === undefined) this.#waiting.set(id, [{ owner, resolve }]);
    else waiting.push({ owner, resolve });
  }

  /** Forgets the pending fetches of a connection that has closed. */
  giveUp(owner: object): void {
    for (const [id, waiting] of this.#waiting) {
      const others = waiting.filter((one) => one.owner !== owner);
      this.#pending -= waiting.length - others.length;
      if (others.length === 0) this.#waiting.delete(id);
      else if (others.length < waiting.length) this.#waiting.set(id, others);
    }
  }

  /** Removes and returns a donated buffer; null if a fetch still reads it. */
  donate(id: number): DeviceBuffer | null {
    const held = this.#held.get(id);
    if (held === undefined || held.readers > 0) return null;
    this.#held.delete(id);
    this.bytes -= held.bytes;
    return held.buffer;
  }

  drop(id: number): void {
    this.#failures.delete(id);
    const held = this.#held.get(id);
    if (held === undefined) return;
    this.#held.delete(id);
    this.bytes -= held.bytes;
    held.freed = true;
    if (held.readers === 0) this.device.free(held.buffer);
  }

  read(held: Held): void {
    held.readers++;
  }

  readDone(held: Held): void {
    held.readers--;
    if (held.freed && held.readers === 0) this.device.free(held.buffer);
  }

  clear(): void {
    this.memory = null;
    for (const held of this.#held.values()) {
      // The readers disconnected with the client; a late readDone must not free twice.
      held.readers = Number.MAX_SAFE_INTEGER;
      this.device.free(held.buffer);
    }
    this.#held.clear();
    this.#failures.clear();
    for (const id of [...this.#waiting.keys()]) this.#notify(id, { message: "the client left", code: "error" });
    this.bytes = 0;
  }
}

export type { Held };
export const isFailure = (found: Held | Failure): found is Failure => "message" in found;
