import assert from "node:assert/strict";
import { test } from "node:test";
import * as weft from "@weft/core";
import { CpuDevice } from "@weft/core/internal/device";
import { runRanks } from "@weft/testing/groups";
import * as distributed from "./distributed.js";
import { localDeviceIndex, rankFromEnvironment } from "./environment.js";

const ranks = new URL("./distributed.testkit.js", import.meta.url).href;
const skip = CpuDevice.available() ? false : "no C compiler";

for (const device of ["cpu", "reference"]) {
  test(`${device}: every function, eager and jitted, over 3 processes`, { skip }, async () => {
    const answers = (await runRanks(3, ranks, "functions", { device })) as Record<string, never>[];
    answers.forEach(({ eager, first, second, kernels }, rank) => {
      assert.deepEqual(eager, {
        sum: [6, 12, 18],
        mean: [2, 4, 6],
        max: [3, 6, 9],
        gathered: [0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2],
        scattered: [
          [0, 6, 12],
          [18, 24],
          [30, 36],
        ][rank],
        broadcast: [3, 6, 9],
        after: [72],
      });
      assert.deepEqual(first, eager);
      assert.deepEqual(second, eager);
      // Equal collectives are issued once each, in program order.
      assert.ok((kernels as string[]).some((name) => /^(allReduce|collective)/.test(name)));
    });
  });
}

test("a data-parallel step equals the whole batch, with the same bits on every rank", { skip }, async () => {
  const answers = (await runRanks(2, ranks, "gradientStep", { device: "cpu" })) as Record<string, number>[];
  for (const { error, moved } of answers) {
    assert.ok(error < 1e-5, `${error}`);
    assert.ok(moved > 1e-3);
  }
  assert.equal(answers[0].hash, answers[1].hash);
});

test("many pending collectives, and one inside a loop", { skip }, async () => {
  for (const answer of await runRanks(3, ranks, "overlapped", { device: "cpu" })) {
    const { worst, last } = answer as { worst: number; last: number[] };
    assert.ok(worst < 1e-5, `${worst}`);
    assert.deepEqual(last, [6, 6, 6]);
  }
});

test("when a process leaves, the error on the others names it", { skip }, async () => {
  const [first, left, third] = await runRanks(3, ranks, "deserted", { device: "cpu" });
  assert.equal(left, "left");
  for (const message of [first, third])
    assert.match(message as string, /rank 1 .*is gone|given up after an error on rank/);
});

test("in a single process, collectives return their argument", async () => {
  await distributed.init();
  try {
    assert.equal(distributed.size(), 1);
    assert.deepEqual(distributed.allReduce(weft.tensor([1, 2])).arraySync(), [1, 2]);
    assert.deepEqual(distributed.broadcast(weft.tensor([3])).arraySync(), [3]);
    await assert.rejects(distributed.init(), /shutdown\(\) first/);
  } finally {
    distributed.shutdown();
  }
  assert.throws(() => distributed.rank(), /distributed.init\(\) first/);
});

test("the rank of a process is read from its launcher's variables", () => {
  assert.deepEqual(rankFromEnvironment({}), {
    rank: 0,
    size: 1,
    localSize: 1,
    localRank: 0,
    name: "alone",
    launcher: "none",
  });
  assert.deepEqual(rankFromEnvironment({ WEFT_RANK: "1", WEFT_WORLD_SIZE: "4", WEFT_GROUP: "g" }), {
    rank: 1,
    size: 4,
    localSize: 4,
    localRank: 1,
    name: "g",
    launcher: "weft",
  });
  const mpi = rankFromEnvironment({
    OMPI_COMM_WORLD_RANK: "3",
    OMPI_COMM_WORLD_SIZE: "4",
    OMPI_COMM_WORLD_LOCAL_SIZE: "2",
    OMPI_COMM_WORLD_LOCAL_RANK: "1",
    OMPI_MCA_ess_base_jobid: "77",
  });
  assert.deepEqual(mpi, { rank: 3, size: 4, localSize: 2, localRank: 1, name: "ompi-77", launcher: "openmpi" });
  const slurm = { SLURM_PROCID: "2", SLURM_NTASKS: "4", SLURM_JOB_ID: "9", SLURM_STEP_ID: "0", SLURM_LOCALID: "2" };
  assert.deepEqual(rankFromEnvironment(slurm), {
    rank: 2,
    size: 4,
    localSize: 4,
    localRank: 2,
    name: "slurm-9-0",
    launcher: "slurm",
  });
  assert.equal(rankFromEnvironment({ SLURM_PROCID: "0", SLURM_NTASKS: "4", SLURM_JOB_ID: "9" }).size, 1);
  // Tasks that see one GPU each call it 0; tasks that see all of the host take the one of their number.
  assert.equal(localDeviceIndex({ ...slurm, CUDA_VISIBLE_DEVICES: "0,1,2,3" }), 2);
  assert.equal(localDeviceIndex({ ...slurm, CUDA_VISIBLE_DEVICES: "2" }), 0);
  assert.equal(localDeviceIndex({ ...slurm, CUDA_VISIBLE_DEVICES: "4,5", SLURM_GPUS_PER_TASK: "2" }), 0);
  assert.equal(localDeviceIndex(slurm), 2);
  assert.throws(() => rankFromEnvironment({ WEFT_RANK: "1" }), /WEFT_WORLD_SIZE and WEFT_GROUP must be set too/);
  assert.throws(() => rankFromEnvironment({ WEFT_RANK: "x", WEFT_WORLD_SIZE: "2", WEFT_GROUP: "g" }), /WEFT_RANK=x/);
});
