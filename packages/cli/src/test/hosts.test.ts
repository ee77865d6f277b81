// The commands on several hosts (namespaces with networks of their own): a dispatcher, workers and weft bench on two, a training on
// three, with a host lost in the middle.
import assert from "node:assert/strict";
import { type ChildProcess, spawnSync } from "node:child_process";
import { once } from "node:events";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { after, test } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { CpuDevice } from "@weft/core/internal/device";
import { Hosts, noHosts } from "@weft/testing/hosts";

const skip = CpuDevice.available() ? noHosts : "no C compiler";
const main = fileURLToPath(new URL("../main.js", import.meta.url));
const made: Hosts[] = [];
after(() => {
  for (const hosts of made) hosts.remove();
});

function network(count: number): Hosts {
  const hosts = new Hosts(count);
  made.push(hosts);
  return hosts;
}

const secrets = { WEFT_TOKEN: "the token of the clients", WEFT_WORKER_TOKEN: "the token of the workers" };

test("weft bench uses the workers of two hosts", { skip, timeout: 180_000 }, async () => {
  const hosts = network(2);
  const address = await hosts.serve([process.execPath, main], secrets);
  const out = join(hosts.folder, "report");
  const line = ["bench", "--server", address, "--sizes", "64", "--repeats", "1", "--warmup", "1"];
  const done = spawnSync(
    process.execPath,
    [main, ...line, "--no-pictures", "--no-independent", "--out", out, "--json"],
    { encoding: "utf8", env: { ...process.env, ...hosts.environment, ...secrets, WEFT_RATES: "assumed" } },
  );
  assert.equal(done.status, 0, done.stderr);
  assert.ok(JSON.parse(done.stdout).rows.length > 0);
});

test("a training on three hosts goes on after a host was lost, from its checkpoint, and with the host when it is back", {
  skip,
  timeout: 240_000,
}, async () => {
  const hosts = network(3);
  const config = fileURLToPath(new URL("../../../../configs/synthetic.yaml", import.meta.url));
  const output = join(hosts.folder, "run");
  const rank = (number: number, size: number, host: number, port: number, more: string[]): ChildProcess => {
    const line = [
      "train",
      config,
      "--devices",
      String(size),
      "--global-batch",
      "48",
      "--output",
      output,
      "--no-evaluate",
    ];
    return hosts.start(host, [process.execPath, main, ...line, ...more], {
      ...secrets,
      WEFT_RANK: String(number),
      WEFT_WORLD_SIZE: String(size),
      WEFT_LOCAL_SIZE: "1",
      WEFT_GROUP: "training",
      WEFT_RENDEZVOUS: `${hosts.address(1)}:${port}`,
    });
  };
  const steps = (): number => {
    const file = join(output, "rank0.jsonl");
    return existsSync(file)
      ? readFileSync(file, "utf8")
          .split("\n")
          .filter((line) => line.includes('"loss"')).length
      : 0;
  };
  const ranks = [1, 2, 3].map((host, number) => rank(number, 3, host, 9100, ["--max-steps", "100000"]));
  const ends = ranks.map((child) => once(child, "exit"));
  for (const deadline = Date.now() + 60_000; steps() < 3; await delay(100))
    assert.ok(Date.now() < deadline, "the training did not begin");
  hosts.cut(3);
  const begin = Date.now();
  await Promise.all(ends.slice(0, 2));
  assert.ok(Date.now() - begin < 30_000, "the others did not notice");
  // The remaining hosts continue; a scheduler would start them again.
  const last = steps() + 20;
  const again = [1, 2].map((host, number) => rank(number, 2, host, 9101, ["--max-steps", String(last), "--resume"]));
  for (const [code] of await Promise.all(again.map((child) => once(child, "exit")))) assert.equal(code, 0);
  const stepsOf = (number: number): number[] =>
    readFileSync(join(output, `rank${number}.jsonl`), "utf8")
      .trim()
      .split("\n")
      .filter((line) => line.includes('"loss"'))
      .map((line) => (JSON.parse(line) as { step: number }).step);
  assert.equal(stepsOf(0).at(-1), last - 1);
  // The host is back, and takes part again.
  hosts.plug(3);
  const more = ["--max-steps", String(last + 10), "--resume"];
  const back = [1, 2, 3].map((host, number) => rank(number, 3, host, 9102, more));
  for (const [code] of await Promise.all(back.map((child) => once(child, "exit")))) assert.equal(code, 0);
  const every = stepsOf(0);
  assert.deepEqual(
    every,
    every.map((_, i) => i),
    "every step was taken once",
  );
  assert.equal(every.length, last + 10);
  assert.equal(stepsOf(2).at(-1), last + 9, "the host that came back took part");
});
