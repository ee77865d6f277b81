// Workers as actors of a real Ray cluster with several nodes, which the test starts.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import * as weft from "@weft/core";
import { isAlive } from "@weft/testing/processes";
import { noRay, type RayNodes, startRay } from "@weft/testing/ray";
import { connect } from "./connect.js";
import { skip as noCompiler } from "./workers.testkit.js";

const skip = noCompiler || noRay();
let ray: RayNodes;
before(async () => {
  if (skip === false) ray = await startRay();
});
after(() => ray?.stop());

test("workers are actors of a placement group, are replaced by Ray, and end with the job", {
  skip,
  timeout: 180_000,
}, async () => {
  const cluster = await connect({ ray: ray.address, devices: 3, strategy: "SPREAD" });
  const started = new Set<number>();
  const note = (): void => cluster.workers.forEach(({ process }) => void started.add(process.pid));
  try {
    assert.equal(cluster.workers.length, 3);
    note();
    const x = weft.arange(10_000).reshape([100, 100]);
    assert.equal(await x.sum().item(), 49_995_000);
    const [first] = cluster.workers;
    process.kill(first.process.pid, "SIGKILL");
    for (const deadline = Date.now() + 60_000; ; await delay(200)) {
      assert.ok(Date.now() < deadline, "Ray did not replace the worker");
      const ids = cluster.workers.map(({ id }) => id);
      if (ids.length === 3 && !ids.includes(first.id)) break;
    }
    assert.equal(await x.add(1).sum().item(), 50_005_000);
    note();
    assert.ok(started.size > 3);
  } finally {
    await cluster.close();
    weft.setDevice("cpu");
  }
  for (const deadline = Date.now() + 15_000; [...started].some(isAlive); await delay(200))
    assert.ok(Date.now() < deadline, "workers were left behind");
});

test("room that Ray does not have, and a cluster that is not there, are errors that say so", {
  skip,
  timeout: 120_000,
}, async () => {
  await assert.rejects(connect({ ray: ray.address, devices: 9, timeout: 3 }), /Ray has no room for 9 processes/);
  await assert.rejects(connect({ ray: "127.0.0.1:1", devices: 1 }), /no Ray cluster at 127.0.0.1:1/);
});
