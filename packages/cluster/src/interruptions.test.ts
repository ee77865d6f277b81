// Dispatchers that stop for a while or share a machine with others, and workers on machines that run out of something: whoever waits gets a
// result or an error in time, and nobody's program ends.
import assert from "node:assert/strict";
import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { after, test } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import * as weft from "@weft/core";
import { connect } from "./connect.js";
import { skip, testWorker } from "./workers.testkit.js";

const main = fileURLToPath(new URL("./main.js", import.meta.url));
const children: ChildProcess[] = [];
after(() => {
  for (const child of children) child.kill("SIGKILL");
});

/** Starts a process of a cluster; `within` is the command that runs it, such as one with other namespaces. */
async function start(kind: string, options: object, within: readonly string[] = []) {
  const [command, ...line] = [...within, process.execPath, main, kind, JSON.stringify(options)];
  const env = { ...process.env, WEFT_RATES: "assumed" };
  const child = spawn(command, line, { stdio: ["pipe", "pipe", "pipe"], env });
  children.push(child);
  let errors = "";
  child.stderr!.on("data", (bytes) => (errors += bytes));
  const [text] = (await Promise.race([once(child.stdout!, "data"), once(child, "exit").then(() => [errors])])) as [
    string,
  ];
  return { child, text: String(text) };
}
const portOf = (text: string): number => (JSON.parse(text.split("\n")[0]) as { port: number }).port;

test("a stopped dispatcher is an error in time, also for who connects, and its answer that comes too late does no harm", {
  skip,
  timeout: 60_000,
}, async () => {
  const { child, text } = await start("server", { port: 0, host: "localhost" });
  const port = portOf(text);
  await start("worker", { port, host: "localhost", ...testWorker });
  const cluster = await connect(`localhost:${port}`);
  const x = weft.ones([8]).add(1).realize();
  assert.equal((await x.data())[0], 2);
  child.kill("SIGSTOP");
  const begun = performance.now();
  await assert.rejects(async () => x.mul(2).data(), /connection to the dispatcher .* was lost/);
  assert.ok(performance.now() - begun < 20_000);
  await assert.rejects(connect(`localhost:${port}`, { timeout: 3 }), /no answer/);
  child.kill("SIGCONT");
  // An error without a listener would end this process.
  await delay(1500);
  await cluster.close();
  weft.setDevice("cpu");
});

test("a second dispatcher on a port ends with an error that names it", { timeout: 60_000 }, async () => {
  const port = portOf((await start("server", { port: 0, host: "localhost" })).text);
  const second = await start("server", { port, host: "localhost" });
  assert.match(second.text, new RegExp(`${port}`));
  if (second.child.exitCode === null) await once(second.child, "exit");
  assert.notEqual(second.child.exitCode, 0);
});

test("workers of containers that share a network compute together, every time", {
  skip: skip || (spawnSync("unshare", ["--uts", "true"]).status === 0 ? false : "namespaces need root and unshare"),
  timeout: 120_000,
}, async () => {
  const port = portOf((await start("server", { port: 0, host: "localhost" })).text);
  // Their groups use links over loopback, without TLS.
  for (let i = 0; i < 2; i++) await start("worker", { port, host: "localhost", ...testWorker }, ["unshare", "--uts"]);
  process.env.WEFT_FORCE_SHARD = "1";
  try {
    // Half of the groups failed when the first bytes of a link arrived together with its claim.
    for (let i = 0; i < 8; i++) {
      const cluster = await connect(`localhost:${port}`);
      const x = weft.shard(weft.ones([64, 8]), { 0: "d" }).add(1);
      assert.equal((await x.add(x.sum()).data())[0], 2 + 2 * 64 * 8);
      await cluster.close();
    }
  } finally {
    delete process.env.WEFT_FORCE_SHARD;
    weft.setDevice("cpu");
  }
});
