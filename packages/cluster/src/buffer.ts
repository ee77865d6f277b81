// A tensor of a cluster on the client side: an id, the location of its shards, and the reason if it has no value. It
// knows placements, not connections.
import type { DeviceBuffer } from "@weft/core/internal/device";
import type { DType, Shape } from "@weft/core/internal/graph";
import type { Placement } from "@weft/core/internal/shard";
import type { RecordedCall } from "./lineage.js";

/** Where a tensor is stored: the workers and the placement over them. */
interface TensorLocation {
  /** Worker ids by rank. */
  members: ReadonlyMap<number, string>;
  placement: Placement;
}

/** Whether a tensor has lost its value with dead workers. A replica on a live worker is enough. */
export function isGone({ members, placement }: TensorLocation, isDead: (worker: string) => boolean): boolean {
  const workers = [...members.values()];
  return placement.isReplicated ? workers.every(isDead) : workers.some(isDead);
}

export interface StagingBuffer {
  /** Address in this process's shared memory; 0 if there is none, then `bytes` holds the copy. */
  address: number;
  bytes: Uint8Array | null;
}

/** The user's source line that computed a tensor, resolved on demand. */
type CallSite = (() => string | null) | null;

let lastId = 0;

/** A tensor of a cluster: its id, its location on the workers, and its lineage. */
export class ClusterBuffer implements DeviceBuffer {
  /** Id of the tensor in messages. */
  id = ++lastId;
  /** Uploaded bytes that no worker has taken yet. */
  staging: StagingBuffer | null = null;
  /** The value of a small uploaded tensor, so that compilers can treat it as a constant. */
  value: Uint8Array | null = null;
  /** Placement and workers; null before it is computed or uploaded. */
  location: TensorLocation | null = null;
  /** Shape, once it is known. */
  shape: Shape | null = null;
  /** Dtype, once it is known. */
  dtype: DType | null = null;
  /** Why the tensor has no value; null if it has one. */
  failure: string | null = null;
  /** Source line that computed it. */
  site: CallSite = null;
  /** Whether the program released it. */
  freed = false;
  /** Copies of the tensor in other placements, by placement key. */
  copies: Map<string, ClusterBuffer> | null = null;
  /** The call that computed the tensor and the bytes it was uploaded from, while lineage retains them. */
  origin: RecordedCall | null = null;
  /** Uploaded bytes that lineage retains. */
  retained: StagingBuffer | null = null;
  /** True once the workers have confirmed that the tensor is computed. */
  computed = false;
  constructor(
    /** Size in bytes. */
    readonly bytes: number,
  ) {}

  /** Assigns a new id, so that messages about the old id no longer apply. */
  reset(): void {
    this.id = ++lastId;
    this.location = null;
    this.failure = null;
    this.computed = false;
  }
}

/** Appends the user's source line to a message, if known. */
export const withCallSite = (message: string, site: CallSite): string => {
  const line = site?.() ?? null;
  return line === null ? message : `${message}\n  computed at ${line}`;
};
