// What is known about a worker whose heartbeats stopped.
import { processState } from "./process-state.js";
import type { WorkerInfo } from "./protocol.js";
import { hostId } from "./wire.js";

/** Why a worker is suspended, and what to do. */
export function silenceOf({ id, device, process: { host, pid } }: Omit<WorkerInfo, "key">, seconds: number): string {
  const stopped = host === hostId() && processState(pid) === "T";
  const why = stopped
    ? `it is stopped; continue it with kill -CONT ${pid}, or end it`
    : `no heartbeat for ${seconds} s; its host may be down or unreachable`;
  return `worker ${id} (${device}, process ${pid}) hangs: ${why}`;
}
