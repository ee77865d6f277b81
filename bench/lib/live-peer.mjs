// A peer that stays alive and runs one round when it is asked: rounds of both sides alternate, so that the clock and the
// heat of the GPU, which change by several percent within a minute, are the same for both.
import { spawn, spawnSync } from "node:child_process";
import { createInterface } from "node:readline";

/** Null where Python has no PyTorch with a GPU. */
export function startLivePeer(script) {
  const probe = spawnSync("python3", ["-c", "import torch; assert torch.cuda.is_available()"], { timeout: 120_000 });
  if (probe.status !== 0) return null;
  const child = spawn("python3", [script], { stdio: ["pipe", "pipe", "inherit"] });
  const waiting = [];
  let ended = null;
  createInterface({ input: child.stdout }).on("line", (line) => waiting.shift()?.resolve(JSON.parse(line)));
  child.on("exit", (code) => {
    ended = new Error(`the live peer ended with status ${code}`);
    for (const { reject } of waiting.splice(0)) reject(ended);
  });
  return {
    /** The answer to one request. */
    ask: (job) =>
      new Promise((resolve, reject) => {
        if (ended) return reject(ended);
        waiting.push({ resolve, reject });
        child.stdin.write(`${JSON.stringify(job)}\n`);
      }),
    stop: () => child.stdin.end(),
  };
}
