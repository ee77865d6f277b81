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

export {
  arena,
  barrierOf,
  describe,
  findMpi,
  GroupError,
  type GroupErrorCode,
  groupFiles,
  groupLibrary,
  MpiGroup,
  ShmGroup,
} from "@weft/core/internal/device";
export type { ClusterBuffer } from "./buffer.js";
export { type Cluster, connect } from "./connect.js";
export type { ConnectOptions } from "./connection.js";
export { ClusterDevice } from "./device.js";
export { Dispatcher } from "./dispatcher.js";
export type { DispatcherOptions } from "./dispatcher-state.js";
export * as distributed from "./distributed.js";
export { localDeviceIndex, type RankEnvironment, rankFromEnvironment } from "./environment.js";
export { ClusterError } from "./errors.js";
export { type LaunchOptions, LocalCluster } from "./launch.js";
export { predictParts } from "./predict.js";
export {
  type PreflightCollective,
  type PreflightFinding,
  type PreflightLink,
  type PreflightOptions,
  type PreflightReport,
  type PreflightWorker,
  preflight,
} from "./preflight.js";
export { type RayEvent, RayJob, type RayOptions } from "./ray.js";
export { endWithParent, lockFile } from "./system.js";
export {
  bytesOfLine,
  chromeTrace,
  diffTapes,
  readTape,
  type TapeFile,
  type TapeStats,
  tapeStats,
} from "./tape-file.js";
export { type ReplayResult, replay } from "./tape-replay.js";
export { type ClusterStatus, watch } from "./watch.js";
export { Worker, type WorkerOptions } from "./worker.js";
