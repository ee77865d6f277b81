// The instruction that a worker executes, in memory that its background thread shares: that thread stops instructions of clients
// that have left, and those that take longer than their client may. The main thread can do neither while it computes.
import type { Interruption } from "@weft/core/internal/device";
import koffi from "koffi";

/** Places in the shared numbers: the instruction, its client (0 between instructions), and its limit in milliseconds. */
const [instructionAt, clientAt, limitAt] = [0, 1, 2];
const maxInstruction = 2 ** 30;
/** Milliseconds between two looks of the background thread, and for a stopped instruction to end. */
const lookMs = 200;
const maxGraceMs = 10_000;
/** Time that counts at most per look: a stopped process (SIGSTOP) does not compute. */
const maxLookMs = 1000;
/** Clients that have left and whose instructions may still be queued. */
const maxLeft = 4096;

/** What the background thread is given. */
export interface SharedWork {
  numbers: Int32Array;
  /** Where the device looks for the number of a call that is to stop; null if its calls cannot be stopped. */
  address: number | null;
}

/** The main thread's side. */
export class CurrentWork {
  readonly shared: SharedWork;
  readonly #interruption: Interruption | undefined;
  #last = 0;

  constructor(interruption: Interruption | undefined) {
    this.#interruption = interruption;
    this.shared = { numbers: new Int32Array(new SharedArrayBuffer(12)), address: interruption?.address ?? null };
  }

  /** Runs an instruction of a client that may take this many seconds. */
  during(client: number, seconds: number | undefined, action: () => void): void {
    const { numbers } = this.shared;
    this.#last = (this.#last % maxInstruction) + 1;
    Atomics.store(numbers, instructionAt, this.#last);
    Atomics.store(numbers, limitAt, seconds === undefined ? 0 : Math.ceil(Math.min(seconds * 1e3, 2 ** 31 - 1)));
    this.#interruption?.begin(this.#last);
    Atomics.store(numbers, clientAt, client);
    try {
      action();
    } finally {
      Atomics.store(numbers, clientAt, 0);
    }
  }
}

/** The background thread's side. */
export class WorkWatch {
  readonly #numbers: Int32Array;
  readonly #stop: Int32Array | null;
  readonly #timer: NodeJS.Timeout;
  /** Clients that have left lately. */
  readonly #left = new Set<number>();
  /** The instruction that was seen last, and for how many milliseconds. */
  #seen = 0;
  #ms = 0;
  #looked = performance.now();
  /** The client whose instruction neither ended in time nor could be stopped; null if there is none. */
  stuck: number | null = null;

  /** `onStuck` is called when an instruction cannot be stopped. */
  constructor(
    { numbers, address }: SharedWork,
    readonly onStuck: (client: number) => void,
    readonly graceMs = maxGraceMs,
  ) {
    this.#numbers = numbers;
    this.#stop = address === null ? null : new Int32Array(koffi.view(BigInt(address), 8));
    this.#timer = setInterval(() => this.#look(), lookMs);
  }

  /** The instruction that runs now, with its client; null between instructions. */
  #current(): { instruction: number; client: number } | null {
    const instruction = Atomics.load(this.#numbers, instructionAt);
    const client = Atomics.load(this.#numbers, clientAt);
    // The client is set after the number, and reset before the next one.
    return client === 0 || Atomics.load(this.#numbers, instructionAt) !== instruction ? null : { instruction, client };
  }

  /** Stops what runs and will run for a client that has left; null stops what runs now, for whomever. */
  stop(client: number | null): void {
    const current = this.#current();
    if (client !== null) this.#left.add(client);
    for (const old of this.#left) if (this.#left.size > maxLeft) this.#left.delete(old);
    if (current !== null && (client === null || client === current.client)) this.#end(current.instruction);
  }

  /** Another dispatcher numbers its clients again. */
  forgetClients(): void {
    this.#left.clear();
  }

  #end(instruction: number): void {
    if (this.#stop !== null) this.#stop[1] = instruction;
  }

  #look(): void {
    const now = performance.now();
    const passed = Math.min(now - this.#looked, maxLookMs);
    this.#looked = now;
    const current = this.#current();
    if (current === null || current.instruction !== this.#seen) {
      this.#seen = current?.instruction ?? 0;
      this.#ms = 0;
      return;
    }
    this.#ms += passed;
    // Its instruction was queued when it left, and has begun before the main thread knew.
    if (this.#left.has(current.client)) this.#end(current.instruction);
    const limit = Atomics.load(this.#numbers, limitAt);
    if (limit === 0 || this.#ms < limit) return;
    this.#end(current.instruction);
    if (this.#ms < limit + this.graceMs || this.stuck !== null) return;
    this.stuck = current.client;
    this.onStuck(current.client);
  }

  end(): void {
    clearInterval(this.#timer);
  }
}
