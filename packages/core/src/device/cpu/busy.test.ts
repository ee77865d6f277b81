// Programs with many short parallel regions beside processes that keep every core busy. Several threads may take longer than one
// there, but not by much: a thread that the system does not schedule must not hold up the others.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { availableParallelism } from "node:os";
import { test } from "node:test";
import type { GraphFn, Node } from "../../graph/index.js";
import { build } from "../../ops/index.js";
import { CpuDevice } from "./index.js";

const cores = availableParallelism();
const skip = !CpuDevice.available() ? "no C compiler" : cores < 2 ? "one core" : false;
const [rows, columns, regions] = [256, 256, 60];

/** Column sums and element-wise kernels in turn: each needs all results of the one before. */
function program(): GraphFn {
  const x = build.input([rows, columns], "float32", "x");
  let at: Node = x;
  for (let i = 0; i < regions / 2; i++) {
    const sums = build.unreduce(build.sum(at, [0]), at.shape, [0]);
    at = build.unary("sin", build.sub(at, sums));
  }
  return { params: [x], outputs: [at] };
}

function runner(threads: number): () => Float32Array {
  const device = new CpuDevice({ threads });
  const executable = device.compile(program(), {});
  const bytes = 4 * rows * columns;
  const input = device.allocate(bytes);
  device.upload(input, new Uint8Array(Float32Array.from({ length: rows * columns }, (_, i) => (i % 97) / 97).buffer));
  return () => {
    const [output] = executable.run([input]);
    const result = new Uint8Array(bytes);
    device.download(output, result);
    device.free(output);
    return new Float32Array(result.buffer);
  };
}

const seconds = (body: () => void): number => {
  const start = performance.now();
  body();
  return (performance.now() - start) / 1e3;
};

test("beside busy processes, several threads take at most a few times as long as one", { skip }, async () => {
  const [one, several] = [runner(1), runner(Math.min(cores, 4))];
  assert.deepEqual(several(), one());
  const busy = Array.from({ length: 2 * cores }, () =>
    spawn(process.execPath, ["-e", "for (;;);"], { stdio: "ignore" }),
  );
  try {
    await new Promise((resolve) => setTimeout(resolve, 500));
    let [alone, together] = [0, 0];
    const end = performance.now() + 6000;
    // In turns, so that both meet the same conditions.
    for (let i = 0; i < 12 && performance.now() < end; i++) {
      alone += seconds(one);
      together += seconds(several);
    }
    // A barrier at which threads spin waits for one that is not scheduled, region after region.
    assert.ok(together < 5 * alone, `one thread took ${alone.toFixed(3)} s, several took ${together.toFixed(3)} s`);
  } finally {
    for (const child of busy) child.kill("SIGKILL");
  }
});
