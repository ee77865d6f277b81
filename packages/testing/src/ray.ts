// A real Ray cluster with two nodes, for tests: Ray in an environment of its own, started and stopped by the test.
import { spawn, spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

const folder = join(homedir(), ".cache", "weft", "venvs", "ray");
const python = join(folder, "bin", "python");
const hasRay = (): boolean => spawnSync(python, ["-c", "import ray"]).status === 0;

/** Installs Ray if needed; why there is none, and false if there is. */
export function noRay(): string | false {
  if (existsSync(python) && hasRay()) return false;
  spawnSync("python3", ["-m", "venv", folder]);
  spawnSync(python, ["-m", "pip", "install", "-q", "--retries", "1", "--timeout", "15", "ray"], { timeout: 240_000 });
  if (hasRay()) return false;
  const reason = "no Ray (pip install ray failed); nothing was tested on Ray";
  console.error(`SKIPPED: ${reason}`);
  return reason;
}

export interface RayNodes {
  address: string;
  stop(): Promise<void>;
}

const program = `
import sys, json
from ray.cluster_utils import Cluster
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
cluster.add_node(num_cpus=2)
cluster.wait_for_nodes()
print(json.dumps({"address": cluster.address}), flush=True)
sys.stdin.read()
cluster.shutdown()
`;

/** Starts two nodes with two cores each. */
export async function startRay(): Promise<RayNodes> {
  process.env.WEFT_RAY_PYTHON = python;
  const child = spawn(python, ["-c", program], { stdio: ["pipe", "pipe", "ignore"] });
  const lines = createInterface(child.stdout);
  const { value } = await lines[Symbol.asyncIterator]().next();
  const { address } = JSON.parse(String(value)) as { address: string };
  const stop = async (): Promise<void> => {
    const ended = new Promise((resolve) => child.once("exit", resolve));
    child.stdin.end();
    await ended;
  };
  return { address, stop };
}
