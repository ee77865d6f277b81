// A reporter of node:test that lists the test files that took longest, in seconds of wall time. scripts/test.mjs adds it.
import { relative } from "node:path";
import { root } from "./setup.mjs";

const shown = 15;

export default async function* slowestFiles(events) {
  const seconds = new Map();
  for await (const { type, data } of events) {
    if ((type !== "test:pass" && type !== "test:fail") || data.nesting !== 0 || data.file === undefined) continue;
    seconds.set(data.file, (seconds.get(data.file) ?? 0) + data.details.duration_ms / 1e3);
  }
  const files = [...seconds].sort((a, b) => b[1] - a[1]).slice(0, shown);
  if (files.length < 2) return;
  yield `slowest files (of ${seconds.size}):\n`;
  for (const [file, time] of files) yield `${time.toFixed(1).padStart(7)} s  ${relative(root, file)}\n`;
}
