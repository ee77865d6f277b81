// How many bytes this process had from others in collectives, by whatever way they came: shared memory and MPI count in C,
// others say so here.
import { nativeMovedBytes } from "./native/library.js";

let elsewhere = 0;

/** So many bytes came by a way that nothing else counts. */
export function countMoved(bytes: number): void {
  elsewhere += bytes;
}

/** What this process had from others in collectives, whatever the group: shared memory, MPI, NCCL. */
export const movedBytes = (): number => nativeMovedBytes() + elsewhere;
