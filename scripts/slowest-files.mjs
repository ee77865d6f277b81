// A reporter of node:test that lists the test files that took longest, in seconds of wall time, with the processor seconds of
// their processes. scripts/test.mjs adds it.
import { existsSync, readFileSync } from "node:fs";
import { relative } from "node:path";
import { root } from "./setup.mjs";
import { timesOf } from "./test-folders.mjs";

const shown = Number(process.env.WEFT_TEST_SLOWEST ?? 15);

function processorTime(file) {
  const path = timesOf(process.env.WEFT_TEST_FOLDER ?? "", file);
  return existsSync(path) ? Number(readFileSync(path, "utf8")) : 0;
}

export default async function* slowestFiles(events) {
  const seconds = new Map();
  for await (const { type, data } of events) {
    if ((type !== "test:pass" && type !== "test:fail") || data.nesting !== 0 || data.file === undefined) continue;
    const file = relative(root, data.file);
    seconds.set(file, (seconds.get(file) ?? 0) + data.details.duration_ms / 1e3);
  }
  const files = [...seconds].sort((a, b) => b[1] - a[1]);
  if (files.length < 2) return;
  const total = files.reduce((sum, [file]) => sum + processorTime(file), 0);
  yield `slowest files (of ${seconds.size}; ${total.toFixed(0)} s of processor time in all):\n`;
  for (const [file, time] of files.slice(0, shown))
    yield `${time.toFixed(1).padStart(7)} s ${processorTime(file).toFixed(1).padStart(7)} s of processor time  ${file}\n`;
}
