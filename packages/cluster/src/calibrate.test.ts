// Rates that workers report without measuring: cached rates, or none if rates are assumed.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { h200, type Rates } from "@weft/core/internal/cost";
import { ReferenceDevice } from "@weft/core/internal/device";
import { saveRates } from "@weft/core/internal/runtime";
import { workerRates } from "./calibrate.js";

function withEnvironment(values: Record<string, string | undefined>, body: () => void): void {
  const before = Object.keys(values).map((name) => [name, process.env[name]] as const);
  const set = (name: string, value: string | undefined): void => {
    if (value === undefined) delete process.env[name];
    else process.env[name] = value;
  };
  try {
    for (const [name, value] of Object.entries(values)) set(name, value);
    body();
  } finally {
    for (const [name, value] of before) set(name, value);
  }
}

test("workers report cached rates of the same worker count; WEFT_RATES=assumed reports none", () => {
  const folder = mkdtempSync(join(tmpdir(), "weft-worker-rates-"));
  const device = new ReferenceDevice();
  const rates: Rates = { ...h200, name: "measured before", assumed: false };
  const neighbors = { rank: 0, count: 4, name: "nobody" };
  try {
    withEnvironment({ WEFT_CACHE_DIR: folder, WEFT_RATES: "measured" }, () => {
      assert.equal(workerRates(device, {}), null);
      saveRates(device, rates);
      assert.equal(workerRates(device, {})?.name, "measured before");
      assert.equal(workerRates(device, { neighbors }), null);
      saveRates(device, { ...rates, name: "four together" }, 4);
      assert.equal(workerRates(device, { neighbors })?.name, "four together");
      assert.equal(workerRates(device, { calibrate: false }), null);
    });
    withEnvironment({ WEFT_CACHE_DIR: folder, WEFT_RATES: "assumed" }, () =>
      assert.equal(workerRates(device, { neighbors }), null),
    );
    // Only the variable counts, not which program reads it.
    withEnvironment({ WEFT_CACHE_DIR: folder, WEFT_RATES: undefined, NODE_TEST_CONTEXT: "child" }, () =>
      assert.equal(workerRates(device, {})?.name, "measured before"),
    );
  } finally {
    rmSync(folder, { recursive: true });
  }
});
