import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { emptyRun, type Study } from "../model/index.js";
import { query, studyTables, writeTables } from "./index.js";

function study(): Study {
  const run = emptyRun("r1", 2, { kind: "jsonl", path: "r1.jsonl" });
  run.workload = { datasetSamples: 640 };
  run.epochs = [
    { epoch: 1, seconds: 4, trainLoss: Number.NaN, line: 2 },
    { epoch: 2, seconds: 2, trainLoss: 0.5, line: 3 },
  ];
  run.steps = [{ rank: 1, step: 0, durationUs: 1500.5, samples: 32 }];
  run.samples = [{ t: 1, host: { cpuPercent: 50 }, devices: [{ index: 0, utilizationPercent: 90 }] }];
  return { name: "S'1", runs: [run], problems: [] };
}

test("studies can be queried with SQL, and writing again replaces the tables", async () => {
  const directory = mkdtempSync(join(tmpdir(), "weft-store-"));
  const path = join(directory, "lab.duckdb");
  try {
    await writeTables(path, studyTables([study()]));
    const counts = await writeTables(path, studyTables([study()]));
    assert.deepEqual(counts, { runs: 1, epochs: 2, steps: 1, samples: 1, facts: 1 });
    const rows = await query(
      path,
      "SELECT run, sum(seconds) AS s, count(train_loss) AS losses FROM epochs GROUP BY run",
    );
    assert.deepEqual(rows, [{ run: "r1", s: 6, losses: 1 }]);
    assert.deepEqual(await query(path, "SELECT study, duration_us, rank FROM steps"), [
      { study: "S'1", duration_us: 1500.5, rank: 1 },
    ]);
    await assert.rejects(query(path, "SELECT nonsense FROM epochs"), /nonsense/);
  } finally {
    rmSync(directory, { recursive: true });
  }
});
