// Workers with different numbers of cores: shards are as large as the workers are fast, and results are those of one device.
import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { after, test } from "node:test";
import { fileURLToPath } from "node:url";
import * as weft from "@weft/core";
import type { TensorValue } from "@weft/core/internal/runtime";
import { connect } from "./connect.js";
import { Dispatcher } from "./dispatcher.js";
import { onGpu, skip } from "./workers.testkit.js";

const main = fileURLToPath(new URL("./main.js", import.meta.url));
const children: ChildProcess[] = [];
after(() => {
  for (const child of children) child.kill("SIGKILL");
});

test("a worker with two cores gets twice as many rows", { skip: skip || onGpu, timeout: 60_000 }, async () => {
  const dispatcher = await Dispatcher.start({ port: 0 });
  for (const cores of [1, 2, 1]) {
    const options = JSON.stringify({ port: dispatcher.port, device: "cpu", cores });
    const child = spawn(process.execPath, [main, "worker", options], { stdio: ["pipe", "pipe", "inherit"] });
    children.push(child);
    await once(child.stdout, "data");
  }
  process.env.WEFT_FORCE_SHARD = "1";
  const cluster = await connect(`localhost:${dispatcher.port}`);
  try {
    const value = (i: number): number => ((i * 7) % 11) - 5;
    const x = weft.shard(weft.tensor(Float32Array.from({ length: 40 * 6 }, (_, i) => value(i))).reshape([40, 6]), {
      0: "d",
    });
    const y = x.mul(2);
    const got = await y.data();
    assert.ok(got.every((v, i) => v === 2 * value(i)));
    // Sums over rows that are on different workers, and an exchange between them.
    const product = await x.transpose().matmul(x).array();
    for (let a = 0; a < 6; a++)
      for (let b = 0; b < 6; b++) {
        let sum = 0;
        for (let i = 0; i < 40; i++) sum += value(i * 6 + a) * value(i * 6 + b);
        assert.equal((product as number[][])[a][b], sum);
      }
    const parts = cluster.device.describe((y.node.value as TensorValue).buffer);
    assert.deepEqual(
      parts.map(({ start, stop }) => stop[0] - start[0]),
      [10, 20, 10],
    );
  } finally {
    delete process.env.WEFT_FORCE_SHARD;
    await cluster.close();
    dispatcher.stop();
    weft.setDevice("cpu");
  }
});
