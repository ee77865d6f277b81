// Heartbeats of a worker: a thread reports every second that the process lives, also while the main thread computes.
import { fileURLToPath } from "node:url";
import { Worker as Thread } from "node:worker_threads";
import type { Security } from "./security.js";

/** Where and as which worker the thread reports. */
export interface HeartbeatOptions {
  host: string;
  port: number;
  security: Security;
  worker: string;
  key: string;
}

export class HeartbeatThread {
  // Options of the program, such as --input-type, are not meant for the thread.
  readonly #thread = new Thread(fileURLToPath(new URL("./heartbeat-thread.js", import.meta.url)), { execArgv: [] });

  constructor() {
    this.#thread.unref();
    // The dispatcher notices missing heartbeats; the worker itself can do nothing about them.
    this.#thread.on("error", () => {});
  }

  /** Reports from now on; null stops reporting. */
  report(options: HeartbeatOptions | null): void {
    this.#thread.postMessage(options);
  }

  end(): void {
    void this.#thread.terminate();
  }
}
