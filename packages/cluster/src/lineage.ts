// Lineage: how each tensor of a cluster was computed, by which call from which inputs, or from which uploaded bytes.
// When a worker dies, its tensors are recomputed on the remaining workers, within limits. It knows buffers and calls;
// the hooks do the communication.
import { WeftError } from "@weft/core/internal/graph";
import { type ClusterBuffer, isGone, type StagingBuffer } from "./buffer.js";
import { clusterSettings } from "./settings.js";

/** Issues a recorded call again with these inputs and outputs. */
export type RecomputeStep = (inputs: ClusterBuffer[], outputs: ClusterBuffer[]) => void;

/** One call of a program, with what is needed to recompute it. */
export interface RecordedCall {
  /** Calls are recomputed in the order in which they were issued. */
  order: number;
  recompute: RecomputeStep;
  inputs: readonly ClusterBuffer[];
  outputs: readonly ClusterBuffer[];
  /** The workers that ran the call, by rank. */
  members: ReadonlyMap<number, string>;
  /** Predicted seconds. */
  seconds: number;
}

/** Operations of the cluster device that lineage needs. */
export interface LineageHooks {
  isDead(worker: string): boolean;
  isFailed(id: number): boolean;
  /** Assigns a new id and clears the location; a freed tensor is counted as in use again. */
  reset(it: ClusterBuffer): void;
  /** Allocates a buffer for an output that will be discarded. */
  scratchLike(like: ClusterBuffer): ClusterBuffer;
  free(it: ClusterBuffer): void;
  releaseStaging(staging: StagingBuffer): void;
}

interface LineageLimits {
  enabled: boolean;
  /** Maximum bytes of uploaded arrays retained in this process. */
  bytes: number;
  /** Maximum number of calls to recompute, and of freed tensors to remember. */
  calls: number;
  seconds: number;
}

const limitsFromEnvironment = (): LineageLimits => ({
  enabled: clusterSettings.recompute.get(),
  bytes: clusterSettings.recomputeBytes.get(),
  calls: clusterSettings.recomputeCalls.get(),
  seconds: clusterSettings.recomputeSeconds.get(),
});

/** A tensor cannot be recomputed; the message says why. */
class UnrecoverableError extends WeftError {}

/** The uploads and calls needed to recover some tensors. */
interface Repair {
  uploads: Set<ClusterBuffer>;
  calls: Set<RecordedCall>;
  /** Tensors to recompute, and among them the freed ones that are only intermediate. */
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
  /** Freed tensors from which others may be recomputed, oldest first. */
  readonly #freed = new Set<ClusterBuffer>();
  /** Tensors whose uploaded bytes are retained, oldest first. */
  readonly #retained = new Set<ClusterBuffer>();
  #retainedBytes = 0;
  #order = 0;
  /** Order of the call that is being recomputed. */
  #repeated: number | null = null;
  #busy = false;

  constructor(
    readonly hooks: LineageHooks,
    readonly limits: LineageLimits = limitsFromEnvironment(),
  ) {}

  get retainedBytes(): number {
    return this.#retainedBytes;
  }

  /** Records a call that was issued. */
  record(call: Omit<RecordedCall, "order">): void {
    if (!this.limits.enabled) return;
    const entry = { ...call, order: this.#repeated ?? this.#order++ };
    for (const output of call.outputs) {
      output.origin = entry;
      if (output.freed) this.freed(output);
    }
  }

