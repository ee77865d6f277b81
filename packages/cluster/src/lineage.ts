// How the tensors of a cluster were made: by which call from which others, or from which bytes of the client's. When a
// worker is gone, what was on it is made again on those that are left, as far as that is known and worth it. Knows
// buffers and calls, nothing of connections: whoever sends is handed in.
import { WeftError } from "@weft/core/internal/graph";
import type { ClusterBuffer, Staged } from "./buffer.js";

/** Sends a program's call with these arguments and results. */
export type Repeat = (inputs: ClusterBuffer[], outputs: ClusterBuffer[]) => void;

/** One call of a program: enough to do it once more. */
export interface Call {
  /** Calls are repeated in the order in which they were made. */
  order: number;
  again: Repeat;
  inputs: readonly ClusterBuffer[];
  outputs: readonly ClusterBuffer[];
  /** The workers that took part, by rank. */
  members: ReadonlyMap<number, string>;
  /** Predicted seconds. */
  seconds: number;
}

/** What lineage needs of the cluster's device. */
export interface Hands {
  isGone(worker: string): boolean;
  isFailed(id: number): boolean;
  /** Gives a tensor a new id and forgets where it was; one that was freed counts again. */
  renew(it: ClusterBuffer): void;
  /** A place for a result that nobody wants. */
  spare(like: ClusterBuffer): ClusterBuffer;
  free(it: ClusterBuffer): void;
  unstage(staged: Staged): void;
}

export interface LineageLimits {
  enabled: boolean;
  /** Of uploaded arrays that are kept in this process. */
  bytes: number;
  /** That may have to be repeated, and tensors that are remembered after they were freed. */
  calls: number;
  seconds: number;
}

const number = (name: string, otherwise: number): number => {
  const value = Number(process.env[name] ?? "");
  return (process.env[name] ?? "") !== "" && value >= 0 ? value : otherwise;
};

export const limitsFromEnvironment = (): LineageLimits => ({
  enabled: process.env.WEFT_RECOMPUTE !== "0",
  bytes: number("WEFT_RECOMPUTE_BYTES", 256e6),
  calls: number("WEFT_RECOMPUTE_CALLS", 1000),
  seconds: number("WEFT_RECOMPUTE_SECONDS", 60),
});

/** Why something cannot be made again. */
class RootGone extends WeftError {}

/** What has to be done to have some tensors again. */
interface Repair {
  uploads: Set<ClusterBuffer>;
  calls: Set<Call>;
  /** Everything that is made again, and among it what was freed and is only needed on the way. */
  wanted: Set<ClusterBuffer>;
  temporary: Set<ClusterBuffer>;
  seconds: number;
}

const copyOf = ({ uploads, calls, wanted, temporary, seconds }: Repair): Repair => ({
  uploads: new Set(uploads),
  calls: new Set(calls),
  wanted: new Set(wanted),
  temporary: new Set(temporary),
  seconds,
});

export class Lineage {
  /** Freed tensors through which others may be made again, the oldest first. */
  readonly #freed = new Set<ClusterBuffer>();
  /** Tensors whose uploaded bytes are kept, the oldest first. */
  readonly #kept = new Set<ClusterBuffer>();
  #keptBytes = 0;
  #order = 0;
  /** The place of the call that is being repeated. */
  #repeated: number | null = null;
  #busy = false;

  constructor(
    readonly hands: Hands,
    readonly limits: LineageLimits = limitsFromEnvironment(),
  ) {}

  get keptBytes(): number {
    return this.#keptBytes;
  }

