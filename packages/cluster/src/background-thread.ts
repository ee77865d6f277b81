// The thread of background.ts.
import { parentPort } from "node:worker_threads";
import type { BackgroundRequest } from "./background.js";
import { reportHeartbeats } from "./heartbeat.js";
import { LinkServer } from "./links.js";

let links: LinkServer | null = null;

parentPort?.on("message", (request: BackgroundRequest) => {
  if (request.t === "report") void reportHeartbeats(request.options);
  else if (request.t === "join") links?.join(request.members);
  else {
    links = new LinkServer(request.options);
    links.listen().then(
      (port) => parentPort?.postMessage({ port }),
      (error: Error) => parentPort?.postMessage({ error: error.message }),
    );
  }
});
