// Ownership of compiled code: caches release what they evict, so that memory, loaded libraries and driver handles stay
// flat over any number of distinct programs, and nothing that somebody holds is unloaded.
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { type GraphFn, numel } from "../graph/index.js";
import { build } from "../ops/index.js";
import { Session, type TensorValue } from "../runtime/index.js";
import { useFastCompiler } from "../testing/fast-compiler.js";
import type { Device, Executable } from "./contract.js";
import { CpuDevice } from "./cpu/index.js";
import { CudaDevice } from "./cuda/index.js";
import { FakeCuda } from "./cuda/testkit.js";
import { ExecutableLru } from "./executable-lru.js";
import { ReferenceDevice } from "./reference/index.js";

const compiler = useFastCompiler();
after(() => compiler.remove());

/** A function of its own for each number: x + 1 on so many elements. */
function program(i: number): GraphFn {
  const x = build.input([i + 1], "float32", "x");
  return { params: [x], outputs: [build.shift(x, 1)] };
}

const loadedLibraries = (): number => compiler.loaded();

/** Runs a program with its own number once. */
function runOnce(session: Session, i: number): Float32Array {
  const compiled = session.compile(program(i));
  const input = session.upload({ shape: [i + 1], dtype: "float32" }, new Float32Array(i + 1).fill(i));
  const [result] = session.run(compiled, [input]);
  const data = session.download(result) as Float32Array;
  for (const value of [input, result] as TensorValue[]) value.free();
  compiled.release();
  return data;
}

test("10,000 distinct programs on a CUDA driver leave as many modules loaded as the cache holds", () =>
  new FakeCuda({ memoryBytes: 2 ** 32 }).within((fake) => {
    const device = new CudaDevice(0);
    const session = new Session(device, 256);
    let most = 0;
    let early = 0;
    for (let i = 0; i < 10_000; i++) {
      const compiled = session.compile(program(i % 16 === 0 ? 40_000 + i : i));
      // Three runs of some at the same addresses record a graph each.
      if (i % 100 === 0) {
        const n = numel(compiled.fn.params[0].shape);
        const input = session.upload({ shape: [n], dtype: "float32" }, new Float32Array(n));
        for (let k = 0; k < 3; k++) session.run(compiled, [input])[0].free();
        input.free();
      }
      compiled.release();
      fake.calls.length = 0;
      most = Math.max(most, fake.loadedModules);
      if (i === 2000) early = fake.allocatedBytes;
    }
    assert.equal(fake.modulesLoaded, 10_000);
    assert.ok(most <= 256 + 33, `${most} modules were loaded at once`);
    assert.ok(fake.executableGraphs <= 4, `${fake.executableGraphs} graphs are left`);
    assert.ok(fake.allocatedBytes <= early + 2 ** 20, `memory grew from ${early} to ${fake.allocatedBytes} bytes`);
    session.forgetCompiled();
    device.trim();
    assert.equal(fake.loadedModules, 0);
    assert.equal(fake.executableGraphs, 0);
    device.close();
  }));

const noCompiler = CpuDevice.available() ? false : "no C compiler";

test("300 distinct programs on the CPU leave as many libraries loaded as the cache holds", { skip: noCompiler }, () => {
  const session = new Session(new CpuDevice({ threads: 2 }), 8);
  const before = loadedLibraries();
  compiler.compile();
  assert.deepEqual(runOnce(session, 3), new Float32Array(4).fill(4));
  compiler.copyFrom();
  for (let i = 4; i < 304; i++) {
    runOnce(session, i);
    assert.ok(loadedLibraries() - before <= 8, `${loadedLibraries() - before} libraries after ${i + 1} programs`);
  }
  session.forgetCompiled();
  assert.equal(loadedLibraries(), before);
  compiler.compile();
});

test("a program that somebody holds stays loaded after its eviction, and is unloaded by its last holder", {
  skip: noCompiler,
}, () => {
  const session = new Session(new CpuDevice({ threads: 1 }), 2);
  const before = loadedLibraries();
  const [first, second] = [session.compile(program(700)), session.compile(program(700))];
  assert.equal(first.executable, second.executable);
  for (let i = 710; i < 714; i++) runOnce(session, i);
  const input = session.upload({ shape: [701], dtype: "float32" }, new Float32Array(701));
  first.release();
  first.release();
  assert.deepEqual(session.download(session.run(second, [input])[0]), new Float32Array(701).fill(1));
  second.release();
  assert.equal(loadedLibraries() - before, 2);
  assert.throws(() => session.run(second, [input]), /was released/);
  session.forgetCompiled();
});

