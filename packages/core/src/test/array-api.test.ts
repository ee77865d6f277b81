// Conformance with the Python Array API standard: every name of the list exists, has tests, and the page is up to date.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import * as weft from "../index.js";
import { arrayApiNames } from "./array-api.js";

/** The extensions are listed in the table; only the standard itself must be complete. */
const required = Object.entries(arrayApiNames)
  .filter(([section]) => !section.startsWith("extension"))
  .flatMap(([, names]) => Object.entries(names));

test("the list has as many names as the standard", () => {
  const counts = Object.fromEntries(
    Object.entries(arrayApiNames).map(([section, names]) => [section, Object.keys(names).length]),
  );
  assert.equal(counts["element-wise functions"], 67);
  assert.equal(counts["extension linalg"], 23);
  assert.equal(counts["extension fft"], 14);
});

test("every name of the standard exists, or the list says why not", () => {
  const public_ = weft as unknown as Record<string, unknown>;
  const fft = (public_.fft ?? {}) as Record<string, unknown>;
  const missing = required.flatMap(([standard, [name, note]]) =>
    name === null
      ? note === undefined
        ? [standard]
        : []
      : name in public_ || name in fft
        ? []
        : [`${standard} (${name})`],
  );
  assert.deepEqual(missing, []);
});

test("docs/array-api.md is up to date", () => {
  const script = fileURLToPath(new URL("../../../../scripts/array-api.mjs", import.meta.url));
  execFileSync(process.execPath, [script, "--check"], { stdio: "pipe" });
});
