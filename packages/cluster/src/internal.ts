// What only other packages of the workspace use, with the public API: `@weft/cluster/internal`. It may change without notice.

export { arena, barrierOf, describe, groupFiles, groupLibrary, MpiGroup, ShmGroup } from "@weft/core/internal/device";
export type { ClusterBuffer } from "./buffer.js";
export { localDeviceIndex, rankFromEnvironment } from "./environment.js";
export * from "./index.js";
export { predictParts } from "./predict.js";
export type { RayOptions } from "./ray.js";
export { endWithParent, lockFile } from "./system.js";
export { bytesOfLine, chromeTrace } from "./tape-file.js";
