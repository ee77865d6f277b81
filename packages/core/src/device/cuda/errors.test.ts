// Bad days: no GPU, wrong numbers, missing libraries, old drivers, full and busy GPUs, kernels that fault. Every error says
// what happened and what helps, and what comes after works.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import * as weft from "../../index.js";
import { useCudaLibraries } from "./driver.js";
import { CudaDevice } from "./index.js";
import { FakeCuda, type FakeOptions } from "./testkit.js";

const cache = mkdtempSync(join(tmpdir(), "weft-fake-cuda-"));
process.env.WEFT_CACHE_DIR = cache;
process.env.WEFT_PINNED_LIMIT = String(64 << 20);
after(() => rmSync(cache, { recursive: true, force: true }));

const refuses = (options: FakeOptions, expected: RegExp, ordinal = 0): void =>
  new FakeCuda(options).within(() => assert.throws(() => new CudaDevice(ordinal), expected));

test("no driver, no GPU, a number that is not there, a driver that is too old", () => {
  const before = useCudaLibraries(null);
  assert.throws(() => new CudaDevice(0), /libcuda\.so\.1\) was not found; is there a GPU/);
  useCudaLibraries(before);
  refuses({ devices: 0 }, /no GPU was found: check nvidia-smi and CUDA_VISIBLE_DEVICES/);
  refuses({ devices: 2 }, /there is no device cuda:5; this process sees 2 \(CUDA_VISIBLE_DEVICES=/, 5);
  refuses({ devices: 2 }, /there is no device cuda:-1/, -1);
  refuses(
    { driverVersion: 10020 },
    /too old: it supports CUDA 10\.2, and Weft needs 11\.0 or newer; update the driver/,
  );
});

test("without NVRTC no kernel can be compiled, and the error says what to install", () =>
  new FakeCuda({ without: ["nvrtc"] }).within(() => {
    weft.useDevice(new CudaDevice(0));
    assert.throws(() => weft.ones([4]).exp().realize(), /NVRTC .* was not found.*pip install nvidia-cuda-nvrtc/s);
  }));

test("without cuBLAS everything but products works", () =>
  new FakeCuda({ without: ["blas", "lt"] }).within((fake) => {
    weft.useDevice(new CudaDevice(0));
    const x = weft.ones([8, 8]).realize();
    x.exp().realize();
    assert.throws(() => x.matmul(x).realize(), /cuBLAS .* was not found.*pip install nvidia-cublas/s);
    fake.sequence();
    x.exp().add(1).realize();
    assert.ok(fake.sequence().includes("cuLaunchKernel"), "the next call works");
  }));

test("a GPU that another process has for itself: the error names it", () => {
  const fake = new FakeCuda({ processes: [{ pid: 4242, bytes: 70e9, name: "/usr/bin/python3" }] });
  fake.fail("cuDevicePrimaryCtxRetain", 46);
  fake.within(() =>
    assert.throws(
      () => new CudaDevice(0),
      /cuda:0 \(Fake GPU\) cannot be used: another process has it for itself alone \(\/usr\/bin\/python3 \(pid 4242, 70\.00 GB\)\).*CUDA_VISIBLE_DEVICES/,
    ),
  );
});

test("out of memory: what can be freed is freed and the call is tried again", () =>
  new FakeCuda({ memoryBytes: 64 << 20 }).within((fake) => {
    const device = new CudaDevice(0);
    weft.useDevice(device);
    // Pooled memory of another size fills the GPU: it goes back to the driver, and the call succeeds.
    for (let i = 0; i < 10; i++) {
      const sizes = [1, 2, 3, 4].map((n) =>
        weft
          .zeros([n << 20])
          .add(1)
          .realize(),
      );
      for (const t of sizes) t.dispose();
    }
    fake.sequence();
    const t = weft
      .zeros([11 << 20])
      .add(1)
      .realize();
    assert.ok(fake.sequence().includes("cuMemFree_v2"));
    t.dispose();
    device.close();
  }));

