// Work in threads: analyses, timelines, quantum systems.
export { Jobs } from "./worker.js";
