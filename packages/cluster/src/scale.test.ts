// The control plane with 1,024 workers: stand-ins that speak the real protocol and compute nothing.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Dispatcher } from "./dispatcher.js";
import { decodeAll, encode, type FromWorker, type ToWorker, toWorker } from "./protocol.js";
import { RawClient } from "./raw-client.testkit.js";
import { type Channel, hostId, openStream } from "./wire.js";

const count = 1024;
const tokens = { token: "token of the clients here", workerToken: "token of the workers here" };

const hello = (i: number): FromWorker => ({
  t: "hello",
  device: "cpu",
  label: `stand-in ${i}`,
  process: { host: hostId(), pid: process.pid },
  data: { host: "localhost", port: 1, tls: false },
  links: 1,
  threads: 1,
  memoryBytes: 1e9,
  rates: null,
  mpi: null,
  accelerator: null,
});

/** One stand-in: answers instructions at once. */
async function standIn(port: number, i: number, heard: ToWorker[]): Promise<Channel> {
  const channel = await openStream("localhost", port, "worker", tokens, true);
  const welcome = new Promise<void>((resolve) => {
    channel.stream.on("data", (bytes: Buffer) => {
      for (const message of decodeAll(toWorker, bytes)) {
        if (message.t === "welcome") resolve();
        else if (message.t !== "client") heard.push(message);
        if ("client" in message && message.t !== "client" && message.t !== "leave")
          channel.stream.write(encode({ t: "progress", client: message.client, done: 1 } satisfies FromWorker));
      }
    });
  });
  channel.stream.on("error", () => {});
  channel.stream.write(encode(hello(i)));
  await welcome;
  return channel;
}

test("1,024 workers join, a client sees all of them, and its instructions reach those it names", {
  timeout: 180_000,
}, async () => {
  // Stand-ins send no heartbeats.
  const dispatcher = await Dispatcher.start({ port: 0, stopTimeout: 600, ...tokens });
  const channels: Channel[] = [];
  const heard: ToWorker[] = [];
  try {
    const begin = performance.now();
    const half: number[] = [];
    for (let i = 0; i < count; i += 64) {
      const batch = Array.from({ length: 64 }, (_, k) => standIn(dispatcher.port, i + k, heard));
      channels.push(...(await Promise.all(batch)));
      if (i + 64 === count / 2 || i + 64 === count) half.push(performance.now() - begin);
    }
    assert.equal(dispatcher.workers.length, count);
    // The second half does not take much longer than the first: nothing grows with the square.
    assert.ok(half[1] - half[0] < 4 * half[0] + 2000, `${half}`);
    const client = new RawClient(dispatcher.port, tokens.token);
    const ids = await client.until(
      (message) => message.t === "welcome" && message.workers.length === count && message.workers.map(({ id }) => id),
      60,
    );
    const calls = 100;
    const members = ids.slice(0, 256);
    const graph = { params: [], nodes: [["const", [], { value: 1, dtype: "float32" }, []]], outputs: [0] };
    const before = dispatcher.counters.bytes;
    client.send({
      t: "define",
      program: 1,
      donated: [],
      members,
      generation: 1,
      graphs: [graph],
      which: members.map(() => 0),
      collective: false,
    });
    for (let k = 0; k < calls; k++)
      client.send({ t: "run", program: 1, inputs: [], outputs: [k + 1], step: k, site: null });
    for (const deadline = Date.now() + 60_000; heard.length < 256 * (calls + 1); ) {
      assert.ok(Date.now() < deadline, `${heard.length} of ${256 * (calls + 1)} instructions arrived`);
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
    assert.equal(heard.filter(({ t }) => t === "define").length, 256);
    // What the client sent: the graph once, not once per member.
    assert.ok(dispatcher.counters.bytes - before < 2e6 + 256 * calls * 60);
  } finally {
    for (const channel of channels) channel.close();
    dispatcher.stop();
  }
});
