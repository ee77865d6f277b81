// Runs test files in the order given, some at a time, and reports the results and the processor time of every package.
// scripts/test.mjs starts it.
import { run } from "node:test";
import { spec, tap } from "node:test/reporters";
import failedAndSkipped from "./failed-tests.mjs";
import slowestFiles from "./slowest-files.mjs";

const [concurrency, ...files] = process.argv.slice(2);
// `node --test` sorts files by name; here the longest ones come first, so that none of them is left for the end.
const events = run({ files, concurrency: Number(concurrency) });
events.on("test:fail", ({ todo }) => {
  if (todo === undefined || todo === false) process.exitCode = 1;
});
// Three reporters read the events.
events.setMaxListeners(30);
events.compose(process.stdout.isTTY ? new spec() : tap).pipe(process.stdout);
events.compose(slowestFiles).pipe(process.stdout);
events.compose(failedAndSkipped).pipe(process.stdout);
