// weft train on a real Ray cluster with two nodes.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { CpuDevice } from "@weft/core/internal/device";
import { noRay, type RayNodes, startRay } from "@weft/testing/ray";

const skip = CpuDevice.available() ? noRay() : "no C compiler";
let ray: RayNodes;
before(async () => {
  if (skip === false) ray = await startRay();
});
after(() => ray?.stop());

test("weft train --launcher ray trains over the nodes of the cluster, with the losses of local ranks", {
  skip,
  timeout: 180_000,
}, async () => {
  const folder = mkdtempSync(join(tmpdir(), "weft-ray-train-"));
  const cli = fileURLToPath(new URL("../main.js", import.meta.url));
  const config = fileURLToPath(new URL("../../../../configs/synthetic.yaml", import.meta.url));
  const losses = (launcher: string): number[] => {
    const output = join(folder, launcher);
    const line = ["train", config, "--devices", "2", "--max-steps", "6", "--no-evaluate", "--output", output];
    const run = spawnSync(process.execPath, [cli, ...line, "--launcher", launcher, "--ray", ray.address], {
      encoding: "utf8",
      cwd: folder,
    });
    assert.equal(run.status, 0, run.stderr + run.stdout);
    const records = readFileSync(join(output, "rank0.jsonl"), "utf8").trim().split("\n");
    return records.map((record) => (JSON.parse(record) as { loss?: number }).loss).filter((loss) => loss !== undefined);
  };
  try {
    const local = losses("local");
    assert.ok(local.length >= 6);
    assert.deepEqual(losses("ray"), local);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});
