import assert from "node:assert/strict";
import { test } from "node:test";
import { CpuDevice } from "@weft/core/internal/device";
import { dtypes } from "@weft/core/internal/graph";
import { findMpirun, runMpi } from "@weft/testing/groups";

const members = new URL(import.meta.resolve("@weft/testing/group-members")).href;
const programs = new URL("./distributed.testkit.js", import.meta.url).href;
const skip = !CpuDevice.available() ? "no C compiler" : findMpirun() === null ? "no mpirun" : false;

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
