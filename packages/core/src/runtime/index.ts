// Sessions: compile, cache and run functions on a device, and manage its memory.
export { measureDevice, ratesOf } from "./calibrate.js";
export { allAgree, collectiveProbe, measureGroup, measureLinks, slowestRates } from "./calibrate-links.js";
export { assertClosed } from "./closed.js";
export type { Compiled } from "./compiled.js";
export { setDebugLevel } from "./debug.js";
export { isQuiet } from "./effort.js";
export { ConstantLifter } from "./lift.js";
export { captureSite, type MemoryReport, memoryManager, TensorValue } from "./memory.js";
export { isSearching, setSearch } from "./nans.js";
export { profiler } from "./profile.js";
export { knownRates, type SavedRates, savedRates, saveRates } from "./rates-file.js";
export {
  boundPending,
  dataNode,
  forGradient,
  materializeWhenComputed,
  Session,
  session,
  setDefaultDevice,
  useDevice,
} from "./session.js";
export { instructionRecords, tape } from "./tape.js";
export { isTracing, nextCollective, tracing } from "./tracing.js";
