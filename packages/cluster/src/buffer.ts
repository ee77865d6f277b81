// A tensor of a cluster as its client sees it: an id, where its parts are, and why it has no value where it has none. Knows
// placements, nothing of connections.
import type { DeviceBuffer } from "@weft/core/internal/device";
import type { DType, Shape } from "@weft/core/internal/graph";
import type { Placement } from "@weft/core/internal/shard";
import type { RecordedCall } from "./lineage.js";

/** Where a tensor is: on which workers, and how it is cut. */
export interface TensorLocation {
  /** Worker ids by rank. */
  members: ReadonlyMap<number, string>;
  placement: Placement;
}

export interface StagingBuffer {
  /** In this process's shared memory; 0 where there is none, then `bytes` holds the copy. */
  address: number;
  bytes: Uint8Array | null;
}

/** The line of the program that asked, when somebody wants to know. */
export type CallSite = (() => string | null) | null;

let lastId = 0;

export class ClusterBuffer implements DeviceBuffer {
  id = ++lastId;
  staging: StagingBuffer | null = null;
  /** The value of a small tensor that came from here: compilers may use what they see in it. */
  value: Uint8Array | null = null;
  location: TensorLocation | null = null;
  shape: Shape | null = null;
  dtype: DType | null = null;
  /** Why there is no value. */
  failure: string | null = null;
  site: CallSite = null;
  freed = false;
  /** The same tensor elsewhere, for programs that want it there. */
  copies: Map<string, ClusterBuffer> | null = null;
  /** The call that made it, and the bytes that it was uploaded from, as long as they are remembered. */
  origin: RecordedCall | null = null;
  retained: StagingBuffer | null = null;
  /** Its workers were seen to have it. */
  computed = false;
  constructor(readonly bytes: number) {}

  /** Another tensor to everybody else: what is still said about the old id does not concern it. */
  reset(): void {
    this.id = ++lastId;
    this.location = null;
    this.failure = null;
    this.computed = false;
  }
}

/** A message with the line of the user's program, where it is known. */
export const withCallSite = (message: string, site: CallSite): string => {
  const line = site?.() ?? null;
  return line === null ? message : `${message}\n  computed at ${line}`;
};
