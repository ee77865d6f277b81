// Real PyTorch ranks that get stuck under the probe. All scenarios: node packages/lab/hangs/run.mjs.
import assert from "node:assert/strict";
import { test } from "node:test";
import { runScenario } from "../test/hang-jobs.js";
import { loudly, pythonWith } from "../test/python.js";

const torch = await pythonWith("torch");
const skip = typeof torch === "string" ? loudly(torch) : false;

for (const name of ["skip-2", "p2p-2", "stopped-2"])
  test(`weft hang explains ${name}`, { skip, timeout: 280_000 }, async () => {
    if (typeof torch === "string") return;
    const { culprit, collective, line, kind, verdict } = await runScenario(torch.python, name, 4);
    assert.deepEqual(
      { culprit, collective, line, kind },
      { culprit: true, collective: true, line: true, kind: true },
      JSON.stringify(verdict, null, 1),
    );
  });
