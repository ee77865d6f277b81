// Fetching large results, against a driver that writes its calls down: pinned memory that the user's array owns, results
// delivered in pieces, an event loop that stays free.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import * as weft from "../../index.js";
import { collectNow } from "../collect.js";
import { HostPool } from "./host-memory.js";
import { CudaDevice } from "./index.js";
import { FakeCuda } from "./testkit.js";

const cache = mkdtempSync(join(tmpdir(), "weft-fake-cuda-"));
process.env.WEFT_CACHE_DIR = cache;
process.env.WEFT_PINNED_LIMIT = String(16 << 20);
after(() => rmSync(cache, { recursive: true, force: true }));

const megabyte = 1 << 20;
const bytes = (n: number, value: number): Uint8Array => new Uint8Array(n).fill(value);

function filled(device: CudaDevice, size: number, value: number) {
  const buffer = device.allocate(size);
  device.upload(buffer, bytes(size, value));
  return buffer;
}

test("a large result lands in pinned memory that the array owns: one copy, no staging", () =>
  new FakeCuda().within((fake) => {
    const device = new CudaDevice(0);
    const buffer = filled(device, 2 * megabyte, 7);
    fake.sequence();
    const got = new Uint8Array(device.fetch(buffer)!);
    assert.deepEqual(fake.sequence(), [
      "cuMemHostRegister_v2",
      "cuEventCreate",
      "cuEventCreate",
      "cuEventRecord",
      "cuStreamWaitEvent",
      "cuMemcpyDtoHAsync_v2",
      "cuEventRecord",
      "cuEventSynchronize",
    ]);
    assert.ok(got.length === 2 * megabyte && got.every((b) => b === 7));
    assert.equal(device.fetch(device.allocate(1000)), null, "small ones are copied");
    device.close();
  }));

test("a block is never given out again while somebody holds its array, and is when nobody does", () =>
  new FakeCuda().within(() => {
    const device = new CudaDevice(0);
    const pool = device.context.hostPool;
    const buffers = [1, 2, 3].map((value) => filled(device, megabyte, value));
    const held = buffers.map((buffer) => new Uint8Array(device.fetch(buffer)!));
    for (let i = 0; i < 64; i++) device.fetch(filledOnce(device));
    assert.deepEqual(
      held.map((array) => [array[0], array[megabyte - 1]]),
      [
        [1, 1],
        [2, 2],
        [3, 3],
      ],
    );
    // 16 MB at most: 64 fetches of 1 MB in one synchronous loop had to use blocks again.
    assert.ok(pool.maps <= 16, `${pool.maps} blocks were mapped`);
    assert.ok(pool.usage.leasedBytes <= pool.limit);
    device.close();
    assert.equal(held[2][5], 3, "arrays outlive their device");
  }));

let once: { device: CudaDevice; buffer: ReturnType<typeof filled> } | null = null;
function filledOnce(device: CudaDevice) {
  if (once?.device !== device) once = { device, buffer: filled(device, megabyte, 9) };
  return once.buffer;
}

test("what would move the memory to another owner copies it", () =>
  new FakeCuda().within(() => {
    const device = new CudaDevice(0);
    const buffer = device.fetch(filled(device, megabyte, 4))! as ArrayBuffer & {
      transfer: (n?: number) => ArrayBuffer;
    };
    const moved = buffer.transfer(16);
    assert.deepEqual([...new Uint8Array(moved)], new Array(16).fill(4));
    assert.equal(buffer.byteLength, megabyte, "not detached");
    // Node leaves external memory where it is, or refuses; a detached buffer would lose track of its owner.
    try {
      structuredClone(buffer, { transfer: [buffer] });
    } catch {}
    assert.equal(buffer.byteLength, megabyte);
    device.close();
  }));

