// The thread of heartbeat.ts: connects to the dispatcher that the worker names and reports to it.
import { parentPort } from "node:worker_threads";
import type { HeartbeatOptions } from "./heartbeat.js";
import { encode, type Heartbeat } from "./protocol.js";
import { openStream } from "./wire.js";

let current: HeartbeatOptions | null = null;
const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

/** Reports until the worker is told of another dispatcher. */
async function report(options: HeartbeatOptions): Promise<void> {
  const { host, port, security, worker, key } = options;
  const beat: Heartbeat = { t: "heartbeat", worker, key };
  while (current === options) {
    try {
      const { stream, close } = await openStream(host, port, "heartbeat", security, false);
      let open = true;
      const ended = (): void => {
        open = false;
      };
      stream.on("error", ended);
      stream.on("end", ended);
      stream.on("data", () => {});
      while (open && current === options) {
        stream.write(encode(beat));
        await pause(1000);
      }
      close();
    } catch {
      // The dispatcher may be restarting; the worker then reports as another one.
    }
    await pause(500);
  }
}

parentPort?.on("message", (options: HeartbeatOptions | null) => {
  current = options;
  if (options !== null) void report(options);
});
