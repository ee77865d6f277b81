// Records and traces of real jobs on one H200 (scalefault/gpu_suite.py): faults are named, and idle time that only the profiler
// makes is no finding.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { brotliDecompressSync, gzipSync } from "node:zlib";
import { readStudies } from "../import/index.js";
import { TestFolder, testdata } from "../trace/fixtures.testkit.js";
import { analyzeTraces } from "../trace/index.js";
import { analyzeStudy, attachTraces, traceFindings } from "./index.js";

const unpack = (name: string): Buffer => brotliDecompressSync(readFileSync(testdata(`gpu_jobs/${name}.br`)));

/** Writes the study of a job; returns its folder and its trace. */
function writeStudy(folder: TestFolder, job: string): { home: string; trace: string } {
  const run = { v: 1, id: "n1-r0", devices: 1, repeat: 0, order: 0, command: [job], status: "ok", seconds: 2 };
  const study = { v: 1, name: job, command: [job], counts: [1], repeats: 1, launcher: "local" };
  folder.file(`${job}/study.json`, JSON.stringify(study));
  folder.file(`${job}/runs/n1-r0/run.json`, JSON.stringify(run));
  folder.file(`${job}/runs/n1-r0/rank0.jsonl`, unpack(`${job}.jsonl`));
  const trace = folder.file(`${job}/runs/n1-r0/traces/rank0.pt.trace.json.gz`, gzipSync(unpack(`${job}.trace.json`)));
  return { home: join(folder.path, job), trace };
}

const causes: [job: string, cause: string | null][] = [
  ["healthy-transformer", null],
  ["no-tensor-cores", "trace-no-tensor-cores"],
  ["empty-cache", "trace-allocation"],
  ["unpinned-copies", "trace-copies"],
];

for (const [job, cause] of causes)
  test(`the cause of a real job on one GPU: ${job}`, async () => {
    using folder = new TestFolder();
    const { home, trace } = writeStudy(folder, job);
    const [study] = readStudies([home]);
    await attachTraces(study!);
    const { report } = analyzeStudy(study!);
    assert.equal(report.mainCause, cause, report.findings.map((f) => f.id).join(", "));
    for (const { id, predicted } of report.findings)
      if (id.startsWith("trace-") && predicted?.to != null && predicted.interval !== null) {
        const [low, high] = predicted.interval;
        assert.ok(0 < low && low <= predicted.to && predicted.to <= high && high <= predicted.from!);
      }
    if (cause !== null) return;
    // Without the run's own steps the profiler's idle time cannot be told from the job's.
    const alone = traceFindings(await analyzeTraces([trace]));
    assert.deepEqual(
      alone.map((f) => f.id),
      ["trace-host-bound"],
    );
    assert.match(alone[0]!.alternatives!.join(), /profiler itself slows the host/);
  });
