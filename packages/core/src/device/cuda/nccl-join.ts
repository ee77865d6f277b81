// Groups of GPU processes: over NCCL when every member has a GPU of its own, through host memory otherwise. NCCL with
// more than one rank has not been run by us: there was one GPU.

import { settings } from "../../settings/index.js";
import type { ProcessGroup } from "../contract.js";
import { barrierOf } from "../group/index.js";
import type { CudaDevice } from "./index.js";
import { ncclGroup } from "./nccl.js";

const idBytes = 64;

/** The group itself, or one that goes over NCCL where all members can. All members call it. */
export function joinNccl(device: CudaDevice, host: ProcessGroup): ProcessGroup {
  if (host.size === 1 || !settings.nccl.get()) return host;
  const { size, rank } = host;
  const mine = new Uint8Array(idBytes);
  mine.set(Buffer.from(device.context.busId).subarray(0, idBytes - 1));
  // A member without the library must not be waited for by the others.
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