test("a program that its holder dropped without a release is unloaded by the garbage collector", {
  skip: noCompiler,
}, async () => {
  const session = new Session(new CpuDevice({ threads: 1 }), 1);
  const before = loadedLibraries();
  (() => void session.compile(program(700)))();
  runOnce(session, 720);
  assert.equal(loadedLibraries() - before, 2);
  const { collectNow } = await import("./collect.js");
  for (let i = 0; i < 50 && loadedLibraries() - before > 1; i++) {
    collectNow();
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  assert.equal(loadedLibraries() - before, 1);
});

test("a synchronous loop that drops programs without a release does not load them all", () =>
  new FakeCuda({ memoryBytes: 2 ** 32 }).within((fake) => {
    const device = new CudaDevice(0);
    const session = new Session(device, 16);
    let most = 0;
    for (let i = 0; i < 5000; i++) {
      session.compile(program(i));
      fake.calls.length = 0;
      most = Math.max(most, fake.loadedModules);
    }
    assert.equal(fake.modulesLoaded, 5000);
    assert.ok(most < 2200, `${most} modules were loaded at once`);
    device.close();
  }));

test("parallel regions of other programs work after libraries with parallel regions were unloaded", {
  skip: noCompiler,
}, () => {
  const session = new Session(new CpuDevice({ threads: 4 }), 1);
  for (let i = 0; i < 6; i++) {
    const data = runOnce(session, 300_000 + i);
    assert.ok(data.every((x) => x === 300_001 + i));
  }
  session.forgetCompiled();
});

function releasedIsAnError(device: Device): void {
  const executable = device.compile(program(2), {});
  const input = device.allocate(12);
  device.upload(input, new Uint8Array(12));
  executable.run([input]);
  executable.release();
  executable.release();
  assert.throws(() => executable.run([input]), /this executable was released .* compile the function again/);
  assert.ok(executable.kernels.length > 0);
}

test("running a released executable is an error that says what to do", () => {
  releasedIsAnError(new ReferenceDevice());
  if (!noCompiler) releasedIsAnError(new CpuDevice({ threads: 1 }));
  new FakeCuda().within(() => {
    const device = new CudaDevice(0);
    releasedIsAnError(device);
    device.close();
  });
});

test("a module is unloaded only after the stream was synchronized", () =>
  new FakeCuda().within((fake) => {
    const device = new CudaDevice(0);
    const executable = device.compile(program(2), {});
    executable.run([device.allocate(12)]);
    executable.release();
    fake.sequence();
    device.trim();
    const calls = fake.sequence();
    assert.ok(calls.indexOf("cuStreamSynchronize") >= 0);
    assert.ok(calls.indexOf("cuStreamSynchronize") < calls.indexOf("cuModuleUnload"), calls.join(" "));
    device.close();
  }));

test("releasing an executable of a device that was closed does nothing", () =>
  new FakeCuda().within((fake) => {
    const device = new CudaDevice(0);
    const executable = device.compile(program(2), {});
    device.close();
    fake.sequence();
    executable.release();
    assert.deepEqual(fake.sequence(), []);
  }));

test("showing the source of a function loads no module", () =>
  new FakeCuda().within((fake) => {
    const device = new CudaDevice(0);
    assert.match(device.source(program(2), {}), /__global__/);
    assert.equal(fake.loadedModules, 0);
    device.close();
  }));

test("the cache releases the least recently used executable first", () => {
  const released: string[] = [];
  const make = (name: string) => () => ({
    executable: { release: () => released.push(name) } as unknown as Executable,
  });
  const executables = new ExecutableLru(2);
  for (const name of ["a", "b", "a", "c"]) executables.acquire(name, make(name)).release();
  assert.deepEqual(released, ["b"]);
  const held = executables.acquire("d", make("d"));
  executables.clear();
  assert.deepEqual(released, ["b", "a", "c"]);
  held.release();
  held.release();
  assert.deepEqual(released, ["b", "a", "c", "d"]);
});
