import assert from "node:assert/strict";
import { test } from "node:test";
import { bySeverity, type Severity } from "./index.js";

test("findings sort by severity and keep their order otherwise", () => {
  const list: { severity: Severity; n: number }[] = [
    { severity: "low", n: 1 },
    { severity: "invalid", n: 2 },
    { severity: "high", n: 3 },
    { severity: "invalid", n: 4 },
  ];
  assert.deepEqual(
    list.sort(bySeverity).map((f) => f.n),
    [2, 4, 3, 1],
  );
});
