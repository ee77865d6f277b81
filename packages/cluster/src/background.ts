// The background thread of a worker: it reports every second that the process lives, stops instructions that nobody waits for any
// more, and forwards the bytes of groups
// between hosts, also while the main thread computes.
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { Worker as Thread } from "node:worker_threads";
import { linkPair } from "@weft/core/internal/device";
import type { SharedWork } from "./current-work.js";
import type { HeartbeatOptions } from "./heartbeat.js";
import type { LinkMembers, LinkServerOptions } from "./links.js";

/** What the main thread asks for. */
export type BackgroundRequest =
  | { t: "watch"; work: SharedWork }
  | { t: "report"; options: HeartbeatOptions | null }
  | { t: "listen"; options: LinkServerOptions }
  | { t: "join"; members: LinkMembers };

export class BackgroundThread {
  // Options of the program, such as --input-type, are not meant for the thread.
  readonly #thread = new Thread(fileURLToPath(new URL("./background-thread.js", import.meta.url)), { execArgv: [] });

  constructor() {
    this.#thread.unref();
    // The dispatcher notices missing heartbeats; the worker itself can do nothing about them.
    this.#thread.on("error", () => {});
  }

  #ask(request: BackgroundRequest): void {
    this.#thread.postMessage(request);
  }

  /** Sends heartbeats from now on; null stops them. */
  report(options: HeartbeatOptions | null): void {
    this.#ask({ t: "report", options });
  }

  /** Stops instructions of clients that have left, and those that take too long. */
  watch(work: SharedWork): void {
    this.#ask({ t: "watch", work });
  }

  /** Accepts links of other workers; gives the port. */
  async listen(options: LinkServerOptions): Promise<number> {
    this.#ask({ t: "listen", options });
    const [answer] = (await once(this.#thread, "message")) as [{ port: number } | { error: string }];
    if ("error" in answer) throw new Error(answer.error);
    return answer.port;
  }

  /** Connects with the other members of a group; gives the local sockets for the group, by rank. */
  join({ rank, members, ...group }: Omit<LinkMembers, "sockets">): number[] {
    const pairs = members.map((_, other) => (other === rank ? [-1, -1] : linkPair()));
    this.#ask({ t: "join", members: { ...group, rank, members, sockets: pairs.map(([, thread]) => thread) } });
    return pairs.map(([own]) => own);
  }

  end(): void {
    void this.#thread.terminate();
  }
}
