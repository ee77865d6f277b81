// Statistics of samples and facts about the machine, shared by `weft bench` and the suites of the repository.
export * from "./machine.js";
export * from "./pipelined.js";
export * from "./stats.js";
