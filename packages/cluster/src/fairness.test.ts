// Clients beside one that queues many calls.
import assert from "node:assert/strict";
import { test } from "node:test";
import * as weft from "@weft/core";
import { connect } from "./connect.js";
import { Instructions } from "./instructions.js";
import { groupsWith } from "./member-group.js";
import { skip, testWorker } from "./workers.testkit.js";

/** Workers that remember what they were sent. */
function recorders(...ids: string[]) {
  const sent = new Map(ids.map((id) => [id, [] as string[]]));
  const entry = (id: string) => ({
    outbox: { post: (text: string) => void sent.get(id)!.push(text) },
    suspended: false,
  });
  return { sent, workers: new Map(ids.map((id) => [id, entry(id)])) };
}

test("a worker has some instructions of each client, and gets the next when it has completed some", () => {
  const { sent, workers } = recorders("w1");
  const [greedy, modest] = [new Instructions(workers), new Instructions(workers)];
  for (let i = 0; i < 10_000; i++) greedy.send(["w1"], [`g${i}`]);
  modest.send(["w1"], ["m0"]);
  const list = sent.get("w1")!;
  assert.ok(list.indexOf("m0") >= 3 && list.indexOf("m0") < 20, `${list.length}`);
  for (let reported = 0; reported < 10_000; ) {
    const arrived = list.length - 1;
    greedy.done("w1", arrived - reported, (arrived - reported) * 0.005);
    reported = arrived;
    assert.ok(list.length - 1 - reported <= 8);
  }
  assert.deepEqual(
    list.filter((text) => text !== "m0"),
    Array.from({ length: 10_000 }, (_, i) => `g${i}`),
  );
});

test("members of groups get the instructions of several clients in the same order, and nobody waits for one that hangs", () => {
  const ids = ["w1", "w2", "w3"];
  const { sent, workers } = recorders(...ids);
  const clients = [0, 1, 2].map(() => new Instructions(workers));
  const open = clients.map(() => new Map(ids.map((id) => [id, 0])));
  let seed = 7;
  const random = (n: number): number => {
    seed = (seed * 1103515245 + 12345) % 2147483648;
    return Math.floor((seed / 2147483648) * n);
  };
  for (let i = 0; i < 3000; i++) {
    const [c, kind] = [random(3), random(4)];
    const to = kind === 3 ? ids : kind === 2 ? ["w1", "w3"] : [ids[random(3)]];
    clients[c].send(to, Array<string>(to.length).fill(`${to.length > 1 ? "all" : "one"}/${c}/${i}`));
  }
  /** Workers complete what they have, in any order, until nothing comes. */
  const complete = (among: string[]): void => {
    for (let idle = 0; idle < 30; ) {
      const [c, id] = [random(3), among[random(among.length)]];
      const arrived = sent.get(id)!.filter((text) => text.split("/")[1] === String(c)).length;
      const done = arrived - open[c].get(id)!;
      open[c].set(id, arrived);
      clients[c].done(id, done, done * 0.01);
      idle = done === 0 ? idle + 1 : 0;
    }
  };
  complete(ids.slice(0, 2));
  workers.get("w3")!.suspended = true;
  for (const client of clients) client.suspended("w3", new Map(), "it hangs");
  complete(ids.slice(0, 2));
  const all = ids.reduce((n, id) => n + sent.get(id)!.length, 0);
  const groups = ids.map((id) => sent.get(id)!.filter((text) => text.startsWith("all")));
  const common = (a: string[], b: string[]): string[] => a.filter((text) => b.includes(text));
  assert.ok(all > 3500, `${all}`);
  assert.ok(groups[1].length > 500);
  assert.deepEqual(common(groups[0], groups[1]), groups[1]);
  assert.deepEqual(common(groups[2], groups[0]), groups[2]);
  for (const [c, client] of clients.entries()) {
    for (const { waiting } of client.backlogs.values()) assert.equal(waiting.length, 0, `client ${c}`);
    for (const list of sent.values()) {
      const order = list.filter((text) => text.split("/")[1] === String(c)).map((text) => Number(text.split("/")[2]));
      assert.deepEqual(
        order,
        [...order].sort((a, b) => a - b),
      );
    }
  }
});

test("members hear that one hangs before they get the calls that waited for it", () => {
  const { sent, workers } = recorders("w1", "w2", "w3");
  const client = new Instructions(workers);
  const members = ["w1", "w2"];
  client.send(members, ["define", "define"], true);
  client.send(members, ["run", "run"]);
  // The definition is not completed on w2: nobody has got the call.
  client.done("w1", 1, 0.01);
  assert.deepEqual(sent.get("w1"), ["define"]);
  workers.get("w2")!.suspended = true;
  const programs = [
    { members, group: "a", problem: null },
    { members: ["w1", "w3"], group: "b", problem: null },
    { members, group: null, problem: null },
  ];
  const groups = groupsWith("w2", programs.values());
  assert.deepEqual([...groups], [["a", members]]);
  client.suspended("w2", groups, "w2 hangs");
  const abandon = JSON.stringify({ t: "abandon", group: "a", reason: "w2 hangs" });
  assert.deepEqual(sent.get("w1"), ["define", abandon, "run"]);
  assert.deepEqual(sent.get("w2"), ["define", "run"]);
  assert.deepEqual(sent.get("w3"), []);
});

test("what waits for a worker that has left keeps the other members of its groups from nothing", () => {
  const { sent, workers } = recorders("w1", "w2");
  const client = new Instructions(workers);
  for (let i = 0; i < 100; i++) client.send(["w1", "w2"], [`${i}`, `${i}`]);
  client.send(["w1"], ["last"]);
  workers.delete("w2");
  client.ended("w2");
  // As when a client frees a tensor that the worker had.
  assert.equal(client.bytes("w2"), 0);
  for (let reported = 0; sent.get("w1")!.length > reported; ) {
    const arrived = sent.get("w1")!.length;
    client.done("w1", arrived - reported, 0);
    reported = arrived;
  }
  assert.equal(sent.get("w1")!.at(-1), "last");
  assert.equal(sent.get("w1")!.length, 101);
});

test("a call of another client does not wait for thousands of queued ones", { skip, timeout: 120_000 }, async () => {
  const cluster = await connect({ devices: 1, ...testWorker });
  try {
    const { token } = cluster.local!;
    const other = await connect(cluster.address, { token });
    const step = weft.jit((x: weft.Tensor) => x.matmul(x).mul(0.001));
    weft.useDevice(cluster.device);
    let x = weft.ones([256, 256]);
    await step(x).data();
    const begin = performance.now();
    for (let i = 0; i < 2000; i++) x = step(x);
    const many = x.data().then(() => performance.now() - begin);
    weft.useDevice(other.device);
    const y = weft.ones([4]).add(1);
    assert.deepEqual([...(await y.data())], [2, 2, 2, 2]);
    const waited = performance.now() - begin;
    const whole = await many;
    assert.ok(waited < whole / 3, `${waited} ms of ${whole} ms`);
    await other.close();
  } finally {
    await cluster.close();
  }
});
