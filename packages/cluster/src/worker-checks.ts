// What a worker checks of instructions before it follows them: collectives, and sizes of uploads.
import { checkExtent, functionOrder, type GraphFn, isOp, numel, WeftError } from "@weft/core/internal/graph";
import type { ToWorker } from "./protocol.js";
import type { GroupOfProgram } from "./worker-groups.js";

export type UploadPart = Extract<ToWorker, { t: "upload" }>["part"];

/** Checks that collectives match the program's group: others would disturb the group's other users. */
export function checkGroup(fn: GraphFn, group: GroupOfProgram | null): void {
  if (group !== null) checkMembers(group);
  checkNodes(fn, group);
}

/** A dispatcher that describes a group wrongly is not followed into it. */
function checkMembers({ rank, size, pids, mpi, links }: GroupOfProgram): void {
  const counts = [pids, mpi, links?.members].flatMap((list) => (list == null ? [] : [list.length]));
  if (rank >= size || size > 256 || counts.some((count) => count !== size))
    throw new WeftError(`define: rank ${rank} of a group of ${size} with ${counts.join(", ")} members`);
}

function checkNodes(fn: GraphFn, group: GroupOfProgram | null): void {
  for (const node of functionOrder(fn)) {
    if (isOp(node, "scan") || isOp(node, "custom")) checkNodes((node.attrs as { body: GraphFn }).body, group);
    if (!isOp(node, "collective")) continue;
    const { groups, rank } = node.attrs;
    if (group === null || rank !== group.rank || groups.some((members) => members.some((r) => r >= group.size)))
      throw new WeftError(
        `define: ${node.attrs.kind} of rank ${rank} does not fit ${group === null ? "a program without a group" : `rank ${group.rank} of ${group.size}`}`,
      );
  }
}

/** Size of an uploaded shard in bytes, after checking its sizes. */
export function partBytes({ sizes, strides, element }: UploadPart): number {
  checkExtent(sizes);
  if (strides.length !== sizes.length || element < 1 || element > 16)
    throw new WeftError(
      `upload: ${sizes.length} sizes with ${strides.length} strides, of elements of ${element} bytes`,
    );
  return numel(sizes) * element;
}

/** Checks that a shard lies within the client's shared memory. */
export function checkReach({ offset, sizes, strides, element }: UploadPart, room: number): void {
  const last = sizes.reduce((at, size, i) => at + (size - 1) * strides[i], offset! + element);
  if (!(last <= room)) throw new WeftError(`upload: a part ends at byte ${last} of a shared memory of ${room} bytes`);
}
