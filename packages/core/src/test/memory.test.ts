// Memory: loops without dispose() stay bounded, disposed tensors are freed immediately, deep graphs do not overflow the stack.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import type { Tensor } from "../index.js";
import * as weft from "../index.js";
import { memoryManager } from "../runtime/index.js";
import { assertClose } from "./compare.js";
import { onEachDevice } from "./devices.js";

/** Small, so that thousands of small steps must collect; a loop may hold this and what came since. */
const limit = 512 * 1024;
/** Steps of 1 KiB each: eight times the limit. */
const steps = 4000;

onEachDevice((device) => {
  before(() => weft.setMemoryPressureLimit(limit));
  after(() => weft.setMemoryPressureLimit(2 ** 30));

  /** The most that the device held while the body ran, above what it held before. */
  function peakOf(body: (look: () => void) => void): number {
    weft.collectGarbage();
    const start = device.memory().usedBytes;
    let peak = 0;
    body(() => {
      peak = Math.max(peak, device.memory().usedBytes - start);
    });
    return peak;
  }

  test("a call whose intermediate or final results are above the limit does not collect every time", () => {
    const many = 1 << 18;
    const large = weft.jit((x: Tensor) => x.expand([4, many]).mul(2).sum(0));
    const wide = weft.jit((x: Tensor) =>
      weft
        .sort(x)
        .mul(2)
        .matmul(x.reshape([many, 1]).expand([many, 1]))
        .sum(),
    );
    const x = weft.ones([many]).realize();
    const square = weft.ones([1, many]).realize();
    const before = memoryManager.collections;
    for (let i = 0; i < 15; i++) {
      large(x).dispose();
      wide(square).dispose();
    }
    assert.ok(memoryManager.collections - before <= 4, `${memoryManager.collections - before} collections in 30 calls`);
  });

  test("thousands of jitted steps in a synchronous loop, nothing disposed", () => {
    const step = weft.jit((w: Tensor, x: Tensor) => w.mul(0.999).add(x));
    let w = weft.ones([256]);
    const x = weft.ones([256]).mul(0.001).realize();
    const peak = peakOf((look) => {
      for (let i = 0; i < steps; i++) {
        w = step(w, x);
        if (i % 100 === 0) look();
      }
    });
    assert.ok(peak < 1.5 * limit, `peak ${peak}`);
    assertClose(w.index(0), 1, { rtol: 1e-3 });
    weft.collectGarbage();
    assert.ok(weft.memory().tensors < 50, `${weft.memory().tensors} tensors are held`);
  });

  test("thousands of steps of gradient descent without jit, reading the loss", () => {
    let w = weft.ones([256]);
    const loss = (p: Tensor) => p.square().sum();
    const peak = peakOf((look) => {
      for (let i = 0; i < steps; i++) {
        const [value, g] = weft.valueAndGrad(loss)(w);
        w = w.sub(g.mul(0.0025));
        if (i % 500 === 0) {
          value.itemSync();
          look();
        }
        w.realize();
      }
    });
    assert.ok(peak < 1.5 * limit, `peak ${peak}`);
    assert.ok(w.abs().max().itemSync() < 1e-6);
  });

  test("thousands of steps in an asynchronous loop", async () => {
    const step = weft.jit((w: Tensor) => [w.mul(0.999), w.sum()]);
    let w = weft.ones([256]);
    weft.collectGarbage();
    const start = device.memory().usedBytes;
    let peak = 0;
    for (let i = 0; i < steps; i++) {
      const [next, sum] = step(w) as Tensor[];
      w = next;
      if (i % 10 === 0) await sum.item();
      if (i % 100 === 0) peak = Math.max(peak, device.memory().usedBytes - start);
    }
    assert.ok(peak < 1.5 * limit, `peak ${peak}`);
    assertClose(w.index(0), 0.999 ** steps, { rtol: 1e-2 });
  });

  test("a loop that reads no value", () => {
    let x = weft.zeros([16]);
    const heap = process.memoryUsage().heapUsed;
    const peak = peakOf((look) => {
      for (let i = 0; i < 20_000; i++) {
        x = x.add(1);
        if (i % 1000 === 0) look();
      }
    });
    assert.ok(peak < 1.5 * limit, `peak ${peak}`);
    assert.ok(process.memoryUsage().heapUsed - heap < 200e6);
    assertClose(x, new Array(16).fill(20_000));
  });

  // Shared values must be visited once, not once a path: 2^n paths lead through n steps of this loop.
  test("a loop that uses every value twice and reads none", () => {
    let [a, b] = [weft.zeros([4]), weft.ones([4])];
    for (let i = 0; i < 2000; i++) [a, b] = [b, a.add(b).mul(0.5)];
    assertClose(b, [2 / 3, 2 / 3, 2 / 3, 2 / 3], { rtol: 1e-6 });
  });

  test("a loop inside a scope does not retain unreachable tensors", () => {
    const peak = peakOf((look) => {
      weft.scope(() => {
        let w = weft.ones([512]);
        const step = weft.jit((v: Tensor) => v.mul(1.0001));
        for (let i = 0; i < 3000; i++) {
          w = step(w);
          if (i % 100 === 0) look();
        }
        return w;
      });
    });
    assert.ok(peak < 1.5 * limit, `peak ${peak}`);
  });

  test("compiled functions do not keep the tensors of their first call", () => {
    weft.collectGarbage();
    const start = device.memory().usedBytes;
    (() => {
      const x = weft.ones([100_003]).realize();
      x.mul(3).add(7).sum().itemSync();
      weft
        .jit((v: Tensor) => v.mul(5).sum())(x)
        .itemSync();
    })();
    weft.collectGarbage();
    assert.ok(device.memory().usedBytes - start < 100_000, "the argument is still held");
  });

  test("dispose, using and scope free at once", () => {
    weft.collectGarbage();
    const start = device.memory().usedBytes;
    const x = weft.ones([1000]).realize();
    assert.ok(device.memory().usedBytes >= start + 4000);
    x.dispose();
    assert.equal(device.memory().usedBytes, start);
    x.dispose();
    {
      using y = weft.ones([1000]).mul(2);
      y.realize();
      assert.ok(device.memory().usedBytes >= start + 4000);
    }
    assert.equal(device.memory().usedBytes, start);
    const kept = weft.scope(() => {
      const a = weft.ones([1000]).realize();
      const b = a.mul(2).add(1).realize();
      const inner = weft.scope(() => {
        const c = b.mul(3).realize();
        return { sum: c.sum(), n: 1 };
      });
      return { total: inner.sum.add(b.sum()), lazy: a.index("0:3") };
    });
    const result = device.memory().usedBytes - start;
    assert.ok(result > 0 && result < 2000, `${result} bytes are held for two small results`);
    assertClose(kept.total, 9000 + 3000);
    assertClose(kept.lazy, [1, 1, 1]);
    kept.total.dispose();
    kept.lazy.dispose();
    assert.equal(device.memory().usedBytes, start);
  });

  test("tensors of a scope cannot be used after it, and a scope that throws frees them too", () => {
    weft.collectGarbage();
    const start = device.memory().usedBytes;
    let outside: Tensor | null = null;
    weft.scope(() => {
      outside = weft.ones([1000]).realize();
    });
    assert.throws(() => outside!.dataSync(), /was disposed/);
    assert.throws(() => outside!.add(1), /was disposed/);
    assert.throws(
      () =>
        weft.scope(() => {
          weft.ones([1000]).realize();
          throw new Error("mine");
        }),
      /mine/,
    );
    assert.equal(device.memory().usedBytes, start);
    assert.throws(() => weft.scope(async () => 1), /async/);
  });

  test("scope inside jit and grad changes nothing", () => {
    const f = (x: Tensor) => weft.scope(() => x.square().mul(2)).sum();
    assertClose(weft.jit(f)(weft.tensor([1, 2])), 10);
    assertClose(weft.grad(f)(weft.tensor([1, 2])), [4, 8]);
  });

  test("pending operations get the value of a disposed tensor", () => {
    const x = weft.tensor([1, 2, 3]);
    const direct = x.add(1);
    const deeper = x.mul(2).sum();
    const held = x.mul(5);
    const through = held.add(x);
    memoryManager.recordSites = true;
    x.dispose();
    memoryManager.recordSites = false;
    assertClose(direct, [2, 3, 4]);
    assertClose(deeper, 12);
    assertClose(through, [6, 12, 18]);
    assertClose(held, [5, 10, 15]);
    assert.throws(() => x.dataSync(), /this float32\[3\] tensor \(data\) was disposed at .*memory\.test\.js:\d+/);
    assert.throws(() => x.add(1), /was disposed/);
    assert.throws(() => weft.jit((v: Tensor) => v.add(1))(x), /was disposed/);
  });

  test("operations that were pending before a tensor was computed get its value after it is disposed", async () => {
    const step = weft.jit((v: Tensor) => v.add(1));
    const donating = weft.jit((v: Tensor) => v.add(1), { donate: [0] });
    const compute: Record<string, (x: Tensor) => unknown> = {
      dataSync: (x) => x.dataSync(),
      data: (x) => x.data(),
      "argument of jit": (x) => step(x),
      "argument of runAsync": (x) => step.runAsync(x),
      "donated argument": (x) => assertClose(donating(x), [3, 4]),
      "another reader": (x) => x.dataSync() && x.mul(7).dataSync(),
    };
    for (const [name, run] of Object.entries(compute)) {
      const x = weft.tensor([1, 2]).add(1);
      const readers = [x.mul(2), x.mul(x), x.sum().add(x)];
      await run(x);
      x.dispose();
      const got = readers.map((reader) => reader.dataSync().join());
      assert.deepEqual(got, ["4,6", "4,9", "7,8"], name);
    }
    // A reader that ran must not be counted for one that did not.
    const x = weft.tensor([1, 2]).add(1);
    const first = x.mul(2);
    x.realize();
    first.realize();
    const second = x.mul(3);
    x.dispose();
    assertClose(second, [6, 9]);
  });

  test("the memory of a tensor is freed after readers that were older than its value", () => {
    weft.collectGarbage();
    const start = device.memory().usedBytes;
    const x = weft.ones([5000]).add(1);
    const [before, after] = [x.sum(), x.max()];
    before.realize();
    x.realize();
    x.dispose();
    assert.ok(device.memory().usedBytes >= start + 20_000);
    assertClose(after, 2);
    assert.ok(device.memory().usedBytes < start + 1000);
    before.dispose();
    after.dispose();
  });

  test("the memory of a disposed tensor is freed after its last reader has run", () => {
    weft.collectGarbage();
    const start = device.memory().usedBytes;
    const x = weft.ones([5000]).realize();
    const y = x.sum();
    x.dispose();
    assert.ok(device.memory().usedBytes >= start + 20_000);
    assertClose(y, 5000);
    assert.ok(device.memory().usedBytes < start + 1000);
    y.dispose();
  });

  test("a value is computed once, however often it is read", () => {
    const x = weft.ones([10]).mul(3).realize();
    const runs = weft.session().runs;
    for (let i = 0; i < 5; i++) x.dataSync();
    assert.equal(weft.session().runs, runs);
    // Parameters of a gradient are kept on the way: a chain of updates is not computed again from the start.
    let w = weft.ones([4]);
    for (let i = 0; i < 5; i++)
      w = w.sub(
        weft
          .grad((p: Tensor) => p.square().sum())(w)
          .mul(0.1),
      );
    w.realize();
    const kernels = weft.session().kernelsRun;
    w.dataSync();
    assert.equal(weft.session().kernelsRun, kernels);
  });

  test("numbers that change from step to step do not compile every step", () => {
    let x = weft.ones([3], { dtype: "float64" });
    const before = weft.session().compiles;
    let expected = 1;
    for (let i = 1; i <= 40; i++) {
      x = x
        .mul(1 / i)
        .add(i)
        .sub(0.5)
        .realize();
      expected = expected / i + i - 0.5;
    }
    assertClose(x, [expected, expected, expected], { rtol: 1e-12 });
    assert.ok(weft.session().compiles - before <= 4, `${weft.session().compiles - before} programs`);
    // Every dtype's constants arrive as they are.
    for (const dtype of weft.dtypes.filter((d) => d !== "bool")) {
      const one = weft.ones([2], { dtype }).realize();
      for (const n of [3, 5, 7, 9]) assertClose(one.add(n).real().cast("float64"), [n + 1, n + 1]);
    }
    const z = weft.ones([1], { dtype: "complex128" }).realize();
    for (const n of [3, -5, 7]) assertClose(z.mul({ re: 0.1, im: n }), [0.1, n]);
    const half = weft.ones([1], { dtype: "float32" }).realize();
    for (const n of [-0, 0, Number.NaN, Number.POSITIVE_INFINITY]) assertClose(half.div(half.mul(n)), [1 / n]);
  });

  test("weft.memory() reports tensors by shape and source line", () => {
    weft.debug.recordSites(true);
    const x = weft.ones([321, 3]).realize();
    const y = weft.tensor([1, 2, 3, 4, 5, 6, 7], { dtype: "float64" });
    weft.debug.recordSites(false);
    const { groups } = weft.memory();
    const ones = groups.find((g) => g.what === "float32[321, 3]");
    assert.equal(ones?.bytes, 321 * 3 * 4);
    assert.match(ones?.site ?? "", /memory\.test\.js:\d+/);
    assert.match(groups.find((g) => g.what === "float64[7]")?.site ?? "", /memory\.test\.js:\d+/);
    x.dispose();
    y.dispose();
    assert.equal(
      weft.memory().groups.find((g) => g.what === "float32[321, 3]"),
      undefined,
    );
  });

  test("graphs of 20,000 nodes: built, differentiated, mapped over, compiled", () => {
    const deep = (x: Tensor, n: number): Tensor => {
      let y = x;
      for (let i = 0; i < n; i++) y = i % 2 === 0 ? y.mul(1.0001) : y.sin();
      return y;
    };
    const x = weft.tensor([0.5, 0.25], { dtype: "float64" });
    const g = weft.grad((v: Tensor) => deep(v, 4000).sum())(x);
    assert.equal(g.isFinite().all().itemSync(), 1);
    if (device.name !== "reference") return;
    const value = weft.jit((v: Tensor) => deep(v, 20_000).sum())(x);
    assert.ok(Number.isFinite(value.itemSync()));
    const mapped = weft.vmap((v: Tensor) => deep(v, 20_000))(x);
    assert.deepEqual(mapped.shape, [2]);
    assert.ok(mapped.isFinite().all().itemSync());
    const wide = Array.from({ length: 5000 }, (_, i) => x.mul(i)).reduce((a, b) => a.add(b));
    assertClose(
      wide,
      [0.5, 0.25].map((v) => v * (4999 * 2500)),
    );
  });

  test("tensors of another device are rejected", () => {
    const x = weft.ones([2]).realize();
    const session = weft.session();
    weft.useDevice(new weft.ReferenceDevice());
    assert.throws(() => x.add(1).dataSync(), /lives on .*, the current device is reference/);
    assertClose(x, [1, 1]);
    weft.useDevice(session.device);
    assertClose(x.add(1), [2, 2]);
  });
});

