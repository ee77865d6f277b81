// The folder of a run for other packages: its lock, run.json and the records of steps, so that what is not a training (the optimization
// of a gate) is followed like one.
export { lockRun } from "./lock.js";
export { RecordWriter, type RunHead, writeTrainingRunFile } from "./records.js";
export { replaceFile } from "./run-files.js";
