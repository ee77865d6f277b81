// The thread of background.ts.
import { writeSync } from "node:fs";
import { parentPort } from "node:worker_threads";
import type { BackgroundRequest } from "./background.js";
import { WorkWatch } from "./current-work.js";
import { reportHeartbeats } from "./heartbeat.js";
import { LinkServer } from "./links.js";

/** Milliseconds for the dispatcher to learn which client is at fault before this process ends. */
const farewellMs = 2500;

let links: LinkServer | null = null;
let work: WorkWatch | null = null;

/** The main thread may be anywhere in native code: nothing but the end of the process frees the device. */
function giveUp(client: number): void {
  writeSync(2, `weft: an instruction of client ${client} took too long and could not be stopped; this worker ends\n`);
  setTimeout(() => process.kill(process.pid, "SIGKILL"), farewellMs);
}

parentPort?.on("message", (request: BackgroundRequest) => {
  if (request.t === "report") void reportHeartbeats(request.options, () => work);
  else if (request.t === "watch") work = new WorkWatch(request.work, giveUp);
  else if (request.t === "join") links?.join(request.members);
  else {
    links = new LinkServer(request.options);
    links.listen().then(
      (port) => parentPort?.postMessage({ port }),
      (error: Error) => parentPort?.postMessage({ error: error.message }),
    );
  }
});