  /**
   * Takes ownership of an upload's staging buffer after the workers have read it. Returns false if it is not retained.
   */
  retain(it: ClusterBuffer, staging: StagingBuffer): boolean {
    const { enabled, bytes } = this.limits;
    if (!enabled || it.bytes > bytes || it.retained !== null) return false;
    it.retained = staging;
    this.#retained.add(it);
    this.#retainedBytes += it.bytes;
    if (it.freed) this.freed(it);
    if (this.#retainedBytes <= bytes) return true;
    for (const old of [...this.#freed, ...this.#retained]) {
      if (this.#retainedBytes <= bytes) break;
      if (old !== it) this.#drop(old);
    }
    return true;
  }

  #drop(it: ClusterBuffer): void {
    const staging = this.#take(it);
    if (staging !== null) this.hooks.releaseStaging(staging);
  }

  #take(it: ClusterBuffer): StagingBuffer | null {
    const { retained } = it;
    if (retained === null) return null;
    it.retained = null;
    this.#retained.delete(it);
    this.#retainedBytes -= it.bytes;
    return retained;
  }

  /** Remembers a freed tensor for a while: others may need it for recomputation. */
  freed(it: ClusterBuffer): void {
    if (it.origin === null && it.retained === null) return;
    this.#freed.delete(it);
    this.#freed.add(it);
    if (this.#freed.size <= this.limits.calls) return;
    const [oldest] = this.#freed;
    this.#freed.delete(oldest);
    oldest.origin = null;
    this.#drop(oldest);
  }

  clear(): void {
    for (const it of [...this.#retained]) this.#drop(it);
    for (const it of this.#freed) it.origin = null;
    this.#freed.clear();
  }

  #isOnDeadWorker({ location }: ClusterBuffer): boolean {
    if (location === null) return false;
    for (const worker of location.members.values()) if (this.hooks.isDead(worker)) return true;
    return false;
  }

  /** Whether a dead worker took part in computing the tensor or any of its ancestors. */
  #dependsOnDeadWorker(it: ClusterBuffer, seen = new Set<ClusterBuffer>()): boolean {
    if (seen.has(it)) return false;
    seen.add(it);
    if (this.#isOnDeadWorker(it)) return true;
    if (it.origin === null) return false;
    for (const worker of it.origin.members.values()) if (this.hooks.isDead(worker)) return true;
    return it.origin.inputs.some((input) => this.#dependsOnDeadWorker(input, seen));
  }

  /** Whether the tensor lost its value with a dead worker. */
  isLost(it: ClusterBuffer): boolean {
    if (it.failure !== null) return false;
    if (it.location !== null && isGone(it.location, this.hooks.isDead)) return true;
    return this.hooks.isFailed(it.id) && this.#dependsOnDeadWorker(it);
  }

  /** A replicated tensor whose surviving workers have not confirmed that they computed it. */
  #isUncertain(it: ClusterBuffer): boolean {
    return it.origin !== null && !it.computed && this.#isOnDeadWorker(it);
  }

  /**
   * Recomputes lost tensors, or returns the reason why that is impossible. Everything is issued at once; values arrive
   * asynchronously. Returns the number of tensors recomputed and uploaded again.
   */
  recover(lost: readonly ClusterBuffer[]): { made: number; sent: number; calls: number } | string {
    if (!this.limits.enabled) return "WEFT_RECOMPUTE=0 disables recomputation";
    // Recovery does not nest.
    if (this.#busy) return "they were lost again during recovery";
    const repair: Repair = {
      uploads: new Set(),
      calls: new Set(),
      wanted: new Set(),
      temporary: new Set(),
      seconds: 0,
    };
    try {
      for (const it of lost) this.#require(it, repair);
    } catch (error) {
      if (error instanceof UnrecoverableError) return error.message;
      throw error;
    }
    this.#busy = true;
    try {
      return this.#execute(repair);
    } finally {
      this.#busy = false;
    }
  }

  #require(it: ClusterBuffer, repair: Repair): void {
    if (repair.wanted.has(it)) return;
    const uncertain = !it.freed && !this.isLost(it);
    if (uncertain && !this.#isUncertain(it)) return;
    const before = uncertain ? copyOf(repair) : null;
    repair.wanted.add(it);
    try {
      this.#plan(it, repair);
    } catch (error) {
      if (before === null || !(error instanceof UnrecoverableError)) throw error;
      // It cannot be recomputed, but may still exist.
      Object.assign(repair, before);
    }
  }

  #plan(it: ClusterBuffer, repair: Repair): void {
    if (it.freed) repair.temporary.add(it);
    if (it.retained !== null || it.staging !== null) {
      repair.uploads.add(it);
      return;
    }
    const { origin } = it;
    if (origin === null)
      throw new UnrecoverableError(
        it.freed
          ? "their inputs are no longer remembered (WEFT_RECOMPUTE_CALLS, WEFT_RECOMPUTE_BYTES)"
          : "the array that they were uploaded from is not retained (WEFT_RECOMPUTE_BYTES)",
      );
    if (repair.calls.has(origin)) return;
    repair.calls.add(origin);
    repair.seconds += origin.seconds;
    const { calls, seconds } = this.limits;
    if (repair.calls.size > calls)
      throw new UnrecoverableError(`more than ${calls} calls would have to be recomputed (WEFT_RECOMPUTE_CALLS)`);
    if (repair.seconds > seconds)
      throw new UnrecoverableError(`recomputing them would take more than ${seconds} s (WEFT_RECOMPUTE_SECONDS)`);
    for (const input of origin.inputs) this.#require(input, repair);
  }

  #execute({ uploads, calls, wanted, temporary }: Repair): { made: number; sent: number; calls: number } {
    const { hooks } = this;
    for (const it of uploads) {
      const staging = this.#take(it) ?? it.staging;
      hooks.reset(it);
      it.staging = staging;
      this.#freed.delete(it);
    }
    const ordered = [...calls].sort((a, b) => a.order - b.order);
    const readers = new Map<ClusterBuffer, number>();
    for (const { inputs } of ordered)
      for (const input of inputs) if (temporary.has(input)) readers.set(input, (readers.get(input) ?? 0) + 1);
    let made = 0;
    for (const call of ordered) {
      const discarded: ClusterBuffer[] = [];
      const outputs = call.outputs.map((output) => {
        if (!uploads.has(output) && (wanted.has(output) || (!output.freed && this.isLost(output)))) {
          made++;
          hooks.reset(output);
          this.#freed.delete(output);
          return output;
        }
        const scratchLike = hooks.scratchLike(output);
        discarded.push(scratchLike);
        return scratchLike;
      });
      this.#repeated = call.order;
      call.recompute([...call.inputs], outputs);
      this.#repeated = null;
      for (const scratchLike of discarded) hooks.free(scratchLike);
      for (const input of call.inputs) {
        const left = (readers.get(input) ?? 0) - 1;
        readers.set(input, left);
        if (left === 0 && temporary.has(input)) hooks.free(input);
      }
    }
    return { made, sent: uploads.size, calls: ordered.length };
  }
}
