// Silent hosts and silent processes: a host that no longer answers is noticed within seconds, wherever it is cut off; a process that
// computes for longer than that, and reads nothing meanwhile, is not taken for one.
import assert from "node:assert/strict";
import { once } from "node:events";
import { connect as connectSocket, createServer, type Socket } from "node:net";
import { test } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import * as weft from "@weft/core";
import { Hosts, noHosts } from "@weft/testing/hosts";
import { connect } from "./connect.js";
import { boundSilence } from "./silence.js";
import { skip as noCompiler, testWorker } from "./workers.testkit.js";

const skip = noCompiler || noHosts;
const main = fileURLToPath(new URL("./main.js", import.meta.url));

test("a peer that reads nothing for seconds keeps its connection", { timeout: 60_000 }, async () => {
  const bytes = 64 << 20;
  const accepted: Socket[] = [];
  const server = createServer((socket) => {
    accepted.push(socket);
    boundSilence(socket);
    socket.pause();
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const socket = connectSocket((server.address() as { port: number }).port, "127.0.0.1");
  boundSilence(socket);
  let failed: Error | null = null;
  socket.on("error", (error) => (failed = error));
  socket.write(Buffer.alloc(bytes));
  // Longer than a host may be silent.
  await delay(8000);
  let got = 0;
  accepted[0].on("data", (piece) => (got += piece.length)).resume();
  for (const deadline = Date.now() + 20_000; got < bytes && failed === null && Date.now() < deadline; ) await delay(20);
  assert.equal(failed, null);
  assert.equal(got, bytes);
  socket.destroy();
  server.close();
});

test("a client that computes for seconds in the middle of an upload completes it", {
  skip: noCompiler,
  timeout: 60_000,
}, async () => {
  process.env.WEFT_CLUSTER_DATA = "socket";
  try {
    const cluster = await connect({ devices: 1, ...testWorker });
    await weft.tensor([1]).add(1).data();
    const doubled = weft
      .tensor(new Float32Array(8 << 20).fill(2))
      .mul(2)
      .realize();
    // The first pieces are on their way; the others wait until this process gets around to them.
    await new Promise((resolve) => setImmediate(resolve));
    for (const end = performance.now() + 7000; performance.now() < end; );
    assert.equal((await doubled.data())[(8 << 20) - 1], 4);
    await cluster.close();
  } finally {
    delete process.env.WEFT_CLUSTER_DATA;
    weft.setDevice("cpu");
  }
});

/** A program that does what its lines say, one after the other, and how long each took. */
const client = (index: string, core: string, address: string, security: object): string => `
  const { connect } = await import(${JSON.stringify(index)});
  const weft = await import(${JSON.stringify(core)});
  const { createInterface } = await import("node:readline");
  const cluster = await connect(${JSON.stringify(address)}, ${JSON.stringify(security)});
  const spread = (x) => weft.shard(x, { 0: "d" });
  const there = spread(weft.ones([512, 64])).add(1).realize();
  const work = {
    upload: async () => (await spread(weft.tensor(new Float32Array(1 << 20).fill(2)).reshape([1024, 1024])).mul(2).data())[1048575],
    download: async () => (await there.data())[512 * 64 - 1],
    call: async () => (await there.mul(2).data())[512 * 64 - 1],
    collective: async () => (await there.mul(there.sum().mul(1 / (2 * 512 * 64))).data())[512 * 64 - 1],
  };
  for (const name of Object.keys(work)) await work[name]();
  console.log("{}");
  for await (const name of createInterface({ input: process.stdin })) {
    const begun = performance.now();
    const answer = await work[name]().then((value) => ({ value }), (error) => ({ error: error.message }));
    console.log(JSON.stringify({ ...answer, seconds: (performance.now() - begun) / 1e3 }));
  }
  process.exit(0);`;

test("whoever is cut off from a worker that others reach gets an error within seconds, and goes on when it no longer is", {
  skip,
  timeout: 180_000,
}, async (t) => {
  const hosts = new Hosts(4);
  const [index, core] = [new URL("./index.js", import.meta.url).href, import.meta.resolve("@weft/core")];
  try {
    const start = async (host: number, line: string[], env: Record<string, string> = {}) => {
      const child = hosts.start(host, [process.execPath, ...line], env);
      const [text] = (await once(child.stdout!, "data")) as [Buffer];
      return { child, text: text.toString() };
    };
    const place = { host: hosts.address(4), ...hosts.security };
    const served = await start(4, [main, "server", JSON.stringify({ ...place, port: 0 })]);
    const { port } = JSON.parse(served.text.split("\n")[0]) as { port: number };
    for (const host of [1, 2])
      await start(host, [
        main,
        "worker",
        JSON.stringify({ ...place, port, dataHost: hosts.address(host), ...testWorker }),
      ]);
    const program = client(index, core, `${hosts.address(4)}:${port}`, hosts.security);
    const { child } = await start(3, ["--input-type=module", "-e", program], { WEFT_FORCE_SHARD: "1" });
    const ask = async (name: string): Promise<{ value?: number; error?: string; seconds: number }> => {
      child.stdin!.write(`${name}\n`);
      const [text] = (await once(child.stdout!, "data")) as [Buffer];
      return JSON.parse(text.toString()) as { value?: number; error?: string; seconds: number };
    };
    const heals = async (name: string): Promise<void> => {
      const deadline = Date.now() + 30_000;
      for (;;) {
        const { value, error } = await ask(name);
        if (value !== undefined) return assert.equal(value, name === "upload" || name === "call" ? 4 : 2);
        assert.ok(Date.now() < deadline, `${name} never succeeds again: ${error}`);
        await delay(500);
      }
    };
    for (const [a, b, names] of [
      [3, 2, ["upload", "download", "call"]],
      [1, 2, ["collective"]],
    ] as const)
      for (const name of names) {
        hosts.part(a, b);
        const { error, seconds, value } = await ask(name);
        hosts.part(a, b, false);
        t.diagnostic(`${name}: ${seconds.toFixed(1)} s`);
        assert.ok(error !== undefined, `${name} gave ${value}`);
        assert.match(error, /worker w\d|rank \d|cannot be reached|did not arrive/, name);
        // Five on an idle machine.
        assert.ok(seconds < 7, `${name} ended after ${seconds} s: ${error}`);
        await heals(name);
      }
  } finally {
    hosts.remove();
  }
});
