// Many devices: programs over several processes, and clusters of workers as one device. The cluster's own parts (gRPC)
// are loaded when they are first used.
export { arena, barrierOf, describe, findMpi, groupFiles, groupLibrary, MpiGroup, ShmGroup } from "../device/index.js";
export type { ClusterBuffer } from "./buffer.js";
export { type Cluster, connect, makeClusterDevice } from "./connect.js";
export type { ConnectOptions } from "./connection.js";
export { ClusterDevice } from "./device.js";
export { Dispatcher, type DispatcherOptions } from "./dispatcher.js";
export * as distributed from "./distributed.js";
export { type Place, placeFrom } from "./environment.js";
export { type LaunchOptions, LocalCluster } from "./launch.js";
export { predictParts } from "./predict.js";
export { bytesOfLine, chromeTrace, diffTapes, readTape, type Tape, type TapeStats, tapeStats } from "./tape-file.js";
export { type ReplayResult, replay } from "./tape-replay.js";
export { type ClusterStatus, watch } from "./watch.js";
export { parseCores, Worker, type WorkerOptions } from "./worker.js";
