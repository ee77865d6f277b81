// Groups over links between hosts: every collective of every dtype, members that die, stop or are unplugged, and strangers.
import assert from "node:assert/strict";
import type { ChildProcess } from "node:child_process";
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { after, test } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import { connect } from "node:tls";
import { fileURLToPath } from "node:url";
import { Hosts, noHosts } from "@weft/testing/hosts";
import { writeFrame } from "./frames.js";
import { skip as noCompiler } from "./workers.testkit.js";

const member = fileURLToPath(new URL("./link-members.testkit.js", import.meta.url));
const skip = noCompiler || noHosts;
const made: Hosts[] = [];
after(() => {
  for (const hosts of made) hosts.remove();
});

interface Member {
  child: ChildProcess;
  port: number;
  next(): Promise<Record<string, unknown>>;
}

/** Starts one member on each of the named hosts; the returned function tells them about each other. */
async function members(
  places: readonly number[],
  task: string,
): Promise<{ hosts: Hosts; list: Member[]; begin(): void }> {
  const hosts = new Hosts(Math.max(...places));
  made.push(hosts);
  const list = await Promise.all(
    places.map(async (host, rank): Promise<Member> => {
      const security = JSON.stringify(hosts.tls);
      const child = hosts.start(host, [process.execPath, member, String(rank), hosts.address(host), security, task]);
      const lines = createInterface(child.stdout!)[Symbol.asyncIterator]();
      const next = async (): Promise<Record<string, unknown>> => {
        const { value } = await lines.next();
        return value === undefined ? { ended: true } : (JSON.parse(value as string) as Record<string, unknown>);
      };
      return { child, port: (await next()).port as number, next };
    }),
  );
  const data = places.map((host, rank) => ({
    host: `host${host}`,
    data: { host: hosts.address(host), port: list[rank].port, tls: true },
  }));
  const begin = (): void => {
    for (const { child } of list) child.stdin!.write(`${JSON.stringify({ members: data, key: "k".repeat(64) })}\n`);
  };
  return { hosts, list, begin };
}

test("every collective of every dtype over links of three hosts equals the reference", {
  skip,
  timeout: 120_000,
}, async () => {
  const { list, begin } = await members([1, 2, 1, 3], "kinds");
  begin();
  for (const { next } of list) {
    const { wrong, run, error } = (await next()) as { wrong: string[]; run: number; error?: string };
    assert.deepEqual(wrong, [], error);
    assert.ok(run > 300);
  }
});

for (const [fault, act] of [
  ["is killed", (hosts: Hosts): void => hosts.kill(2)],
  ["is stopped", (hosts: Hosts): void => hosts.stop(2)],
  ["is unplugged", (hosts: Hosts): void => hosts.cut(2)],
] as const)
  test(`a member that ${fault} ends the collectives of the others within seconds`, {
    skip,
    timeout: 60_000,
  }, async () => {
    const { hosts, list, begin } = await members([1, 2, 3], "barriers");
    begin();
    for (const { next } of list) assert.deepEqual(await next(), { joined: true });
    await delay(300);
    act(hosts);
    for (const rank of [0, 2]) {
      const { error, seconds } = (await list[rank].next()) as { error: string; seconds: number };
      assert.match(error, /rank \d of group links-test is gone|was given up/);
      assert.ok(seconds < 9, `${seconds} s`);
    }
  });

test("a connection without the group's key, or for a rank that is not expected, is closed", {
  skip,
  timeout: 60_000,
}, async () => {
  const { hosts, list, begin } = await members([1, 2], "kinds");
  const { cert, key, ca } = hosts.tls;
  const open = (claim: object): Promise<string> =>
    new Promise((resolve) => {
      const files = { cert: readFileSync(cert), key: readFileSync(key), ca: readFileSync(ca) };
      const socket = connect({ host: hosts.address(1), port: list[0].port, ...files });
      socket.on("secureConnect", () => writeFrame(socket, claim));
      socket.on("error", () => {});
      socket.on("close", () => resolve("closed"));
      socket.on("data", () => resolve("answered"));
    });
  const intruders = [
    open({ group: "links-test", key: "wrong", from: 1 }),
    open({ group: "links-test", key: "k".repeat(64), from: 0 }),
    open({ group: "links-test", key: 7, from: "x" }),
    open({ other: "x".repeat(2000) }),
  ];
  await delay(300);
  begin();
  assert.deepEqual(await Promise.all(intruders), ["closed", "closed", "closed", "closed"]);
  for (const { next } of list) assert.deepEqual(((await next()) as { wrong: string[] }).wrong, []);
});
