import assert from "node:assert/strict";
import { availableParallelism } from "node:os";
import { test } from "node:test";
import { coreOrder, cpuQuota, orderCores, parseCpuList, threadsFor } from "./cores.js";

test("the first threads of cores come before the second ones, however they are numbered", () => {
  assert.deepEqual(parseCpuList("0-2,8,10-11\n"), [0, 1, 2, 8, 10, 11]);
  const neighbors = (cpu: number): number[] => [cpu & ~1, cpu | 1];
  assert.deepEqual(orderCores([0, 1, 2, 3, 4, 5, 6, 7], neighbors), [0, 2, 4, 6, 1, 3, 5, 7]);
  const halves = (cpu: number): number[] => [cpu % 4, (cpu % 4) + 4];
  assert.deepEqual(orderCores([0, 1, 2, 3, 4, 5, 6, 7], halves), [0, 1, 2, 3, 4, 5, 6, 7]);
  // A process that may use some threads only: a second thread whose first one is not ours is a core.
  assert.deepEqual(orderCores([1, 2, 3], neighbors), [1, 2, 3]);
});

test("the core order lists every core once", () => {
  const cores = coreOrder();
  assert.equal(new Set(cores).size, cores.length);
  assert.ok(cores.length >= 1 && cores.length <= availableParallelism());
});

test("quotas of control groups, fractional ones too, bound the number of threads", () => {
  const quota = (files: Record<string, string>): number => cpuQuota((path) => files[path] ?? null);
  assert.equal(quota({}), Number.POSITIVE_INFINITY);
  const second = { "/proc/self/cgroup": "0::/a/b\n" };
  assert.equal(quota({ ...second, "/sys/fs/cgroup/a/b/cpu.max": "max 100000\n" }), Number.POSITIVE_INFINITY);
  assert.equal(quota({ ...second, "/sys/fs/cgroup/a/b/cpu.max": "150000 100000\n" }), 1.5);
  // The smallest quota on the way to the root; a container may see its own group as the root.
  const nested = { "/sys/fs/cgroup/a/cpu.max": "50000 100000", "/sys/fs/cgroup/a/b/cpu.max": "400000 100000" };
  assert.equal(quota({ ...second, ...nested }), 0.5);
  assert.equal(quota({ ...second, "/sys/fs/cgroup/cpu.max": "200000 100000" }), 2);
  const first = { "/proc/self/cgroup": "4:memory:/x\n3:cpu,cpuacct:/x\n" };
  const files = {
    "/sys/fs/cgroup/cpu/x/cpu.cfs_quota_us": "250000",
    "/sys/fs/cgroup/cpu/x/cpu.cfs_period_us": "100000",
  };
  assert.equal(quota({ ...first, ...files }), 2.5);
  assert.equal(quota({ ...first, ...files, "/sys/fs/cgroup/cpu/x/cpu.cfs_quota_us": "-1" }), Number.POSITIVE_INFINITY);
  // Nonsense is no quota.
  for (const text of ["", "0 0", "abc def", "-5 100000", "100000"])
    assert.equal(quota({ ...second, "/sys/fs/cgroup/cpu.max": text }), Number.POSITIVE_INFINITY);
  assert.deepEqual(
    [0.2, 1, 1.4, 1.5, 2.5, 99].map((share) => threadsFor(4, share)),
    [1, 1, 1, 2, 3, 4],
  );
  assert.equal(threadsFor(4, Number.POSITIVE_INFINITY), 4);
});
