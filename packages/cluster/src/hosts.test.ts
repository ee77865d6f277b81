// Workers on several hosts: each has a network of its own, which a bridge connects with the others. They compute together
// over encrypted links, in any order and any subset, and a host that is lost in the middle costs seconds and no results.
import assert from "node:assert/strict";
import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { after, test } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import * as weft from "@weft/core";
import { Hosts, noHosts } from "@weft/testing/hosts";
import { connect } from "./connect.js";
import { Dispatcher } from "./dispatcher.js";
import { skip as noCompiler, testWorker } from "./workers.testkit.js";

const main = fileURLToPath(new URL("./main.js", import.meta.url));
const skip = noCompiler || noHosts;
const made: { hosts: Hosts; dispatcher: Dispatcher }[] = [];
after(() => {
  for (const { hosts, dispatcher } of made) {
    dispatcher.stop();
    hosts.remove();
  }
});

interface Network {
  hosts: Hosts;
  address: string;
  worker(host: number): Promise<ChildProcess>;
}

/** Hosts with a dispatcher at the test's own address. */
async function network(count: number, ipv6 = false, hosts = new Hosts(count)): Promise<Network> {
  const addressOf = (host: number): string => (ipv6 ? hosts.address6(host) : hosts.address(host));
  const dispatcher = await Dispatcher.start({ host: addressOf(0), port: 0, ...hosts.security });
  made.push({ hosts, dispatcher });
  const worker = async (host: number): Promise<ChildProcess> => {
    const options = { host: addressOf(0), port: dispatcher.port, dataHost: addressOf(host), ...testWorker };
    const child = hosts.start(host, [
      process.execPath,
      main,
      "worker",
      JSON.stringify({ ...options, ...hosts.security }),
    ]);
    await once(child.stdout!, "data");
    return child;
  };
  return { hosts, address: `${ipv6 ? `[${addressOf(0)}]` : addressOf(0)}:${dispatcher.port}`, worker };
}

const value = (i: number, j: number): number => ((i * 60 + j * 7) % 11) - 5;
const matrix = (): weft.Tensor =>
  weft.tensor(Float32Array.from({ length: 90 * 60 }, (_, i) => value(Math.floor(i / 60), i % 60))).reshape([90, 60]);

/** Sums over the rows, which are on different workers: exact in float32, whatever the order. */
async function checkProduct(rows: weft.Tensor): Promise<void> {
  const got = await rows.transpose().matmul(rows).sum(0).data();
  for (let j = 0; j < 60; j++) {
    let expected = 0;
    for (let i = 0; i < 90; i++) for (let k = 0; k < 60; k++) expected += value(i, k) * value(i, j);
    assert.equal(got[j], expected);
  }
}

function forced<T>(run: () => Promise<T>): Promise<T> {
  process.env.WEFT_FORCE_SHARD = "1";
  return run().finally(() => {
    delete process.env.WEFT_FORCE_SHARD;
    weft.setDevice("cpu");
  });
}

test("workers of two hosts, started by hand in any order, compute together", { skip, timeout: 120_000 }, async () => {
  const { hosts, address, worker } = await network(2);
  for (const host of [2, 1, 2, 1]) await worker(host);
  await forced(async () => {
    for (const mesh of [undefined, { d: 3 }, { d: 2 }]) {
      const cluster = await connect(address, { ...hosts.security, ...(mesh === undefined ? {} : { mesh }) });
      assert.equal(new Set(cluster.workers.map(({ process: { host } }) => host)).size, 2);
      const rows = weft.shard(matrix(), { 0: "d" });
      await checkProduct(rows);
      assert.ok(cluster.device.lastPlan!.moves.length > 0, "the workers exchanged data");
      // Rows become columns: pieces go from every worker to every other one.
      const columns = await weft.shard(rows, { 1: "d" }).add(0).data();
      assert.ok(columns.every((x, i) => x === value(Math.floor(i / 60), i % 60)));
      await cluster.close();
    }
  });
});

