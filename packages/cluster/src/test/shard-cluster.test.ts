// Sharded equals unsharded on real workers: a sample of the suite (`npm run test:sharding` runs all of it, `npm run
// test:gpu-sharding` uses two workers on one GPU). Values, placements and bytes must match the lockstep oracle.
import assert from "node:assert/strict";
import { test } from "node:test";
import { CpuDevice } from "@weft/core";
import { runClusterSuite, type SuiteOptions } from "./cluster-suite.js";

const preload = new URL(import.meta.resolve("@weft/testing/emulated-cuda")).href;
const emulated = { NODE_OPTIONS: `--import ${preload}`, WEFT_CUDA_GRAPHS: "0" };
const skip = CpuDevice.available() ? false : "no C compiler";

/** The reference device compiles nothing, so more jobs fit. */
const samples: [string, SuiteOptions, number][] = [
  ["2 CPU workers", { devices: 2, device: "cpu", every: 37 }, 40],
  ["3 CPU workers, uneven parts", { devices: 3, device: "cpu", every: 53 }, 30],
  ["2 CUDA workers on an emulated driver", { devices: 2, device: "cuda:0", every: 97, env: emulated }, 15],
  ["3 reference workers", { devices: 3, device: "reference", every: 4 }, 400],
];

for (const [name, options, least] of samples) {
  test(`a sample of the sharding suite on ${name}`, { skip }, async () => {
    const report = await runClusterSuite(options);
    assert.deepEqual(report.failed, []);
    const passed = report.passed.following + report.passed.random + report.passed.gradient;
    assert.equal(passed, report.jobs);
    assert.ok(passed >= least && report.passed.gradient > 0, `only ${passed} jobs`);
    // Nearly everything that can be sharded is.
    assert.ok(report.cut >= 0.85 * report.cuttable, `${report.cut} of ${report.cuttable} were cut`);
    assert.ok(report.collectives.allGather > 0 && report.collectives.allToAll > 0);
    assert.ok(report.expectedBytes > 1000);
    assert.equal(report.movedBytes, report.expectedBytes);
    assert.equal(report.differingTwins, 0);
    if (options.devices === 3) assert.ok(report.emptyParts > 0, "some shards are empty");
  });
}
