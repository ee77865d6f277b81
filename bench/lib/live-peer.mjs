// A peer that stays alive and runs one round when it is asked: rounds of both sides alternate, so that the clock and the
// heat of the GPU, which change by several percent within a minute, are the same for both.
import { spawn, spawnSync } from "node:child_process";
import { createInterface } from "node:readline";

/** Null where Python has no PyTorch that can use the device ("cuda", or "cpu" to exercise the protocol). */
export function startLivePeer(script, { python = "python3", device = "cuda" } = {}) {
  const needs = device === "cuda" ? "import torch; assert torch.cuda.is_available()" : "import torch";
  if (spawnSync(python, ["-c", needs], { timeout: 120_000 }).status !== 0) return null;
  const env = { ...process.env, WEFT_LIVE_DEVICE: device };
  const child = spawn(python, [script], { stdio: ["pipe", "pipe", "inherit"], env });
  const waiting = new Map();
  let next = 0;
  let ended = null;
  const end = (reason) => {
    ended ??= new Error(reason);
    for (const { reject } of waiting.values()) reject(ended);
    waiting.clear();
  };
  createInterface({ input: child.stdout }).on("line", (line) => {
    const { id, error, ...answer } = JSON.parse(line);
    const asked = waiting.get(id);
    waiting.delete(id);
    if (error !== undefined) asked?.reject(new Error(`the live peer: ${error}`));
    else asked?.resolve(answer);
  });
  child.stdin.on("error", () => {});
  child.on("error", (error) => end(`the live peer could not be started: ${error.message}`));
  child.on("exit", (code, signal) => end(`the live peer ended with status ${code ?? signal}`));
  return {
    get ended() {
      return ended;
    },
    /** The answer to one request. A peer that does not answer in time is ended: what it would say later is no one's. */
    async ask(job, seconds = 120) {
      if (ended) throw ended;
      const id = next++;
      const late = setTimeout(() => {
        end(`the live peer did not answer within ${seconds} s`);
        child.kill("SIGKILL");
      }, seconds * 1000);
      try {
        return await new Promise((resolve, reject) => {
          waiting.set(id, { resolve, reject });
          child.stdin.write(`${JSON.stringify({ id, ...job })}\n`);
        });
      } finally {
        clearTimeout(late);
      }
    },
    stop: () => child.stdin.end(),
  };
}