test("out of memory for good: the error names the tensors, their lines, the others on the GPU, and what would fit", () =>
  new FakeCuda({ memoryBytes: 3e9, takenBytes: 2e9, processes: [{ pid: 77, bytes: 2e9, name: "trainer" }] }).within(
    () => {
      const device = new CudaDevice(0);
      weft.useDevice(device);
      const held = [1, 2, 3].map(() =>
        weft
          .zeros([1 << 20])
          .add(1)
          .realize(),
      );
      let message = "";
      try {
        weft
          .zeros([1 << 29])
          .add(1)
          .realize();
      } catch (error) {
        assert.ok(error instanceof weft.OutOfMemoryError);
        message = error.message;
      }
      assert.match(message, /cuda:0 \(Fake GPU\): no memory for 2147483648 bytes \(2\.15 GB\); of 3\.00 GB/);
      assert.match(message, /2\.\d\d GB by others \(trainer \(pid 77, 2\.00 GB\)\)/);
      assert.match(message, /a tensor of up to \d+ million float32 would fit/);
      assert.match(message, /3 x float32\[1048576\], 12\.6 MB/);
      assert.match(message, /WEFT_MEMORY_SITES=1/);
      assert.equal(held.length, 3);
      // The next call works, and the failed one left nothing behind.
      const used = device.memory().usedBytes;
      weft
        .zeros([1 << 10])
        .add(1)
        .realize()
        .dispose();
      assert.equal(device.memory().usedBytes, used);
      device.close();
    },
  ));

test("an allocation that fails halfway through a call gives back what the call had taken", () =>
  new FakeCuda().within((fake) => {
    const device = new CudaDevice(0);
    weft.useDevice(device);
    const f = weft.jit((x: weft.Tensor) => [x.mul(2), x.mul(3).cast("float64"), x.mul(4).sum()]);
    const x = weft.ones([100000]).realize();
    const used = device.memory().usedBytes;
    fake.fail("cuMemAlloc_v2", 2, { after: 1 });
    assert.throws(() => f(x), /no memory for/);
    assert.equal(device.memory().usedBytes, used);
    fake.heal();
    assert.equal((f(x) as weft.Tensor[]).length, 3);
    device.close();
  }));

