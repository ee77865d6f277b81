// A real Ray cluster with two nodes, for tests: Ray in an environment of its own, started and stopped by the test.
import { spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { testPython } from "./python.js";

const { python, skip } = testPython("ray", "workers and ranks on Ray");

/** Why there is no Ray, and false if there is. */
export const noRay = (): string | false => skip;

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
