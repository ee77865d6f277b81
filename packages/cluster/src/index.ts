// The public entry of @weft/cluster: SPMD programs over several processes (distributed) and clusters of workers as one
// device (connect).
import { registerDevice } from "@weft/core/internal/device";
import { makeClusterDevice } from "./connect.js";

// Registers "cluster:HOST:PORT" as a device name for WEFT_DEVICE and weft.setDevice.
registerDevice({
  pattern: /^cluster:(.+:\d+)$/,
  examples: "cluster:HOST:PORT",
  available: () => true,
  list: () => [],
  create: (match) => makeClusterDevice(match[1]),
});

export { GroupError } from "@weft/core/internal/device";

export { type Cluster, connect } from "./connect.js";

export { Dispatcher } from "./dispatcher.js";

export * as distributed from "./distributed.js";

export { ClusterError } from "./errors.js";
export { LocalCluster } from "./launch.js";

export {
  type PreflightCollective,
  type PreflightFinding,
  type PreflightLink,
  type PreflightReport,
  type PreflightWorker,
  preflight,
} from "./preflight.js";
export { RayJob } from "./ray.js";

export { diffTapes, readTape, type TapeFile, type TapeStats, tapeStats } from "./tape-file.js";
export { type ReplayResult, replay } from "./tape-replay.js";
export { type ClusterStatus, watch } from "./watch.js";
export { Worker } from "./worker.js";