test("with too much pinned memory out, fetching falls back to copies that are right", () =>
  new FakeCuda().within(() => {
    const device = new CudaDevice(0);
    weft.useDevice(device);
    const held: unknown[] = [];
    for (let i = 0; i < 20; i++) {
      const t = weft.tensor(Float32Array.from({ length: megabyte / 4 }, (_, j) => i + j));
      const data = t.dataSync();
      assert.deepEqual([data[0], data[megabyte / 4 - 1]], [i, i + megabyte / 4 - 1]);
      held.push(data);
    }
    assert.ok(device.context.hostPool.usage.leasedBytes <= 16 * megabyte);
    assert.equal(device.fetch(device.allocate(64 * megabyte)), null, "larger than the limit");
    const large = filled(device, 40 * megabyte, 6);
    const into = new Uint8Array(40 * megabyte);
    device.download(large, into);
    assert.ok(into.every((b) => b === 6));
    device.close();
  }));

test("data() leaves the event loop free until the copy is done", () =>
  new FakeCuda().within(async (fake) => {
    const device = new CudaDevice(0);
    weft.useDevice(device);
    const t = weft.tensor(new Float32Array(megabyte).fill(3));
    t.realize();
    fake.slowness = 5;
    let turns = 0;
    let waiting = true;
    const turn = (): void => {
      if (!waiting) return;
      turns++;
      setImmediate(turn);
    };
    setImmediate(turn);
    const reading = t.data();
    t.dispose();
    const data = await reading;
    waiting = false;
    assert.ok(turns >= 4, `the loop turned ${turns} times`);
    assert.equal(data[megabyte - 1], 3, "disposing while reading is allowed");
    assert.ok(fake.sequence().includes("cuStreamWaitEvent"), "later writers wait for the copy");
    device.close();
  }));

test("a small result is read in the order of the stream while later work is enqueued", () =>
  new FakeCuda().within(async (fake) => {
    const device = new CudaDevice(0);
    weft.useDevice(device);
    const [x, y] = [weft.ones([3]).mul(2).realize(), weft.ones([3]).mul(3).realize()];
    fake.sequence();
    const reads = [x.data(), y.data()];
    const names = fake.sequence();
    assert.equal(names.filter((name) => name === "cuMemcpyDtoHAsync_v2").length, 2);
    assert.ok(!names.some((name) => /Synchronize/.test(name)), names.join(" "));
    const [a, b] = await Promise.all(reads);
    assert.notEqual(a.buffer, b.buffer);
    assert.deepEqual([a.length, b.length, a.buffer.byteLength >= 12], [3, 3, true]);
    // More reads at a time than there are slots block, and are right too.
    const many = await Promise.all(Array.from({ length: 80 }, () => x.data()));
    assert.ok(many.every((data) => data.length === 3));
    device.close();
  }));

test("a product that is fetched comes row block by row block, each copied while the next is computed", () =>
  new FakeCuda({ memoryBytes: 2 ** 31 }).within((fake) => {
    process.env.WEFT_PINNED_LIMIT = String(2 ** 28);
    const device = new CudaDevice(0);
    weft.useDevice(device);
    const a = weft.zeros([4096, 16]).realize();
    const b = weft.zeros([16, 4096]).realize();
    fake.sequence();
    a.matmul(b).dataSync();
    const calls = fake.calls.filter(({ name }) => /Gemm|DtoH|EventRecord/.test(name));
    const names = calls.map(({ name }) => name);
    assert.equal(names.filter((name) => name === "cublasGemmEx").length, 5);
    assert.equal(names.filter((name) => name === "cuMemcpyDtoHAsync_v2").length, 5);
    const copies = calls.filter(({ name }) => name === "cuMemcpyDtoHAsync_v2");
    assert.deepEqual(
      copies.map(({ args }) => Number(args[1]) - Number(copies[0].args[1])),
      [0, 8, 24, 40, 56].map((at) => at * megabyte),
    );
    const rows = calls.filter(({ name }) => name === "cublasGemmEx").map(({ args }) => args[4]);
    assert.deepEqual(rows, [512, 1024, 1024, 1024, 512], "small first and last pieces: both are waited for");
    fake.sequence();
    a.matmul(b).realize();
    assert.equal(fake.sequence().filter((name) => name === "cublasGemmEx").length, 1, "whole when nobody waits for it");
    const kept = a.matmul(b).dataSync();
    fake.sequence();
    assert.equal(a.matmul(b).dataSync(kept), kept);
    const order = fake.sequence().filter((name) => /Gemm|DtoH/.test(name));
    const turn = ["cublasGemmEx", "cuMemcpyDtoHAsync_v2"];
    assert.deepEqual(
      order,
      [turn, turn, turn, turn, turn].flat(),
      "into an earlier array each piece is copied at once",
    );
    const c = a.matmul(b);
    weft.session().realize([c.node], true);
    assert.equal(fake.sequence().filter((name) => name === "cublasGemmEx").length, 1, "the rest waits for its reader");
    device.synchronize();
    assert.equal(fake.sequence().filter((name) => name === "cublasGemmEx").length, 4, "or for whoever comes first");
    c.dataSync(kept);
    assert.equal(fake.sequence().filter((name) => name === "cuMemcpyDtoHAsync_v2").length, 5);
    device.close();
    process.env.WEFT_PINNED_LIMIT = String(16 << 20);
  }));

