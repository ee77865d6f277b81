// Groups of GPU processes: over NCCL when every member has a GPU of its own, through host memory otherwise. NCCL with
// more than one rank is tested on an emulated library only.

import { settings } from "../../settings/index.js";
import type { ProcessGroup } from "../contract.js";
import { barrierOf } from "../group/index.js";
import type { CudaDevice } from "./index.js";
import { ncclGroup } from "./nccl.js";

const idBytes = 64;

/** A group over NCCL if all members support it, otherwise the group itself. All members call it. */
export function joinNccl(device: CudaDevice, host: ProcessGroup): ProcessGroup {
  if (host.size === 1 || !settings.nccl.get()) return host;
  const { size, rank } = host;
  const mine = new Uint8Array(idBytes);
  mine.set(Buffer.from(device.context.busId).subarray(0, idBytes - 1));
  // All members must agree before any of them waits for NCCL.
  mine[idBytes - 1] = ncclGroup(device, host) === null ? 1 : 0;
  const all = new Uint8Array(size * idBytes);
  const attrs = {
    ...barrierOf(rank, size),
    kind: "allGather" as const,
    sizes: Array.from({ length: size }, () => idBytes),
    shape: [size * idBytes],
  };
  host.collective(attrs, mine, all, [idBytes]);
  const ids = Array.from({ length: size }, (_, i) => Buffer.from(all.subarray(i * idBytes, (i + 1) * idBytes)));
  const usable = ids.every((id) => id[idBytes - 1] === 0);
  const distinct = new Set(ids.map((id) => id.toString("latin1"))).size === size;
  return usable && distinct ? (ncclGroup(device, host) ?? host) : host;
}
