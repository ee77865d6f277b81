// The rendezvous of ranks: strangers, wrong tokens, other jobs, ranks twice and ranks that never come.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { connect, createServer } from "node:net";
import { test } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import { writeFrame } from "./frames.js";
import { skip } from "./workers.testkit.js";

const index = new URL("./index.js", import.meta.url).href;
const program = `
  const { distributed } = await import(${JSON.stringify(index)});
  try {
    const group = await distributed.init({ joinTimeout: Number(process.env.WAIT ?? 20) });
    console.log("joined", group.kind, group.rank);
    distributed.barrier();
    distributed.shutdown();
  } catch (error) {
    console.log(error.message);
  }
  process.exit(0);`;

async function freePort(): Promise<number> {
  const probe = createServer().listen(0, "127.0.0.1");
  await once(probe, "listening");
  const { port } = probe.address() as { port: number };
  probe.close();
  return port;
}

async function rank(port: number, number: number, size: number, env: Record<string, string> = {}): Promise<string> {
  const child = spawn(process.execPath, ["--input-type=module", "-e", program], {
    stdio: ["ignore", "pipe", "inherit"],
    env: {
      ...process.env,
      WEFT_RANK: String(number),
      WEFT_WORLD_SIZE: String(size),
      WEFT_GROUP: "job",
      WEFT_RENDEZVOUS: `localhost:${port}`,
      WEFT_WORKER_TOKEN: "the token of this job",
      WEFT_THREADS: "1",
      ...env,
    },
  });
  let text = "";
  child.stdout.setEncoding("utf8").on("data", (more: string) => {
    text += more;
  });
  await once(child, "close");
  return text.trim();
}

test("ranks meet beside garbage, strangers and impostors; each wrong one is told why", {
  skip,
  timeout: 300_000,
}, async () => {
  const port = await freePort();
  // Longer than the six others take on a busy machine.
  const first = rank(port, 0, 2, { WAIT: "200" });
  // Until rank 0 listens.
  for (;;) {
    const socket = connect(port, "127.0.0.1");
    const open = await new Promise((resolve) => {
      socket.once("connect", () => resolve(true));
      socket.once("error", () => resolve(false));
    });
    if (open) {
      socket.write("GET / HTTP/1.1\r\n\r\n");
      break;
    }
    await delay(50);
  }
  const silent = Array.from({ length: 20 }, () => connect(port, "127.0.0.1").on("error", () => {}));
  const huge = connect(port, "127.0.0.1").on("error", () => {});
  writeFrame(huge, { rank: 1, text: "x".repeat(100_000) });
  const [token, job, twice, size] = await Promise.all([
    rank(port, 1, 2, { WEFT_WORKER_TOKEN: "another token, guessed" }),
    rank(port, 1, 2, { WEFT_GROUP: "another job" }),
    rank(port, 0, 2, { WAIT: "5" }),
    rank(port, 1, 3),
  ]);
  assert.match(token, /refused this rank: the token is wrong/);
  assert.match(job, /this is job job, not another-job-/);
  assert.match(twice, /rank 0 cannot listen on localhost:\d+/);
  assert.match(size, /there are 2 ranks, not 3/);
  const second = await rank(port, 1, 2, { WAIT: "100" });
  assert.equal(second, "joined shm 1");
  assert.equal(await first, "joined shm 0");
  for (const socket of silent) socket.destroy();
});

test("a rank that never comes, and a rendezvous that does not know the token, are errors in time", {
  skip,
  timeout: 180_000,
}, async () => {
  const port = await freePort();
  assert.match(await rank(port, 0, 2, { WAIT: "2" }), /rank 1 of 2 did not come to localhost:\d+ in time/);
  assert.match(await rank(port, 1, 2, { WAIT: "2" }), /did not meet the others at localhost:\d+/);
  // Somebody else has taken the port, and answers.
  const impostor = createServer((socket) => {
    socket.on("error", () => {});
    writeFrame(socket, { nonce: "n" });
    socket.once("data", () => writeFrame(socket, { members: [], key: "k", proof: "p" }));
  }).listen(port, "127.0.0.1");
  assert.match(await rank(port, 1, 2, { WAIT: "5" }), /does not know the token/);
  impostor.close();
});
