// Several CPU devices in one process: each computes with its own number of threads, on its own cores.
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { test } from "node:test";
import type { GraphFn } from "../../graph/index.js";
import { build } from "../../ops/index.js";
import { parseCpuList } from "./cores.js";
import { CpuDevice } from "./index.js";

const listOf = (task: string): string =>
  /^Cpus_allowed_list:\s*(\S+)/m.exec(readFileSync(`/proc/self/task/${task}/status`, "utf8"))?.[1] ?? "";
const allowed = process.platform === "linux" ? parseCpuList(listOf(String(process.pid))) : [];
const skip = !CpuDevice.available() ? "no C compiler" : allowed.length < 2 ? "one core" : false;

/** Number of threads of this process that may run on these cores only. */
const threadsOn = (cores: readonly number[]): number =>
  readdirSync("/proc/self/task").filter((task) => parseCpuList(listOf(task)).join() === cores.join()).length;
const ownCores = (): number[] => parseCpuList(listOf(String(process.pid)));

const n = 1 << 20;
/** Large enough to be divided among all threads. */
function program(): GraphFn {
  const x = build.input([n], "float32", "x");
  return { params: [x], outputs: [build.unary("exp", x)] };
}

function runner(device: CpuDevice): () => void {
  const executable = device.compile(program(), {});
  const input = device.allocate(4 * n);
  device.upload(input, new Uint8Array(4 * n));
  return () => {
    for (const buffer of executable.run([input])) device.free(buffer);
  };
}

test("two devices in one process each keep their cores and their number of threads", { skip }, () => {
  const [a, b] = allowed;
  const first = runner(new CpuDevice({ cores: [a], threads: 3 }));
  const second = runner(new CpuDevice({ cores: [b], threads: 2 }));
  const both = runner(new CpuDevice({ cores: [a, b] }));
  const free = runner(new CpuDevice({ threads: 2 }));
  for (let round = 0; round < 2; round++) {
    first();
    assert.deepEqual(ownCores(), [a]);
    assert.equal(threadsOn([a]), 3);
    second();
    assert.deepEqual(ownCores(), [b]);
    assert.equal(threadsOn([b]), 2);
    both();
    assert.deepEqual(ownCores(), [a, b]);
    free();
    assert.deepEqual(ownCores(), allowed);
    assert.equal(threadsOn([a]) + threadsOn([b]), 0);
  }
});

test("cores that the process may not use, and invalid counts, are errors", { skip }, () => {
  assert.throws(() => new CpuDevice({ cores: [1023] }), /may not run on cores 1023; see taskset/);
  assert.throws(() => new CpuDevice({ cores: [-1] }), /may not run on cores -1/);
  assert.throws(() => new CpuDevice({ cores: [100_000_000] }), /may not run on cores/);
  assert.throws(() => new CpuDevice({ threads: 0 }), /threads is 0; give a whole number/);
  assert.throws(() => new CpuDevice({ threads: 1.5 }), /threads is 1.5/);
});
