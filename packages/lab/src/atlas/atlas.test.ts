// Import and audit of public results: small logs in the form of MLPerf submissions.
import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { ImportError } from "../import/index.js";
import { query, writeTables } from "../store/index.js";
import { TestFolder } from "../trace/fixtures.testkit.js";
import { auditSubmissions, readSubmissions, submissionTables, vtrainTables } from "./index.js";

interface Made {
  submitter: string;
  devices: number;
  batch: number;
  throughput: number;
  minutes: number;
  samples?: number;
  /** Samples that the events of blocks count per step. */
  perStep?: number;
}

function write(folder: TestFolder, m: Made): void {
  const system = `${m.devices}x`;
  const event = (key: string, value: unknown, ms: number, metadata: object = {}) =>
    `0: :::MLLOG ${JSON.stringify({ namespace: "", time_ms: ms, key, value, metadata })}\n`;
  const end = m.minutes * 60_000;
  const log =
    "some other output\n" +
    event("submission_benchmark", "toy", 0) +
    event("global_batch_size", m.batch, 0) +
    event("run_start", null, 0) +
    event("tracked_stats", { throughput: m.throughput }, end / 2) +
    (m.perStep === undefined
      ? ""
      : [10, 20, 30]
          .map((step) => event("block_stop", null, end, { step, samples_count: 500 + step * m.perStep! }))
          .join("")) +
    (m.samples === undefined ? "" : event("eval_accuracy", 0.3, end, { samples_count: m.samples })) +
    event("run_stop", null, end, { status: "success" }) +
    ":::MLLOG {broken\n";
  folder.file(`v9.9/${m.submitter}/results/${system}/toy/result_0.txt`, log);
  folder.file(
    `v9.9/${m.submitter}/systems/${system}.json`,
    JSON.stringify({ number_of_nodes: String(m.devices / 4), accelerators_per_node: "4", accelerator_model_name: "X" }),
  );
}

// 1.2 million samples to the target.
const honest: Made[] = [
  { submitter: "A", devices: 4, batch: 256, throughput: 1000, minutes: 20 },
  { submitter: "A", devices: 8, batch: 256, throughput: 1900, minutes: 10.6 },
  { submitter: "B", devices: 8, batch: 256, throughput: 2000, minutes: 10.2 },
  { submitter: "A", devices: 16, batch: 512, throughput: 3700, minutes: 5.8 },
  { submitter: "B", devices: 32, batch: 512, throughput: 7000, minutes: 3.1 },
];

test("honest submissions have no contradictions; a throughput per device and an unexplained time are found with their lines", () => {
  using folder = new TestFolder();
  for (const m of honest) write(folder, m);
  const place = join(folder.path, "v9.9");
  assert.deepEqual(auditSubmissions(readSubmissions(place)), []);
  write(folder, { submitter: "C", devices: 8, batch: 256, throughput: 245, minutes: 10.4 });
  write(folder, { submitter: "D", devices: 8, batch: 256, throughput: 1950, minutes: 26 });
  write(folder, { submitter: "E", devices: 4, batch: 256, throughput: 990, minutes: 20, samples: 9e6 });
  // Samples and steps may start anywhere; only their growth must fit the batch.
  write(folder, { submitter: "F", devices: 4, batch: 256, throughput: 1010, minutes: 20, perStep: 256 });
  write(folder, { submitter: "G", devices: 4, batch: 256, throughput: 1010, minutes: 20, perStep: 64 });
  const submissions = readSubmissions(place);
  assert.deepEqual(
    submissions.find((s) => s.submitter === "C"),
    {
      ...submissions.find((s) => s.submitter === "C")!,
      round: "v9.9",
      devices: 8,
      globalBatch: 256,
      throughput: 245,
      accelerator: "X",
    },
  );
  const findings = auditSubmissions(submissions);
  assert.deepEqual(
    findings.map((f) => [f.submitter, f.id]),
    [
      ["C", "throughput-per-device"],
      ["D", "time-not-explained"],
      ["E", "samples-do-not-multiply"],
      ["G", "batch-times-steps"],
    ],
  );
  assert.match(findings[0]!.rows[0]!, /C\/results\/8x\/toy\/result_0\.txt:5$/);
  assert.ok(findings.every((f) => f.readings.length > 0));
});

test("submissions and vTrain's rows become tables for SQL; a folder without results is an error", async () => {
  using folder = new TestFolder();
  for (const m of honest) write(folder, m);
  folder.file(
    "vt/data/ground_truth_single.csv",
    "\ufeff# GPUs,global batch,iteration time (ms)\n2,16,372.1\n8,32,219.7\n",
  );
  const db = join(folder.path, "atlas.duckdb");
  await writeTables(db, [
    ...submissionTables(readSubmissions(join(folder.path, "v9.9"))),
    ...vtrainTables(join(folder.path, "vt")),
  ]);
  const [row] = await query(db, "SELECT count(*) AS n, max(devices) AS most FROM submissions");
  assert.deepEqual(row, { n: 5, most: 32 });
  const [mean] = await query(db, 'SELECT avg("iteration time (ms)") AS ms FROM vtrain_single');
  assert.ok(Math.abs((mean!["ms"] as number) - 295.9) < 1e-9);
  folder.file("empty/x", "");
  assert.throws(() => readSubmissions(join(folder.path, "empty")), ImportError);
  assert.throws(() => vtrainTables(join(folder.path, "empty")), ImportError);
});
