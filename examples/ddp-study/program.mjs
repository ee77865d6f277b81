// @ts-check
// Measures a PyTorch DDP job at one and two processes, twice: as it should be, and with the DistributedSampler forgotten.
import { spawnSync } from "node:child_process";
import { copyFileSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { analyzeStudy, readStudies } from "@weft/lab";
import { outputFolder, small, verify, weftCommand } from "../example.mjs";

// PYTHON names a Python that has PyTorch.
const python = process.env.PYTHON ?? "python3";
if (spawnSync(python, ["-c", "import torch"], { stdio: "ignore" }).status !== 0) {
  console.log(`SKIPPED: ${python} has no PyTorch (pip install torch, or PYTHON=/path/to/python)`);
  process.exit(0);
}
const folder = mkdtempSync(join(tmpdir(), "weft-ddp-"));

/**
 * Runs `weft scale` on the job; returns the lab's analysis.
 * @param {string} name
 * @param {string[]} more
 */
async function study(name, more) {
  const job = [
    python,
    "-m",
    "torch.distributed.run",
    "--standalone",
    "--nproc_per_node={n}",
    join(import.meta.dirname, "train.py"),
    ...more,
  ];
  const args = ["scale", "--devices", "1,2", "--repeats", small ? "1" : "2", "--name", name, "--out", folder];
  const line = [weftCommand, ...args, ...(small ? ["--no-pictures"] : []), "--", ...job];
  const done = spawnSync(process.execPath, line, {
    stdio: "inherit",
    env: { ...process.env, ...(small && { SAMPLES: "2048" }) },
  });
  // 0: valid, 3: not valid, 4: undecided.
  if (![0, 3, 4].includes(done.status ?? 1)) throw new Error(`weft scale failed with exit status ${done.status}`);
  const [read] = readStudies([join(folder, name)]);
  return analyzeStudy(read).report;
}

try {
  const wrong = await study("wrong", ["--no-sampler"]);
  const ids = (/** @type {typeof wrong} */ report) => report.findings.map(({ id }) => id);
  verify("the forgotten sampler is found", ids(wrong).includes("work-not-divided"));
  if (!small) {
    verify("and not where there is one", !ids(await study("right", [])).includes("work-not-divided"));
    for (const name of ["right", "wrong"])
      copyFileSync(
        join(folder, name, "report", `${name}_speedup_efficiency.png`),
        join(outputFolder(import.meta.dirname), `${name}.png`),
      );
  }
} finally {
  rmSync(folder, { recursive: true, force: true });
}
