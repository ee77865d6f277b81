// Memory that is left: what the system would give out and take back by ending a process is an error.
import assert from "node:assert/strict";
import { totalmem } from "node:os";
import { test } from "node:test";
import { OutOfMemoryError } from "../contract.js";
import { availableMemory, controlGroups } from "./available-memory.js";
import { CpuDevice } from "./index.js";

test("available memory is a part of all memory", () => {
  const bytes = availableMemory();
  assert.ok(bytes > 0 && bytes < totalmem(), String(bytes));
});

test("a tensor that is larger than the memory that is left is refused, not touched", {
  skip: CpuDevice.available() ? false : "no C compiler",
}, () => {
  for (const shared of [false, true]) {
    const device = new CpuDevice({ shared });
    const bytes = Math.floor((availableMemory() + totalmem()) / 2);
    assert.throws(() => device.allocate(bytes), OutOfMemoryError);
    device.free(device.allocate(64 << 20));
    device.trim();
  }
});

test("control groups of both versions are found from the process's own to the root", () => {
  assert.deepEqual(
    controlGroups("0::/a/b\n", "/r").map(({ limit }) => limit),
    ["/r/a/b/memory.max", "/r/a/memory.max", "/r/memory.max"],
  );
  assert.deepEqual(
    controlGroups("5:cpu,cpuacct:/x\n4:memory:/job\n", "/r").map(({ used }) => used),
    ["/r/memory/job/memory.usage_in_bytes", "/r/memory/memory.usage_in_bytes"],
  );
  assert.deepEqual(controlGroups("nonsense"), []);
});
