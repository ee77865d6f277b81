// Many devices: programs over several processes.
export * as distributed from "./distributed.js";
export { type Place, placeFrom } from "./environment.js";