test("collected arrays give their blocks back without being asked", () =>
  new FakeCuda().within(async () => {
    const device = new CudaDevice(0);
    const pool = device.context.hostPool;
    (() => device.fetch(filledOnce(device)))();
    // Finalizers run when the event loop gets to them, which takes long on a loaded machine.
    for (const end = performance.now() + 20_000; pool.usage.leasedBytes > 0 && performance.now() < end; ) {
      collectNow();
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
    assert.equal(pool.usage.leasedBytes, 0);
    assert.ok(pool.usage.pooledBytes >= megabyte);
    device.trim();
    assert.equal(pool.usage.pooledBytes, 0);
    device.close();
  }));

test("an array that was fetched before takes the next result directly", () =>
  new FakeCuda().within((fake) => {
    const device = new CudaDevice(0);
    weft.useDevice(device);
    const first = weft.tensor(new Float32Array(megabyte / 4).fill(1)).realize();
    const second = weft.tensor(new Float32Array(megabyte / 4).fill(2)).realize();
    const array = first.dataSync();
    fake.sequence();
    assert.equal(second.dataSync(array), array);
    assert.ok(array.every((x) => x === 2));
    const names = fake.sequence();
    assert.equal(names.filter((name) => name === "cuMemcpyDtoHAsync_v2").length, 1, names.join(" "));
    assert.ok(!names.includes("cuMemHostRegister_v2"));
    // Any other array works too, through the staging memory.
    const own = new Float32Array(megabyte / 4);
    assert.equal(first.dataSync(own)[7], 1);
    assert.throws(
      () => first.dataSync(new Float32Array(3)),
      /cannot put float32\[262144\] into a Float32Array of 3 elements/,
    );
    assert.throws(() => first.dataSync(new Float64Array(megabyte / 4)), /it needs a Float32Array of 262144/);
    assert.throws(() => first.cast("float16").dataSync(own), /half types are widened/);
    device.close();
  }));

test("a loop that drops its results uses few blocks if pinning is expensive, many if collecting is", () => {
  const rotation = (pinning: number, collecting: number, prepared = false): HostPool => {
    let now = 0;
    const registrar = {
      register: () => {
        now += pinning;
        return true;
      },
      unregister: () => {},
    };
    const collect = (): void => {
      now += collecting;
      collectNow();
    };
    const pool = new HostPool(registrar, 64 << 20, { now: () => now, collect });
    for (let i = 0; i < 40; i++) {
      pool.take(megabyte);
      if (prepared) pool.prepare(megabyte);
    }
    return pool;
  };
  const expensive = rotation(30, 1);
  assert.ok(expensive.maps <= 8 && expensive.sweeps > 3, `${expensive.maps} blocks, ${expensive.sweeps} collections`);
  const ahead = rotation(30, 1, true);
  assert.ok(ahead.maps <= 6 && ahead.sweeps >= 6, `${ahead.maps} blocks, ${ahead.sweeps} collections`);
  const cheap = rotation(1, 30);
  assert.ok(cheap.maps >= 38 && cheap.sweeps <= 2, `${cheap.maps} blocks, ${cheap.sweeps} collections`);
});
