// Many devices: programs over several processes.

export { arena, barrierOf, describe, findMpi, groupFiles, groupLibrary, MpiGroup, ShmGroup } from "../device/index.js";
export * as distributed from "./distributed.js";
export { type Place, placeFrom } from "./environment.js";
