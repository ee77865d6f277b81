// Heartbeats of a worker: reports to the dispatcher every second that the process lives, and
// learns which clients have left while the worker computes. Runs in the background thread.
import type { WorkWatch } from "./current-work.js";
import { decode, encode, type Heartbeat, toHeartbeat } from "./protocol.js";
import type { Security } from "./security.js";
import { openStream } from "./wire.js";

/** Where and as which worker the thread reports. */
export interface HeartbeatOptions {
  host: string;
  port: number;
  security: Security;
  worker: string;
  key: string;
}

let current: HeartbeatOptions | null = null;
const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

/** Reports until the worker gets another dispatcher. */
export async function reportHeartbeats(options: HeartbeatOptions | null, work: () => WorkWatch | null): Promise<void> {
  current = options;
  work()?.forgetClients();
  if (options === null) return;
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
      stream.on("data", (bytes: Buffer) => {
        try {
          work()?.stop(decode(toHeartbeat, bytes).client);
        } catch {
          // A refusal; the stream ends.
        }
      });
      while (open && current === options) {
        stream.write(encode({ ...beat, stuck: work()?.stuck ?? undefined }));
        await pause(1000);
      }
      close();
    } catch {
      // The dispatcher may be restarting; the worker then reports as another one.
    }
    await pause(500);
  }
}
