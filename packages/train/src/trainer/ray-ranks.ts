// Starts the ranks of a run as actors of a Ray cluster. The nodes need a common file system for data and the run's folder.
import { randomBytes } from "node:crypto";
import { createServer } from "node:net";
import { RayJob, type RayOptions } from "@weft/cluster/internal";
import { TrainError } from "./errors.js";
import { RankDeath, type RanksOptions } from "./ranks.js";

const firstPort = 9100;

/** A port that is free on this machine; on others one that is rarely used. */
const freePort = (local: boolean): Promise<number> =>
  new Promise((resolve, reject) => {
    if (!local) {
      resolve(firstPort + Math.floor(Math.random() * 400));
      return;
    }
    const probe = createServer().once("error", reject);
    probe.listen(0, "127.0.0.1", () => {
      const { port } = probe.address() as { port: number };
      probe.close(() => resolve(port));
    });
  });

/** Runs all ranks on a Ray cluster. Rejects with one error when one of them fails, and ends the others. */
export async function launchOnRay(
  options: RanksOptions,
  ray: Pick<RayOptions, "ray" | "gpus" | "strategy">,
): Promise<void> {
  const { size, coresPerRank, command, signal } = options;
  const job = await RayJob.connect({ ...ray, devices: size, cores: coresPerRank }, false);
  const stop = (): void => void job.stop();
  signal?.addEventListener("abort", stop, { once: true });
  try {
    const host = job.isLocal ? "localhost" : job.addresses[0];
    job.start({
      command,
      env: {
        WEFT_WORLD_SIZE: String(size),
        WEFT_GROUP: `weft-train-${randomBytes(8).toString("hex")}`,
        WEFT_THREADS: String(coresPerRank),
        WEFT_RENDEZVOUS: `${host}:${await freePort(job.isLocal)}`,
        WEFT_WORKER_TOKEN: randomBytes(32).toString("hex"),
      },
      each: Array.from({ length: size }, (_, rank) => ({ WEFT_RANK: String(rank) })),
    });
    const running = new Set(Array.from({ length: size }, (_, rank) => rank));
    while (running.size > 0) {
      const event = await job.next();
      if (event === undefined || event.t === "failed") {
        if (signal?.aborted) return;
        throw job.problem(event);
      }
      if (event.t === "output" && event.process === 0 && options.quiet !== true) process.stdout.write(event.text);
      if (event.t === "lost" && !signal?.aborted)
        throw new RankDeath(`rank ${event.process} of ${size} was lost by Ray: ${event.message}`);
      if (event.t !== "ended") continue;
      running.delete(event.process);
      if (event.code < 0) throw new RankDeath(`rank ${event.process} of ${size} was ended by signal ${-event.code}`);
      if (event.code !== 0)
        throw new TrainError(
          `rank ${event.process} of ${size} ended with code ${event.code}; its last output:\n  ${job.lines.slice(-5).join("\n  ")}`,
        );
    }
  } finally {
    signal?.removeEventListener("abort", stop);
    await job.stop();
  }
}
