import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { test } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import * as weft from "@weft/core";
import { CpuDevice } from "@weft/core/internal/device";
import { dtypes } from "@weft/core/internal/graph";
import { noMpirun } from "@weft/testing/debian";
import { runMpi } from "@weft/testing/groups";
import { connect } from "./connect.js";
import { Dispatcher } from "./dispatcher.js";

const members = new URL(import.meta.resolve("@weft/testing/group-members")).href;
const programs = new URL("./distributed.testkit.js", import.meta.url).href;
const skip = !CpuDevice.available() ? "no C compiler" : noMpirun();

/** No rank saw a wrong value, and the ranks together counted the expected bytes. */
function judge(answers: unknown[]): void {
  const reports = answers as { wrong: string[]; moved: number; due: number }[];
  for (const { wrong } of reports) assert.deepEqual(wrong, []);
  const sum = (key: "moved" | "due"): number => Math.round(reports.reduce((n, answer) => n + answer[key], 0));
  assert.ok(sum("due") > 10_000);
  assert.equal(sum("moved"), sum("due"));
}

test("MPI: every collective of every dtype equals the reference under mpirun -n 2", { skip }, async () => {
  const shapes = [
    [5, 3],
    [131, 67],
  ];
  judge(await runMpi(2, members, "everyKind", { shapes, dtypes, mpi: true }));
});

test("MPI: every collective equals the reference under mpirun -n 4, with empty shards and subgroups", {
  skip,
}, async () => {
  const shapes = [
    [7, 5],
    [2, 3],
    [103, 211],
  ];
  const args = { shapes, dtypes: ["float32", "complex64"], mpi: true };
  judge(await runMpi(4, members, "everyKind", args));
});

for (const launched of ["mpi", "auto"]) {
  test(`a program under mpirun joins through the launcher's variables (${launched})`, { skip }, async () => {
    const answers = (await runMpi(3, programs, "functions", { device: "cpu", launched })) as Record<string, never>[];
    assert.equal(answers.length, 3);
    for (const { first, eager, kind } of answers) {
      // All processes are on one host, so "auto" chooses shared memory.
      assert.equal(kind, launched === "mpi" ? "mpi" : "shm");
      assert.deepEqual(first, eager);
      assert.deepEqual((eager as { sum: number[] }).sum, [6, 12, 18]);
      assert.deepEqual((eager as { gathered: number[] }).gathered, [0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2]);
    }
  });
}

const separate = spawnSync("unshare", ["--uts", "true"]).status === 0;

test("workers of one MPI job on several hosts compute together, in any order and any subset of them", {
  skip: skip || (separate ? false : "host names of their own need root and unshare"),
}, async () => {
  const dispatcher = await Dispatcher.start({ port: 0 });
  const index = new URL("./index.js", import.meta.url).href;
  const program = `
    const { Worker } = await import(${JSON.stringify(index)});
    await new Worker({ port: ${dispatcher.port}, cores: 1 }).run();`;
  const line = `hostname host$OMPI_COMM_WORLD_RANK && exec "${process.execPath}" --input-type=module -e "$PROGRAM"`;
  const child = spawn(
    "mpirun",
    ["--allow-run-as-root", "--oversubscribe", "-n", "3", "unshare", "--uts", "sh", "-c", line],
    { env: { ...process.env, PROGRAM: program, WEFT_RATES: "assumed" }, stdio: ["ignore", "inherit", "inherit"] },
  );
  const ended = once(child, "close");
  try {
    for (const deadline = Date.now() + 30_000; dispatcher.workers.length < 3; await delay(50))
      assert.ok(Date.now() < deadline, "the workers never came");
    assert.equal(new Set(dispatcher.workers.map((worker) => worker.process.host)).size, 3);
    process.env.WEFT_FORCE_SHARD = "1";
    for (const mesh of [undefined, { d: 2 }]) {
      const cluster = await connect(`localhost:${dispatcher.port}`, mesh === undefined ? {} : { mesh });
      const before = cluster.device.counts.sharded;
      const a = weft.tensor(Float32Array.from({ length: 90 * 60 }, (_, i) => (i % 7) - 3)).reshape([90, 60]);
      // Rows are split: the product is summed over the workers.
      const rows = weft.shard(a, { 0: "d" });
      const got = await rows.transpose().matmul(rows).sum(0).data();
      // In integers: exact in any order.
      const at = (i: number, j: number): number => ((i * 60 + j) % 7) - 3;
      for (let j = 0; j < 60; j++) {
        let expected = 0;
        for (let i = 0; i < 90; i++) for (let k = 0; k < 60; k++) expected += at(i, k) * at(i, j);
        assert.equal(got[j], expected);
      }
      assert.ok(cluster.device.counts.sharded > before, "several workers took part");
      assert.ok(cluster.device.lastPlan!.moves.length > 0, "the workers exchanged data");
      await cluster.close();
    }
  } finally {
    delete process.env.WEFT_FORCE_SHARD;
    weft.setDevice("cpu");
    child.kill("SIGTERM");
    await ended;
    dispatcher.stop();
  }
});
