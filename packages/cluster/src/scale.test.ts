// The control plane with 1,024 workers: stand-ins that speak the real protocol and compute nothing.
import assert from "node:assert/strict";
import { test } from "node:test";
import { groupPath } from "@weft/core/internal/device";
import { Dispatcher } from "./dispatcher.js";
import { announced } from "./false-dispatcher.testkit.js";
import { groupOf } from "./member-group.js";
import { encode, maxMessageBytes, type ToWorker } from "./protocol.js";
import { StandInClient, StandInWorker } from "./stand-ins.js";
import { inParts } from "./worker-changes.js";

const count = 1024;
/** Workers that join at once: few enough that none waits for its handshake for seconds on a busy machine. */
const together = 16;
const tokens = { token: "token of the clients here", workerToken: "token of the workers here" };

test("1,024 workers join, a client sees all of them, and its instructions reach those it names", {
  timeout: 180_000,
}, async () => {
  // Stand-ins send no heartbeats.
  const dispatcher = await Dispatcher.start({ port: 0, stopTimeout: 600, ...tokens });
  const workers: StandInWorker[] = [];
  const heard: ToWorker[] = [];
  try {
    // Processor time: others may use the machine.
    const begin = process.cpuUsage();
    const spent = (): number => Object.values(process.cpuUsage(begin)).reduce((sum, part) => sum + part / 1e3, 0);
    const half: number[] = [];
    for (let i = 0; i < count; i += together) {
      const take = (message: ToWorker): void => void heard.push(message);
      const batch = Array.from({ length: together }, () => StandInWorker.join(dispatcher.port, tokens, take));
      workers.push(...(await Promise.all(batch)));
      if (i + together === count / 2 || i + together === count) half.push(spent());
    }
    assert.equal(dispatcher.workers.length, count);
    // The second half does not take much longer than the first: nothing grows with the square.
    assert.ok(half[1] - half[0] < 4 * half[0] + 2000, `${half}`);
    const client = await StandInClient.connect(dispatcher.port, tokens);
    await client.knows(count);
    const calls = 100;
    const members = [...client.workers].slice(0, 256);
    const before = dispatcher.counters.bytes;
    client.define(1, members);
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
    for (const worker of workers) worker.close();
    dispatcher.stop();
  }
});

test("a list of 4,096 workers with the longest descriptions is sent in messages within the limit", () => {
  const workers = Array.from({ length: 4096 }, (_, id) => ({ id, rates: "\u00fc".repeat(65_000) }));
  const parts = inParts(workers);
  assert.deepEqual(
    parts.flatMap(({ part }) => part.map(({ id }) => id)),
    workers.map(({ id }) => id),
  );
  assert.deepEqual([parts.filter(({ more }) => !more).length, parts.at(-1)!.more], [1, false]);
  assert.ok(encode(parts[0].part).length < 0.8 * maxMessageBytes);
  assert.deepEqual(inParts([]), [{ part: [], more: false }]);
});

test("every set of many workers has a group name of its own, which fits into shared memory", () => {
  const infos = (ids: readonly number[]) => ids.map((i) => announced(`w${i}`, 1));
  const names = new Set<string>();
  let sets = 0;
  // Sets that differ in their last member alone, in one order and the other.
  for (let size = 1; size <= 120; size++)
    for (const last of [size, size + 1, 1000 + size]) {
      const ids = [...Array.from({ length: size - 1 }, (_, i) => i), last];
      for (const members of new Set([ids, size > 1 ? [...ids].reverse() : ids])) {
        names.add(groupOf("0123abcd-123456-4096", infos(members), "secret").name);
        sets++;
      }
    }
  assert.equal(names.size, sets);
  for (const name of names) assert.ok(groupPath(name).endsWith(name));
});