/** A reference device with little memory. */
class SmallDevice extends weft.ReferenceDevice {
  constructor(readonly capacity: number) {
    super();
  }

  #check(bytes: number): void {
    if (this.memory().usedBytes + bytes > this.capacity)
      throw new weft.OutOfMemoryError(`the small device could not get ${bytes} bytes`, bytes);
  }

  override allocate(bytes: number): ReturnType<weft.Device["allocate"]> {
    this.#check(bytes);
    return super.allocate(bytes);
  }

  override compile(...args: Parameters<weft.ReferenceDevice["compile"]>): ReturnType<weft.Device["compile"]> {
    const [{ outputs }] = args;
    const bytes = outputs.reduce((n, o) => n + 4 * o.shape.reduce((m, d) => m * d, 1), 0);
    const executable = super.compile(...args);
    return {
      ...executable,
      run: (inputs) => {
        this.#check(bytes);
        return executable.run(inputs);
      },
    };
  }
}

test("a full device frees unreachable tensors, then throws an error with a memory report, and the next call works", () => {
  weft.setMemoryPressureLimit(2 ** 30);
  weft.useDevice(new SmallDevice(100_000));
  let x = weft.ones([1000]);
  const step = weft.jit((v: Tensor) => v.add(1));
  for (let i = 0; i < 300; i++) x = step(x);
  assertClose(x.index(0), 301);
  const held = Array.from({ length: 20 }, (_, i) => weft.full([1000], i).realize());
  assert.throws(
    () => weft.ones([10_000]).mul(2).realize(),
    (error: Error) => {
      assert.ok(error instanceof weft.OutOfMemoryError);
      assert.match(error.message, /held by \d+ tensors, 0\.\d MB in all, the largest:\n {2}\d+ x float32\[1000\]/);
      return true;
    },
  );
  assert.throws(() => weft.tensor(new Float32Array(30_000)), weft.OutOfMemoryError);
  assertClose(held[3].sum(), 3000);
});
