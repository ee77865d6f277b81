// What launchers say about a process: invalid or contradicting numbers, and names that are paths or commands.
import assert from "node:assert/strict";
import { test } from "node:test";
import { rankFromEnvironment } from "./environment.js";

const own = { WEFT_RANK: "0", WEFT_WORLD_SIZE: "2", WEFT_GROUP: "g" };
const slurm = { SLURM_PROCID: "0", SLURM_STEP_ID: "0", SLURM_NTASKS: "2", SLURM_JOB_ID: "7" };
const mpi = { OMPI_COMM_WORLD_RANK: "0", OMPI_COMM_WORLD_SIZE: "2" };

test("numbers of launchers are plain and agree", () => {
  const wrong: Record<string, string>[] = [
    ...["2", "5", "1e3", "", " ", "0x1", "-1", "1.0", "9".repeat(30)].map((WEFT_RANK) => ({ ...own, WEFT_RANK })),
    { ...own, WEFT_WORLD_SIZE: "0" },
    { ...own, WEFT_WORLD_SIZE: "1e15" },
    { ...own, WEFT_LOCAL_RANK: "9" },
    { ...own, WEFT_GROUP: "" },
    { ...slurm, SLURM_PROCID: "7" },
    { ...slurm, SLURM_NTASKS: "99999999999999999999" },
    { ...slurm, SLURM_LOCALID: "-1" },
    { ...mpi, OMPI_COMM_WORLD_RANK: "3" },
    { ...mpi, OMPI_COMM_WORLD_SIZE: "\u001b[31m" },
  ];
  for (const env of wrong)
    assert.throws(
      () => rankFromEnvironment(env),
      (error: Error) => !error.message.includes("\u001b") && error.message.length < 300,
      JSON.stringify(env),
    );
  // The second of two nodes has more tasks than the first.
  const uneven = { ...slurm, SLURM_NTASKS: "6", SLURM_PROCID: "5", SLURM_LOCALID: "3", SLURM_STEP_NUM_NODES: "2" };
  const { localRank, localSize } = rankFromEnvironment({ ...uneven, SLURM_STEP_TASKS_PER_NODE: "2,4" });
  assert.deepEqual([localRank, localSize], [3, 4]);
});

test("names of jobs are neither paths nor commands, and different ones stay different", () => {
  const names = ["../../tmp/x", "a/b", "a-b", "x".repeat(1e5), "7;touch x\n", "\u001b[31m"];
  const seen = names.map((name) => rankFromEnvironment({ ...own, WEFT_GROUP: name }).name);
  for (const name of seen) assert.match(name, /^[\w.-]{1,80}$/);
  assert.equal(new Set(seen).size, names.length);
  assert.match(rankFromEnvironment({ ...slurm, SLURM_JOB_ID: "7;touch x\n" }).name, /^[\w.-]{1,80}$/);
  assert.equal(rankFromEnvironment(own).name, "g");
});
