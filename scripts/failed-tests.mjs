// A reporter of node:test that lists, after everything else, the tests that were skipped with their reasons and those that failed
// with their messages: in a log of thousands of tests nobody finds them otherwise, and the end of a log is what is kept.
import { relative } from "node:path";
import { root } from "./setup.mjs";

const shown = 50;
const firstLines = (text) => String(text).split("\n").slice(0, 12).join("\n    ");

export default async function* failedAndSkipped(events) {
  const skipped = [];
  const failed = [];
  for await (const { type, data } of events) {
    if (type !== "test:pass" && type !== "test:fail") continue;
    const name = `${data.file === undefined ? "" : `${relative(root, data.file)}: `}${data.name}`;
    if (data.skip !== undefined && data.skip !== false) skipped.push(`${name} (${data.skip || "no reason given"})`);
    // A suite fails because a test in it did; that test is listed.
    else if (type === "test:fail" && data.details.error?.failureType !== "subtestsFailed" && !data.todo)
      failed.push(`${name}\n    ${firstLines(data.details.error?.cause?.message ?? data.details.error?.message)}`);
  }
  for (const [what, lines] of [
    ["skipped", skipped],
    ["failed", failed],
  ]) {
    for (const line of lines.slice(0, shown)) yield `weft: ${what}: ${line}\n`;
    if (lines.length > shown) yield `weft: ${what}: ${lines.length - shown} more\n`;
  }
}