test("workers compute together over IPv6, and over cables with small packets that drop some of them", {
  skip,
  timeout: 120_000,
}, async (t) => {
  const { hosts, address, worker } = await network(2);
  const compute = async (at: string): Promise<void> => {
    const cluster = await connect(at, hosts.security);
    assert.equal(new Set(cluster.workers.map(({ process: { host } }) => host)).size, 2);
    const large = Float32Array.from({ length: 200_000 }, (_, i) => i % 1000);
    const sums = await weft
      .shard(weft.tensor(large).reshape([200, 1000]), { 0: "d" })
      .sum(0)
      .data();
    assert.ok(sums.every((sum, i) => sum === 200 * i));
    await checkProduct(weft.shard(matrix(), { 0: "d" }));
    await cluster.close();
  };
  await forced(async () => {
    if (hosts.hasIpv6) {
      const six = await network(2, true, hosts);
      const workers = [await six.worker(1), await six.worker(2)];
      await compute(six.address);
      for (const child of workers) child.kill();
    } else t.diagnostic("NOT TESTED: this kernel has no IPv6");
    for (const host of [1, 2]) await worker(host);
    if (![1, 2].every((host) => hosts.rough(host, 600))) {
      t.diagnostic("NOT TESTED: this kernel cannot limit a network device (tc tbf)");
      return;
    }
    await compute(address);
    assert.ok(hosts.dropped(1) + hosts.dropped(2) > 0, "no packet was dropped");
  });
});

for (const [fault, lose] of [
  ["is unplugged", (hosts: Hosts): void => hosts.cut(2)],
  ["loses its processes", (hosts: Hosts): void => hosts.kill(2)],
] as const)
  test(`a host that ${fault} in the middle is noticed within seconds, and nothing is lost`, {
    skip,
    timeout: 120_000,
  }, async () => {
    const { hosts, address, worker } = await network(3);
    for (const host of [1, 2, 2, 3]) await worker(host);
    await forced(async () => {
      const cluster = await connect(address, hosts.security);
      let rows = weft.shard(matrix(), { 0: "d" });
      await checkProduct(rows);
      let begin = 0;
      const steps = (async () => {
        for (let step = 0; step < 60; step++) {
          // Every step needs the sum of all workers.
          rows = rows.add(rows.sum().mul(0));
          if (step % 5 === 4) await rows.sum().item();
        }
      })();
      await delay(100);
      begin = Date.now();
      lose(hosts);
      // What is lost is computed again and compiled for the others, which takes as long as the machine is busy.
      while (cluster.workers.length > 2) await delay(50);
      const seconds = (Date.now() - begin) / 1e3;
      await steps;
      await checkProduct(rows);
      assert.ok(seconds < 20, `the loss was noticed after ${seconds} s`);
      assert.equal(cluster.workers.length, 2);
      await cluster.close();
    });
  });

const program = (index: string, core: string): string => `
  const { distributed } = await import(${JSON.stringify(index)});
  const weft = await import(${JSON.stringify(core)});
  weft.setDevice("cpu");
  await distributed.init();
  const step = weft.jit((x) => distributed.allReduce(x.mul(2)).add(distributed.rank()));
  let x = weft.ones([1000]);
  for (let i = 0; i < 5; i++) x = weft.tensor([...(await step(x.mul(0).add(i + 1)).data())]);
  console.log(JSON.stringify({ first: (await x.data())[0], kind: distributed.group().kind }));
  distributed.shutdown();
  process.exit(0);`;

test("a user's program with ranks on three hosts, that nothing but an address joins", {
  skip,
  timeout: 60_000,
}, async () => {
  const { hosts } = await network(3);
  const [index, core] = [new URL("./index.js", import.meta.url).href, import.meta.resolve("@weft/core")];
  const places = [2, 1, 3, 2];
  const answers = places.map(async (host, rank) => {
    const child = hosts.start(host, [process.execPath, "--input-type=module", "-e", program(index, core)], {
      WEFT_RANK: String(rank),
      WEFT_WORLD_SIZE: String(places.length),
      WEFT_GROUP: "a job",
      WEFT_RENDEZVOUS: `${hosts.address(2)}:9100`,
      WEFT_WORKER_TOKEN: "secret of the workers of these hosts",
    });
    const [text] = (await once(child.stdout!, "data")) as [Buffer];
    return JSON.parse(text.toString()) as { first: number; kind: string };
  });
  assert.deepEqual(
    await Promise.all(answers),
    places.map((_, rank) => ({ first: 40 + rank, kind: "links" })),
  );
});