test("a kernel fault: the context is dead and says so; tensors on it explain themselves; a fresh device works", () =>
  new FakeCuda().within((fake) => {
    const device = weft.setDevice("cuda") as CudaDevice;
    const kept = weft.ones([1 << 20]).realize();
    const array = kept.dataSync();
    const pending = kept.add(1);
    fake.fail("cuEventSynchronize", 700, { sticky: true });
    assert.throws(
      () => kept.dataSync(),
      /error 700 \(a kernel read or wrote outside its memory\); the context of cuda:0 is dead, and every tensor on it is lost\. weft\.setDevice\("cuda:0"\) asks the driver for a fresh one \(many drivers want a new process/,
    );
    assert.match(device.lost!, /700/);
    assert.throws(() => pending.dataSync(), /the context of cuda:0 is dead/);
    assert.throws(() => weft.ones([3]).realize(), /the context of cuda:0 is dead/);
    kept.dispose();
    fake.sequence();
    const fresh = weft.setDevice("cuda") as CudaDevice;
    assert.notEqual(fresh, device);
    assert.equal(fake.sequence()[0], "cuDevicePrimaryCtxReset_v2");
    assert.equal(fresh.lost, null);
    assert.equal(weft.setDevice("cuda:0"), fresh, "one device a GPU");
    weft.ones([1000]).add(1).realize();
    assert.throws(() => kept.add(1).realize(), /disposed/);
    assert.throws(() => pending.realize(), /lives on cuda:0|is dead/);
    assert.equal(array[1 << 19], 0, "what was fetched stays readable");
    // Nothing of the dead context is left: only what the fresh one holds.
    assert.ok(fake.allocatedBytes < 2 << 20, `${fake.allocatedBytes} bytes`);
    fresh.close();
    assert.equal(fake.allocatedBytes, 0);
    assert.throws(() => weft.ones([3]).realize(), /cuda:0 was closed/);
  }));

test("a fault inside a recorded graph, and one while recording", () =>
  new FakeCuda().within((fake) => {
    let device = new CudaDevice(0);
    weft.useDevice(device);
    const f = weft.jit((x: weft.Tensor) => x.mul(2));
    let x = weft.ones([64]).realize();
    for (let i = 0; i < 3; i++) f(x).dispose();
    fake.fail("cuGraphLaunch", 719, { sticky: true });
    assert.throws(() => f(x), /error 719 \(a kernel failed\); the context of cuda:0 is dead/);
    device.close();
    device = new CudaDevice(0);
    weft.useDevice(device);
    x = weft.ones([64]).realize();
    f(x).dispose();
    // A driver that does not record overlapping launches gets plain ones.
    fake.fail("cuLaunchKernelEx", 801);
    f(x).dispose();
    assert.equal(device.context.capturing, false);
    f(x).dispose();
    fake.fail("cuLaunchKernel", 701);
    assert.throws(() => weft.jit((y: weft.Tensor) => y.mul(3))(x), /cuLaunchKernel failed with error 701/);
    assert.equal(device.context.capturing, false);
    fake.heal();
    f(x).dispose();
    f(x).dispose();
    assert.equal(device.lost, null, "an error that kills nothing leaves the device as it was");
    device.close();
  }));

test("a GPU without memory for a graph launches kernels one by one, and records again later", () =>
  new FakeCuda().within((fake) => {
    const device = new CudaDevice(0);
    weft.useDevice(device);
    const f = weft.jit((x: weft.Tensor) => x.mul(2).matmul(x));
    const x = weft.ones([64, 64]).realize();
    const call = (): string[] => {
      f(x).dispose();
      return fake.sequence();
    };
    for (let i = 0; i < 3; i++) call();
    assert.deepEqual(call(), ["cuGraphLaunch"]);
    // While it is replayed.
    fake.fail("cuGraphLaunch", 2);
    const names = call();
    assert.deepEqual(names.slice(0, 2), ["cuGraphLaunch", "cuGraphExecDestroy"]);
    assert.ok(names.includes("cuLaunchKernel"), names.join(" "));
    assert.ok(!call().includes("cuStreamBeginCapture_v2"), "not recorded again at once");
    fake.heal();
    for (let i = 0; i < 70; i++) call();
    assert.deepEqual(call(), ["cuGraphLaunch"]);
    // While it is made.
    const g = weft.jit((y: weft.Tensor) => y.add(3).matmul(y));
    g(x).dispose();
    fake.sequence();
    fake.fail("cuGraphInstantiateWithFlags", 2);
    g(x).dispose();
    const made = fake.sequence();
    assert.ok(made.includes("cuGraphDestroy"), "the captured graph is not leaked");
    assert.ok(made.lastIndexOf("cuLaunchKernel") > made.indexOf("cuGraphDestroy"), "kernels run after the failure");
    fake.heal();
    assert.equal(device.lost, null);
    device.close();
    assert.equal(fake.allocatedBytes, 0);
  }));

test("no memory for staging buffers does not repeat a call that has run", () =>
  new FakeCuda().within((fake) => {
    const device = new CudaDevice(0);
    weft.useDevice(device);
    const f = weft.jit((x: weft.Tensor) => weft.sort(x.mul(2)).add(weft.cumsum(x)));
    const held = Array.from({ length: 16 }, () => weft.ones([1 << 16]).realize());
    const launched = (x: weft.Tensor): number => {
      f(x).dispose();
      return fake.sequence().filter((name) => name === "cuLaunchKernel").length;
    };
    launched(held[0]);
    const usual = launched(held[1]);
    let refused = 0;
    for (const x of held.slice(2)) {
      // Results reuse memory of the pool; staging buffers need more.
      fake.fail("cuMemAlloc_v2", 2);
      f(x).dispose();
      const names = fake.sequence();
      if (names.includes("cuMemAlloc_v2")) refused++;
      assert.equal(names.filter((name) => name === "cuLaunchKernel").length, usual);
    }
    assert.ok(refused > 0, "staging buffers were tried");
    fake.heal();
    assert.equal(device.lost, null);
    device.close();
  }));

test("a promise that waits for a copy is rejected when the GPU dies meanwhile", () =>
  new FakeCuda().within(async (fake) => {
    const device = new CudaDevice(0);
    weft.useDevice(device);
    const t = weft.ones([1 << 20]).realize();
    fake.slowness = 3;
    const reading = t.data();
    fake.fail("cuEventQuery", 700, { sticky: true });
    await assert.rejects(reading, /the context of cuda:0 is dead/);
    device.close();
  }));

test("NVML's readings, and none where there is no NVML", () => {
  new FakeCuda({ processes: [{ pid: 9, bytes: 1e9, name: "x" }] }).within(() => {
    const device = new CudaDevice(0);
    const readings = device.readings()!;
    assert.deepEqual(readings.processes, [{ pid: 9, name: "x", bytes: 1e9 }]);
    assert.equal(readings.watts, 0);
    device.close();
  });
  new FakeCuda({ without: ["nvml"] }).within(() => {
    const device = new CudaDevice(0);
    assert.equal(device.readings(), null);
    device.close();
  });
});

test("if the driver cannot recover from a fault, the error asks for a new process", () =>
  new FakeCuda({ faultsStay: true }).within((fake) => {
    const device = weft.setDevice("cuda") as CudaDevice;
    const t = weft.ones([1 << 20]).realize();
    fake.fail("cuEventSynchronize", 700, { sticky: true });
    assert.throws(() => t.dataSync(), /is dead/);
    assert.throws(
      () => weft.setDevice("cuda"),
      /a kernel fault earlier in this process \(error 700\) has ended its use of the GPU.*new process/s,
    );
    assert.match(device.lost!, /700/);
    weft.useDevice(new weft.ReferenceDevice());
    assert.equal(weft.tensor([1]).add(1).itemSync(), 2, "other devices go on");
  }));