  /** A call was sent. */
  made(call: Omit<Call, "order">): void {
    if (!this.limits.enabled) return;
    const entry = { ...call, order: this.#repeated ?? this.#order++ };
    for (const output of call.outputs) {
      output.origin = entry;
      if (output.freed) this.freed(output);
    }
  }

  /** Workers have read an uploaded array: true where its bytes are kept here for another time. */
  keep(it: ClusterBuffer, staged: Staged): boolean {
    const { enabled, bytes } = this.limits;
    if (!enabled || it.bytes > bytes || it.kept !== null) return false;
    it.kept = staged;
    this.#kept.add(it);
    this.#keptBytes += it.bytes;
    if (it.freed) this.freed(it);
    if (this.#keptBytes <= bytes) return true;
    for (const old of [...this.#freed, ...this.#kept]) {
      if (this.#keptBytes <= bytes) break;
      if (old !== it) this.#drop(old);
    }
    return true;
  }

  #drop(it: ClusterBuffer): void {
    const staged = this.#take(it);
    if (staged !== null) this.hands.unstage(staged);
  }

  #take(it: ClusterBuffer): Staged | null {
    const { kept } = it;
    if (kept === null) return null;
    it.kept = null;
    this.#kept.delete(it);
    this.#keptBytes -= it.bytes;
    return kept;
  }

  /** Others that were made from it may need it again, for a while. */
  freed(it: ClusterBuffer): void {
    if (it.origin === null && it.kept === null) return;
    this.#freed.delete(it);
    this.#freed.add(it);
    if (this.#freed.size <= this.limits.calls) return;
    const [oldest] = this.#freed;
    this.#freed.delete(oldest);
    oldest.origin = null;
    this.#drop(oldest);
  }

  clear(): void {
    for (const it of [...this.#kept]) this.#drop(it);
    for (const it of this.#freed) it.origin = null;
    this.#freed.clear();
  }

  #onGone({ home }: ClusterBuffer): boolean {
    if (home === null) return false;
    for (const worker of home.members.values()) if (this.hands.isGone(worker)) return true;
    return false;
  }

  /** Somewhere on the way to it a worker took part that is gone. */
  #touchesGone(it: ClusterBuffer, seen = new Set<ClusterBuffer>()): boolean {
    if (seen.has(it)) return false;
    seen.add(it);
    if (this.#onGone(it)) return true;
    if (it.origin === null) return false;
    for (const worker of it.origin.members.values()) if (this.hands.isGone(worker)) return true;
    return it.origin.inputs.some((input) => this.#touchesGone(input, seen));
  }

  /** It has no value any more, because of a worker that is gone. */
  isLost(it: ClusterBuffer): boolean {
    if (it.failure !== null) return false;
    if (this.#onGone(it) && !it.home!.placement.isReplicated) return true;
    return this.hands.isFailed(it.id) && this.#touchesGone(it);
  }

  /** All workers should have it; whether those that are left had come that far, nobody has said. */
  #isDoubtful(it: ClusterBuffer): boolean {
    return it.origin !== null && !it.computed && this.#onGone(it);
  }

  /**
   * Makes lost tensors again from what is left, or says why that cannot be. Everything is sent at once; values come as they
   * always do. Returns how many tensors are made and sent again.
   */
  restore(lost: readonly ClusterBuffer[]): { made: number; sent: number; calls: number } | string {
    if (!this.limits.enabled) return "WEFT_RECOMPUTE=0 keeps them from being made again";
    // Inside a repair everything is there or cannot be.
    if (this.#busy) return "they were lost while they were made again";
    const repair: Repair = {
      uploads: new Set(),
      calls: new Set(),
      wanted: new Set(),
      temporary: new Set(),
      seconds: 0,
    };
    try {
      for (const it of lost) this.#need(it, repair);
    } catch (error) {
      if (error instanceof RootGone) return error.message;
      throw error;
    }
    this.#busy = true;
    try {
      return this.#carryOut(repair);
    } finally {
      this.#busy = false;
    }
  }

  #need(it: ClusterBuffer, repair: Repair): void {
    if (repair.wanted.has(it)) return;
    const doubtful = !it.freed && !this.isLost(it);
    if (doubtful && !this.#isDoubtful(it)) return;
    const before = doubtful ? copyOf(repair) : null;
    repair.wanted.add(it);
    try {
      this.#plan(it, repair);
    } catch (error) {
      if (before === null || !(error instanceof RootGone)) throw error;
      // It cannot be made again, and may well be there.
      Object.assign(repair, before);
    }
  }

  #plan(it: ClusterBuffer, repair: Repair): void {
    if (it.freed) repair.temporary.add(it);
    if (it.kept !== null || it.staged !== null) {
      repair.uploads.add(it);
      return;
    }
    const { origin } = it;
    if (origin === null)
      throw new RootGone(
        it.freed
          ? "what they were made from is not remembered any more (WEFT_RECOMPUTE_CALLS, WEFT_RECOMPUTE_BYTES)"
          : "the array that they came from is not kept here (WEFT_RECOMPUTE_BYTES)",
      );
    if (repair.calls.has(origin)) return;
    repair.calls.add(origin);
    repair.seconds += origin.seconds;
    const { calls, seconds } = this.limits;
    if (repair.calls.size > calls)
      throw new RootGone(`more than ${calls} calls would have to be repeated (WEFT_RECOMPUTE_CALLS)`);
    if (repair.seconds > seconds)
      throw new RootGone(`making them again would take more than ${seconds} s (WEFT_RECOMPUTE_SECONDS)`);
    for (const input of origin.inputs) this.#need(input, repair);
  }

  #carryOut({ uploads, calls, wanted, temporary }: Repair): { made: number; sent: number; calls: number } {
    const { hands } = this;
    for (const it of uploads) {
      const staged = this.#take(it) ?? it.staged;
      hands.renew(it);
      it.staged = staged;
      this.#freed.delete(it);
    }
    const ordered = [...calls].sort((a, b) => a.order - b.order);
    const readers = new Map<ClusterBuffer, number>();
    for (const { inputs } of ordered)
      for (const input of inputs) if (temporary.has(input)) readers.set(input, (readers.get(input) ?? 0) + 1);
    let made = 0;
    for (const call of ordered) {
      const spares: ClusterBuffer[] = [];
      const outputs = call.outputs.map((output) => {
        if (!uploads.has(output) && (wanted.has(output) || (!output.freed && this.isLost(output)))) {
          made++;
          hands.renew(output);
          this.#freed.delete(output);
          return output;
        }
        const spare = hands.spare(output);
        spares.push(spare);
        return spare;
      });
      this.#repeated = call.order;
      call.again([...call.inputs], outputs);
      this.#repeated = null;
      for (const spare of spares) hands.free(spare);
      for (const input of call.inputs) {
        const left = (readers.get(input) ?? 0) - 1;
        readers.set(input, left);
        if (left === 0 && temporary.has(input)) hands.free(input);
      }
    }
    return { made, sent: uploads.size, calls: ordered.length };
  }
}
