// Workers as actors of a real Ray cluster with several nodes, which the test starts.
import assert from "node:assert/strict";
import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { after, before, test } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import * as weft from "@weft/core";
import { connect } from "./connect.js";
import { skip as noCompiler } from "./workers.testkit.js";

const folder = join(homedir(), ".cache", "weft", "venvs", "ray");
const python = join(folder, "bin", "python");
const hasRay = (): boolean => spawnSync(python, ["-c", "import ray"]).status === 0;

/** Ray in an environment of its own; the reason why there is none. */
function noRay(): string | false {
  if (existsSync(python) && hasRay()) return false;
  spawnSync("python3", ["-m", "venv", folder]);
  spawnSync(python, ["-m", "pip", "install", "-q", "--retries", "1", "--timeout", "15", "ray"], { timeout: 240_000 });
  return hasRay() ? false : "no Ray (pip install ray failed); workers on Ray were not tested";
}

const skip = noCompiler || noRay();
if (skip) console.error(`SKIPPED: ${skip}`);

// Two nodes with two cores each; actors of the first can be killed.
const nodes = `
import sys, json, ray
from ray.cluster_utils import Cluster
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
cluster.add_node(num_cpus=2)
cluster.wait_for_nodes()
print(json.dumps({"address": cluster.address}), flush=True)
sys.stdin.read()
cluster.shutdown()
`;
let ray: ChildProcess | null = null;
let address = "";
before(async () => {
  if (skip) return;
  process.env.WEFT_PYTHON = python;
  ray = spawn(python, ["-c", nodes], { stdio: ["pipe", "pipe", "ignore"] });
  for await (const line of createInterface(ray.stdout!)) {
    address = (JSON.parse(line) as { address: string }).address;
    break;
  }
});
after(async () => {
  if (ray === null) return;
  const ended = new Promise((resolve) => ray!.once("exit", resolve));
  ray.stdin!.end();
  await ended;
});

const workersOf = (): number[] =>
  spawnSync("pgrep", ["-f", "cluster/dist/main.js worker"], { encoding: "utf8" })
    .stdout.split("\n")
    .filter((line) => line !== "")
    .map(Number);

test("workers are actors of a placement group, are replaced by Ray, and end with the job", {
  skip,
  timeout: 180_000,
}, async () => {
  const mine = new Set(workersOf());
  const cluster = await connect({ ray: address, devices: 3, strategy: "SPREAD" });
  const own = (): number[] => workersOf().filter((pid) => !mine.has(pid));
  try {
    assert.equal(cluster.workers.length, 3);
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
  } finally {
    await cluster.close();
    weft.setDevice("cpu");
  }
  for (const deadline = Date.now() + 15_000; own().length > 0; await delay(200))
    assert.ok(Date.now() < deadline, "workers were left behind");
});

test("room that Ray does not have, and a cluster that is not there, are errors that say so", {
  skip,
  timeout: 120_000,
}, async () => {
  await assert.rejects(connect({ ray: address, devices: 9, timeout: 3 }), /Ray has no room for 9 processes/);
  await assert.rejects(connect({ ray: "127.0.0.1:1", devices: 1 }), /no Ray cluster at 127.0.0.1:1/);
});
