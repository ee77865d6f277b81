// A reporter of node:test that lists the processor time of every package and the test files that took longest, in seconds of
// wall time and processor time.
import { existsSync, readFileSync } from "node:fs";
import { relative } from "node:path";
import { root } from "./setup.mjs";
import { timesOf } from "./test-folders.mjs";

const shown = Number(process.env.WEFT_TEST_SLOWEST ?? 15);

function processorTime(file) {
  const path = timesOf(process.env.WEFT_TEST_FOLDER ?? "", file);
  return existsSync(path) ? Number(readFileSync(path, "utf8")) : 0;
}

const padded = (seconds) => seconds.toFixed(1).padStart(7);

export default async function* slowestFiles(events) {
  const began = Date.now();
  const seconds = new Map();
  for await (const { type, data } of events) {
    if ((type !== "test:pass" && type !== "test:fail") || data.nesting !== 0 || data.file === undefined) continue;
    const file = relative(root, data.file);
    seconds.set(file, (seconds.get(file) ?? 0) + data.details.duration_ms / 1e3);
  }
  const files = [...seconds].map(([file, wall]) => ({ file, wall, processor: processorTime(file) }));
  if (files.length < 2) return;
  const total = files.reduce((sum, { processor }) => sum + processor, 0);
  yield `${files.length} files: ${total.toFixed(0)} s of processor time in ${((Date.now() - began) / 1e3).toFixed(0)} s\n`;
  const packages = new Map();
  for (const { file, processor } of files) {
    const name = file.split("/").slice(0, 2).join("/");
    packages.set(name, (packages.get(name) ?? 0) + processor);
  }
  for (const [name, time] of [...packages].sort((a, b) => b[1] - a[1])) yield `${padded(time)} s  ${name}\n`;
  yield "slowest files (processor time, wall time):\n";
  for (const { file, wall, processor } of files.sort((a, b) => b.processor - a.processor).slice(0, shown))
    yield `${padded(processor)} s ${padded(wall)} s  ${file}\n`;
}
