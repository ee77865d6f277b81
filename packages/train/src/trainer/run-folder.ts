// The folder of a run for other packages: its lock, run.json and the records of steps. With them, the web app shows other jobs (the
// optimization of a gate) like a training.
export { lockRun } from "./lock.js";
export { RecordWriter, type RunHead, writeTrainingRunFile } from "./records.js";
export { replaceFile } from "./run-files.js";
