// @ts-check
// Writes a SLURM job for a training, checks it, and submits it where there is a SLURM; elsewhere it runs the same command here.
import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { lineChart, savePicture, small, verify, weftCommand } from "../example.mjs";

const folder = mkdtempSync(join(tmpdir(), "weft-slurm-"));
/**
 * Runs a command; returns what it printed.
 * @param {string} command
 * @param {string[]} args
 */
function run(command, args) {
  const done = spawnSync(command, args, { encoding: "utf8", cwd: folder });
  return { status: done.status, text: done.stdout ?? "" };
}
const weft = (/** @type {string[]} */ ...args) => run(process.execPath, [weftCommand, ...args]);

try {
  // The script of a well-known guide: SLURM starts four tasks, and each of them starts four processes.
  const { text: problems } = weft("lint", join(import.meta.dirname, "wrong.sh"));
  console.log(problems);
  verify("weft lint finds the sixteen processes for four GPUs", problems.includes("16 processes for 4 GPUs"));

  const config = join(import.meta.dirname, "train.yaml");
  const train = ["train", config, "--devices", "2", "--out", join(folder, "run"), ...(small ? ["--epochs", "2"] : [])];
  const script = join(folder, "job.sh");
  weft(...train, "--slurm", script, "--time", "00:10:00");
  console.log(readFileSync(script, "utf8"));
  verify("weft lint finds nothing in the script of weft train", weft("lint", script).status === 0);

  if (run("sinfo", []).status === 0) {
    // Compute nodes that have no `weft` on their path use that of this checkout.
    writeFileSync(
      script,
      readFileSync(script, "utf8").replace(" weft train", ` ${process.execPath} ${weftCommand} train`),
    );
    verify("the job ended well", run("sbatch", ["--wait", "--output", join(folder, "job.out"), script]).status === 0);
  } else {
    console.log("There is no SLURM here (sinfo does not answer): the same training runs without it.");
    verify("the training ended well", weft(...train).status === 0);
  }
  const [, ...rows] = readFileSync(join(folder, "run/metrics.csv"), "utf8").trim().split("\n");
  const losses = rows.map((row) => Number(row.split(",")[1]));
  verify("the loss fell", losses.at(-1) !== undefined && /** @type {number} */ (losses.at(-1)) < losses[0]);
  savePicture(
    import.meta.dirname,
    "loss.svg",
    lineChart([{ name: "training loss", x: losses.map((_, k) => k + 1), y: losses }], {
      title: "Two ranks under SLURM",
      x: "epoch",
      y: "loss",
    }),
  );
} finally {
  rmSync(folder, { recursive: true, force: true });
}
