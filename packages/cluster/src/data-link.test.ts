// A worker that nothing reaches although the dispatcher does: the network between it and the client is cut.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { connect } from "node:net";
import { test } from "node:test";
import { DataLink } from "./data-link.js";
import type { WorkerInfo } from "./protocol.js";

/** A server that never accepts: when its queue is full, the system answers nothing to further connections. */
const silent = `
import socket, sys, time
server = socket.socket()
server.bind(("127.0.0.1", 0))
server.listen(0)
print(server.getsockname()[1], flush=True)
time.sleep(60)`;

test("a fetch from a worker that cannot be reached is an error within seconds", async () => {
  const child = spawn("python3", ["-c", silent], { stdio: ["ignore", "pipe", "inherit"] });
  const fill = [];
  try {
    const port = Number(await once(child.stdout, "data"));
    for (let i = 0; i < 4; i++) fill.push(connect(port, "127.0.0.1").on("error", () => {}));
    const worker = { id: "w1", key: "k", data: { host: "127.0.0.1", port, tls: false } } as WorkerInfo;
    const listener = { uploaded() {}, broken() {}, tape() {}, measured() {} };
    const begun = performance.now();
    const link = new DataLink(worker, 1, {}, listener);
    await assert.rejects(link.peek(1), /no connection to worker w1 at 127.0.0.1:\d+ within 5 s/);
    assert.ok(performance.now() - begun < 9000);
  } finally {
    for (const socket of fill) socket.destroy();
    child.kill("SIGKILL");
  }
});
