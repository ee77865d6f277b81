// Process groups: how devices of several processes exchange data.
export { bytesReceived, type CollectiveAttrs, describe, membersOf, type TransferBox, transfers } from "./descriptor.js";
export { GroupError, type GroupErrorCode } from "./errors.js";
export { LinkGroup, linkPair } from "./links.js";
export { LocalGroup } from "./local.js";
export { countMoved, movedBytes } from "./moved.js";
export { findMpi, MpiGroup } from "./mpi.js";
export { arena, groupLibrary } from "./native/library.js";
export { barrierOf, groupFiles, groupPath, removeStale, ShmGroup } from "./shm.js";
