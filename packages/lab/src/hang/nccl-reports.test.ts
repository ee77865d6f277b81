// What NCCL and its watchdog print about a stuck job, in the forms that real jobs print: several timeouts of one rank, two
// prefixes, one rank behind in RAS, ranks without data, communicators of a part of the ranks, JSON.
import assert from "node:assert/strict";
import { test } from "node:test";
import { TestFolder } from "../trace/fixtures.testkit.js";
import { judgeHang } from "./judge.js";
import { readHang } from "./read.js";
import type { HangVerdict } from "./verdict.js";

async function verdictOf(name: string, text: string): Promise<HangVerdict> {
  using folder = new TestFolder();
  folder.file(name, text);
  return judgeHang(await readHang([folder.path]));
}

const timeout = (rank: number, sequence: number, op = "ALLREDUCE"): string =>
  `[E ProcessGroupNCCL.cpp:458] [Rank ${rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=${sequence}, OpType=${op}, Timeout(ms)=1800000) ran for 25625251 milliseconds before timing out.`;

test("several timeouts of one rank: the first call is what it waits for", async () => {
  const log = [
    ...[9120, 9117, 9125].map((sequence) => `Epoch 0:  6%| 32/500 [6:28<94:39, 1.3it/s]${timeout(0, sequence)}`),
    ...[1, 2].map((rank) => timeout(rank, 9117)),
    timeout(3, 9116, "BROADCAST"),
  ].join("\n");
  const verdict = await verdictOf("job.log", log);
  assert.deepEqual([verdict.culprits, verdict.kind, verdict.collective?.sequence], [[3], "late", 9117]);
  assert.match(verdict.evidence.join("; "), /rank 3 waits in broadcast number 9116/);
  assert.doesNotMatch(verdict.evidence.join("; "), /no file/);
});

test("a rank whose log says what it has issued is late, not gone", async () => {
  const prefix = (rank: number): string =>
    `[800${rank}] [rank${rank}]:[E321 02:07:08.408271257 ProcessGroupNCCL.cpp:607] `;
  const log = [
    ...[0, 1, 3].flatMap((rank) => [
      `${prefix(rank)}[Rank ${rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1580, OpType=ALLREDUCE, NumelIn=46, NumelOut=46, Timeout(ms)=600000) ran for 600060 milliseconds before timing out.`,
      `${prefix(rank)}[PG 1 Rank ${rank}] Exception (either an error or timeout) detected by watchdog at work: 1580, last enqueued NCCL work: 1582, last completed NCCL work: 1579.`,
    ]),
    `${prefix(2)}[PG 1 Rank 2] watchdog got stuck for 480 seconds, last enqueued NCCL work: 1579, last completed NCCL work: 1579.`,
  ].join("\n");
  const verdict = await verdictOf("job.log", log);
  assert.deepEqual([verdict.culprits, verdict.kind], [[2], "late"]);
  assert.match(verdict.evidence.join("; "), /rank 2 issued collectives up to number 1579/);
});

const report = (communicators: string, below: string): string => `Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      2        3-4            1          8        8

Communicators... (0.00s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
${communicators}

${below}
`;
const whole = "    0         1         2         4         8         8   RUNNING  MISMATCH";

test("RAS: one rank behind has its operation in its own line", async () => {
  const below = `Warnings
========

#0-0 (78db921d1c117b4a) MISMATCH
  Communicator ranks have different AllReduce operation counts
  7 ranks have launched up to operation 64
  Rank 7 has launched up to operation 60 -- GPU 3 managed by process 1650386 on node node1`;
  const verdict = await verdictOf("ras.txt", report(whole, below));
  assert.deepEqual([verdict.culprits, verdict.worldSize], [[7], 8]);
  const none = below.replace("has launched up to operation 60", "has not launched any operations");
  assert.deepEqual((await verdictOf("ras.txt", report(whole, none))).culprits, [7]);
});

test("RAS: a rank without data is dead; a status that differs accuses nobody", async () => {
  const below = `Errors
======

DEAD
  1 job process is considered dead (unreachable via the RAS network)
  Process 3487984 on node 172.16.64.213 managing GPU 5

#0-0 (cf264af53edbe986) INCOMPLETE
  Missing communicator data from 1 rank
  The missing rank: 5`;
  const verdict = await verdictOf("ras.txt", report(whole.replace("MISMATCH", "INCOMPLETE"), below));
  assert.deepEqual([verdict.culprits, verdict.kind], [[5], "dead"]);
  const status = `Warnings
========

#0-0 (9e17999afaa87dbb) MISMATCH
  Communicator ranks have different status
  6 ranks have status UNKNOWN
  2 ranks have status RUNNING
  Rank 0 -- GPU 0 managed by process 507285 on node 172.16.64.210
  Rank 4 -- GPU 0 managed by process 1598388 on node 172.16.64.212`;
  assert.deepEqual((await verdictOf("ras.txt", report(whole, status))).culprits, []);
});

test("RAS: ranks of a communicator of a part of the job are not ranks of the job", async () => {
  const rows = `    0         1         2         4         8         8   RUNNING  OK
    1         2         2         2         4         8   RUNNING  MISMATCH`;
  const below = `Warnings
========

#1-1 (78db921d1c117b4a) MISMATCH
  Communicator ranks have different collective operation counts
  3 ranks have launched up to operation 64
  Rank 1 has launched up to operation 60 -- GPU 3 managed by process 1650386 on node node1`;
  assert.deepEqual((await verdictOf("ras.txt", report(rows, below))).culprits, []);
});

test("RAS as JSON: counts of all collectives, and ranks that are missing", async () => {
  const rank = (number: number, allReduce: number): object => ({
    rank: number,
    host: "node0",
    pid: 100 + number,
    collective_counts: { Broadcast: 2, AllReduce: allReduce },
  });
  const json = (ranks: object[], absent: object[]): string =>
    JSON.stringify({
      nccl_version: "2.29.1",
      communicators: [
        { size: 2, ranks: [rank(0, 1), rank(1, 9)], missing_ranks: [] },
        { size: 4, ranks, missing_ranks: absent },
      ],
    });
  const behind = await verdictOf("ras.json", json([rank(0, 9), rank(1, 9), rank(2, 7), rank(3, 9)], []));
  assert.deepEqual([behind.culprits, behind.worldSize], [[2], 4]);
  const absent = { rank: 3, host: "node1", pid: 77, status: { unresponsive: true } };
  const dead = await verdictOf("ras.json", json([rank(0, 9), rank(1, 9), rank(2, 9)], [absent]));
  assert.deepEqual([dead.culprits, dead.kind], [[3], "dead"]);
});
