// Groups of GPU processes: over NCCL when every member has a GPU of its own, through host memory otherwise. NCCL with
// more than one rank is tested on an emulated library only.
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { hostname } from "node:os";
import { settings } from "../../settings/index.js";
import type { ProcessGroup } from "../contract.js";
import { barrierOf } from "../group/index.js";
import type { CudaDevice } from "./index.js";
import { ncclGroup } from "./nccl.js";

/** A hash, and whether NCCL is missing. */
const idBytes = 33;

/** Identifies the running machine: containers of one machine see the same, and GPUs of two machines have equal bus ids. */
function machineId(): string {
  try {
    return readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim();
  } catch {
    return hostname();
  }
}

/** Identifies a GPU among those of all members. */
export const gpuId = (busId: string, machine = machineId()): Buffer =>
  createHash("sha256")
    .update(JSON.stringify([machine, busId]))
    .digest();

/** A group over NCCL if all members support it, otherwise the group itself. All members call it. */
export function joinNccl(device: CudaDevice, host: ProcessGroup): ProcessGroup {
  if (host.size === 1 || !settings.nccl.get()) return host;
  const { size, rank } = host;
  const mine = new Uint8Array(idBytes);
  mine.set(gpuId(device.context.busId));
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
