// jit: one program per combination of shapes, dtypes and other values; donated memory; prints, traces and random numbers
// of compiled functions.
import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import type { Tensor } from "../index.js";
import * as weft from "../index.js";
import { assertClose } from "./compare.js";
import { onEachDevice } from "./devices.js";

const f64 = { dtype: "float64" } as const;
const t = (data: number | number[] | number[][]): Tensor => weft.tensor(data, f64);

/** What debug.print shows while the body runs. */
function printed(body: () => void): string[] {
  const lines: string[] = [];
  weft.debug.onPrint((text) => lines.push(text));
  try {
    body();
  } finally {
    weft.debug.onPrint((text) => console.log(text));
  }
  return lines;
}

onEachDevice((device) => {
  test("one trace per combination of shapes, dtypes, structure and other values", () => {
    let traces = 0;
    const f = weft.jit((x: Tensor | { x: Tensor }, n = 1, mode = "mul") => {
      traces++;
      const y = "x" in x && !(x instanceof weft.Tensor) ? x.x : (x as Tensor);
      return mode === "mul" ? y.mul(n) : y.add(n);
    });
    assertClose(f(t([1, 2])), [1, 2]);
    assertClose(f(t([3, 4])), [3, 4]);
    assert.equal(traces, 1);
    assertClose(f(t([1, 2, 3])), [1, 2, 3]);
    assert.equal(traces, 2, "a new shape");
    f(weft.tensor([1, 2]));
    assert.equal(traces, 3, "a new dtype");
    assertClose(f(t([1, 2]), 5), [5, 10]);
    assertClose(f(t([1, 2]), 6), [6, 12]);
    assert.equal(traces, 5, "another number");
    assertClose(f(t([1, 2]), 5, "add"), [6, 7]);
    assertClose(f({ x: t([1, 2]) }, 5), [5, 10]);
    assert.equal(traces, 7);
    f(t([8, 9]), 5);
    f({ x: t([8, 9]) }, 5);
    assert.equal(traces, 7);
    // 5 and 6 share the program that takes a number; 1 came before it was known that the number changes.
    assert.equal(f.programs, 6);
  });

  test("calls that differ in a number share one program", () => {
    const step = weft.jit((x: Tensor, rate: number) => x.sub(x.mul(rate)).sum());
    for (let i = 0; i < 30; i++) assertClose(step(t([1, 2]), 0.01 + 0.03 * i), 3 * (1 - (0.01 + 0.03 * i)));
    assert.equal(step.programs, 1);
    // Numbers that follow from it become parameters when they change.
    const decay = weft.jit((x: Tensor, time: number) => x.mul(Math.exp(-time)).add(time));
    for (let i = 1; i < 20; i++) assertClose(decay(t([2]), i / 7), [2 * Math.exp(-i / 7) + i / 7]);
    assert.ok(decay.programs <= 2, `${decay.programs} programs`);
    // Inside a tree, with a gradient and with donated memory.
    const train = weft.jit(
      (p: { w: Tensor }, { rate }: { rate: number }) => ({
        w: p.w.sub(
          weft
            .grad((q: { w: Tensor }) => q.w.square().sum())(p)
            .w.mul(rate),
        ),
      }),
      { donate: [0] },
    );
    let [p, expected] = [{ w: t([1, -3]) }, [1, -3]];
    for (let i = 0; i < 10; i++) {
      const rate = 0.05 + i / 100;
      p = train(p, { rate });
      expected = expected.map((w) => w - 2 * w * rate);
    }
    assertClose(p.w, expected);
    assert.equal(train.programs, 1);
  });

  test("a number that its dtype rounds is a parameter from the first call on", () => {
    const x = weft.tensor([1, 2, 3]).realize();
    const step = weft.jit((a: Tensor, rate: number) => a.mul(rate).add(rate));
    const before = weft.session().compiles;
    for (const rate of [0.1, 0.7, -0.3, 1e-9, 1e30, NaN, -0])
      assert.deepEqual(
        Array.from(step(x, rate).dataSync() as Float32Array),
        [1, 2, 3].map((a) => Math.fround(Math.fround(a * Math.fround(rate)) + Math.fround(rate))),
      );
    assert.equal(weft.session().compiles, before + 1);
  });

  test("constants that are equal in one call and differ in another are told apart", () => {
    const x = weft.tensor([1, 2, 3]).realize();
    const both = weft.jit((a: Tensor, p: number, q: number) => a.mul(p).add(a.square().mul(q)).sub(0.25));
    for (const [p, q] of [
      [0.5, 0.5],
      [0.5, 1.5],
      [0.25, 0.5],
      [0.25, 0.25],
      [3, 0],
    ])
      assert.deepEqual(
        both(x, p, q).arraySync(),
        [1, 2, 3].map((a) => a * p + a * a * q - 0.25),
      );
  });

  test("numbers become tensors where an option says so, and are not traced again", async () => {
    let traces = 0;
    const step = weft.jit(
      (x: Tensor, { rate, shift }: { rate: Tensor; shift: Tensor[] }) => {
        traces++;
        return x.sub(x.mul(rate)).add(shift[0]);
      },
      { numbers: "float64" },
    );
    const x = t([1, 2, 4]);
    for (const [rate, shift] of [
      [0.5, 0],
      [0, 1],
      [2, 8],
      [1, -1],
    ])
      assertClose(
        step(x, { rate, shift: [shift] }),
        [1, 2, 4].map((v) => v - v * rate + shift),
        { rtol: 1e-14 },
      );
    assertClose(await step.runAsync(x, { rate: -1, shift: [0] }), [2, 4, 8], { rtol: 1e-14 });
    assertClose(step(x, { rate: t(0.5), shift: [t(1)] }), [1.5, 2, 3], { rtol: 1e-14 });
    assert.equal(traces, 1);
    assert.equal(step.programs, 1);
    const inner = weft.jit((y: Tensor, k: Tensor) => y.mul(k), { numbers: "float64" });
    assertClose(weft.grad((y: Tensor) => inner(y, 3).sum())(x), [3, 3, 3], { rtol: 1e-14 });
    assert.throws(() => weft.jit((y: Tensor) => y, { numbers: "float" as never }), /unknown dtype float/);
    assert.throws(() => weft.jit((y: Tensor, k: Tensor) => y.mul(k), { numbers: "int32" })(x, 1.5), /1\.5/);
  });

  test("a number may decide what a jitted function does", () => {
    const f = weft.jit((x: Tensor, n: number) => {
      if (n === 0.5) return x.neg();
      if (n > 100) return x.reshape([1, -1]).mul(n);
      let y = x;
      for (let i = 0; i < n; i++) y = y.mul(n);
      return y;
    });
    assertClose(f(t([1, 2]), 2), [4, 8]);
    assertClose(f(t([1, 2]), 3), [27, 54]);
    assertClose(f(t([1, 2]), 0.25), [0.25, 0.5]);
    assertClose(f(t([1, 2]), 0.5), [-1, -2]);
    assertClose(f(t([1, 2]), 0.75), [0.75, 1.5]);
    assert.deepEqual(f(t([1, 2]), 101).shape, [1, 2]);
    // A literal that is equal to the number by chance.
    const g = weft.jit((x: Tensor, n: number) => x.mul(2.5).add(n));
    for (const n of [2.5, 3.5, 2.5, -0, Number.NaN, Number.POSITIVE_INFINITY]) assertClose(g(t([2]), n), [5 + n]);
  });

  test("strings in arguments are not confused with structure", () => {
    const f = weft.jit((x: Tensor, names: string[]) => x.mul(names.length));
    assertClose(f(t([1]), ["a", "b"]), [2]);
    assertClose(f(t([1]), ["a,b"]), [1]);
    assertClose(f(t([1]), ['a","b']), [1]);
    assertClose(f(t([1]), ["a,string:b"]), [1]);
  });

  test("equal programs are compiled once", () => {
    const make = () => weft.jit((x: Tensor) => x.mul(3).sin().sum());
    make()(t([1, 2, 3, 4, 5]));
    const before = weft.session().compiles;
    make()(t([5, 4, 3, 2, 1]));
    assert.equal(weft.session().compiles, before);
    make()(t([1, 2]));
    assert.equal(weft.session().compiles, before + 1);
  });

  test("trees in and out, arguments passed through, one result twice", () => {
    const f = weft.jit((p: { a: Tensor; b: Tensor[] }) => {
      const sum = p.a.add(p.b[0]);
      return { sum, again: sum, same: p.a.add(p.b[0]), passed: p.b[1], n: 3, nested: [[sum.mul(2)]] };
    });
    const b1 = t([7]);
    const out = f({ a: t([1]), b: [t([2]), b1] });
    assertClose(out.sum, [3]);
    assertClose(out.again, [3]);
    assertClose(out.same, [3]);
    assertClose(out.passed, [7]);
    assertClose(out.nested[0][0], [6]);
    assert.equal(out.n, 3);
    out.sum.dispose();
    out.passed.dispose();
    assertClose(out.again, [3]);
    assertClose(out.same, [3]);
    assertClose(b1, [7]);
  });

  test("results without computation: constants, arguments, nothing at all", () => {
    const f = weft.jit((x: Tensor) => [weft.ones([2], f64), x, weft.zeros([0, 3], f64), weft.eye(2, f64)]);
    const [ones, x, none, eye] = f(t([4]));
    assertClose(ones, [1, 1]);
    assertClose(x, [4]);
    assert.deepEqual(none.shape, [0, 3]);
    assertClose(
      eye,
      t([
        [1, 0],
        [0, 1],
      ]),
    );
  });

  test("closed-over tensors are captured, computed or not", () => {
    const w = t([2, 3]);
    const lazy = w.mul(10);
    const f = weft.jit((x: Tensor) => x.mul(w).add(lazy));
    assertClose(f(t([1, 1])), [22, 33]);
    assertClose(f(t([0, 1])), [20, 33]);
    // A constant that is also read outside must not disturb the program that shares it.
    const c = weft.full([2], 5, f64);
    const g = weft.jit((x: Tensor) => weft.scan((s: Tensor) => [s.add(c), null], x, null, { length: 2 })[0]);
    assertClose(g(t([0, 1])), [10, 11]);
    assertClose(c, [5, 5]);
    assertClose(g(t([0, 1])), [10, 11]);
    const again = weft.jit((x: Tensor) => weft.scan((s: Tensor) => [s.add(c), null], x, null, { length: 3 })[0]);
    assertClose(again(t([0, 1])), [15, 16]);
  });

  test("a constant that was computed does not change equal graphs", () => {
    for (let i = 0; i < 3; i++) {
      const c = weft.arange(3).mul(2);
      assertClose(c, [0, 2, 4]);
      assertClose(c.add(1), [1, 3, 5]);
      assertClose(
        weft.full([2], 4).reshape([2, 1]).expand([2, 2]),
        weft.tensor([
          [4, 4],
          [4, 4],
        ]),
      );
    }
  });

  test("jit inside jit, inside grad, inside vmap", () => {
    const inner = weft.jit((x: Tensor) => x.sin());
    assertClose(weft.jit((x: Tensor) => inner(x).mul(2))(t([1])), [2 * Math.sin(1)], { rtol: 1e-12 });
    assertClose(weft.grad((x: Tensor) => inner(x).sum())(t([1])), [Math.cos(1)], { rtol: 1e-12 });
    assertClose(weft.vmap(inner)(t([1, 2])), [Math.sin(1), Math.sin(2)], { rtol: 1e-12 });
  });

  test("a donated argument without elements gives a result without elements", () => {
    const double = weft.jit((x: Tensor) => x.mul(2), { donate: [0] });
    assert.deepEqual(double(weft.zeros([0, 3]).realize()).shape, [0, 3]);
    assertClose(double(weft.ones([3]).realize()), [2, 2, 2]);
  });

  test("a donated argument cannot be used afterwards; the result is right", () => {
    const step = weft.jit((w: Tensor, x: Tensor) => w.add(x), { donate: [0] });
    let w = weft.ones([1000], f64).realize();
    const x = weft.ones([1000], f64).realize();
    const old = w;
    for (let i = 0; i < 5; i++) w = step(w, x);
    assertClose(w.sum(), 6000);
    assertClose(x.sum(), 1000);
    assert.throws(() => old.dataSync(), /was donated; use what the jitted function returned/);
    assert.throws(() => old.add(1), /was donated/);
    assert.throws(() => step(old, x), /was donated/);
  });

  test("donated trees in a training loop use no more memory", () => {
    const n = 4096;
    const step = weft.jit(
      (p: { w: Tensor; m: Tensor }) => ({ w: p.w.sub(p.m.mul(0.1)), m: p.m.mul(0.9).add(p.w.mul(0.1)) }),
      { donate: [0] },
    );
    let p = { w: weft.ones([n], f64).realize(), m: weft.zeros([n], f64).realize() };
    p = step(p);
    const held = device.memory().usedBytes;
    for (let i = 0; i < 20; i++) p = step(p);
    assert.equal(device.memory().usedBytes, held);
    let [w, m] = [1, 0];
    for (let i = 0; i < 21; i++) [w, m] = [w - 0.1 * m, 0.9 * m + 0.1 * w];
    assertClose(p.w.index(0), w, { rtol: 1e-12 });
  });

  test("donated memory with other readers is not reused", () => {
    const step = weft.jit((w: Tensor, x: Tensor) => w.mul(2).add(x), { donate: [0] });
    const w = t([1, 2]);
    const norm = w.square().sum();
    assertClose(step(w, t([1, 1])), [3, 5]);
    assertClose(norm, 5);
    assert.throws(() => w.add(1), /was donated/);
    const twice = t([3, 4]);
    assertClose(step(twice, twice), [9, 12]);
    assert.throws(() => twice.dataSync(), /was donated/);
    const two = weft.jit((a: Tensor, b: Tensor) => [a.add(1), b.sub(1)], { donate: [0, 1] });
    const same = t([5]);
    const [up, down] = two(same, same);
    assertClose(up, [6]);
    assertClose(down, [4]);
  });

  test("a donated argument can also be a result", () => {
    const f = weft.jit((a: Tensor, b: Tensor) => [b, a, a.add(b)], { donate: [0, 1] });
    const [x, y, z] = f(t([1, 2]), t([3, 4]));
    assertClose(x, [3, 4]);
    assertClose(y, [1, 2]);
    assertClose(z, [4, 6]);
    x.dispose();
    assertClose(y, [1, 2]);
    assertClose(z, [4, 6]);
  });

  test("debug.print shows values inside jit, vmap, scan, grad and checkpoint", () => {
    const f = weft.jit((x: Tensor) => weft.debug.print(x.mul(2), "doubled").sum());
    assert.deepEqual(
      printed(() => f(t([1, 2]))),
      ["doubled: float64[2] [2, 4]"],
    );
    assert.deepEqual(
      printed(() => f(t([3, 4]))),
      ["doubled: float64[2] [6, 8]"],
    );
    assert.deepEqual(
      printed(() => weft.vmap((x: Tensor) => weft.debug.print(x.add(1)))(t([1, 2]))),
      ["float64[2] [2, 3]"],
    );
    const loop = () => weft.scan((c: Tensor) => [weft.debug.print(c.add(1), "c"), null], t(0), null, { length: 3 })[0];
    assert.deepEqual(printed(loop), ["c (all 3 steps): float64[3] [1, 2, 3]"]);
    assert.deepEqual(
      printed(() => weft.jit(() => loop())()),
      ["c (all 3 steps): float64[3] [1, 2, 3]"],
    );
    const loss = (x: Tensor) => weft.debug.print(x.square(), "squares").sum();
    assert.deepEqual(
      printed(() =>
        weft
          .grad(loss)(t([3]))
          .dataSync(),
      ),
      ["squares: float64[1] [9]"],
    );
    assert.deepEqual(
      printed(() => weft.jit(weft.vmap(weft.grad((x: Tensor) => loss(x))))(t([1, 2]))),
      ["squares: float64[2] [1, 4]"],
    );
    const saved = weft.checkpoint((x: Tensor) => weft.debug.print(x.exp(), "inside"));
    assert.deepEqual(
      printed(() => weft.jit(weft.grad((x: Tensor) => saved(x).sum()))(t([0]))),
      ["inside: float64[1] [1]"],
    );
    assert.deepEqual(
      printed(() => void weft.debug.print(t([1]), "plain")),
      ["plain: float64[1] [1]"],
    );
  });

  test("profile writes a Chrome trace of compiles and runs", () => {
    const folder = mkdtempSync(join(tmpdir(), "weft-"));
    const path = join(folder, "trace.json");
    weft.profile.start();
    const f = weft.jit((x: Tensor) => x.mul(1.25).cos().sum());
    for (let i = 0; i < 3; i++) f(t([1, 2, 3]));
    const count = weft.profile.stop(path);
    const { traceEvents } = JSON.parse(readFileSync(path, "utf8"));
    rmSync(folder, { recursive: true });
    assert.equal(traceEvents.length, count);
    const names: string[] = traceEvents.map((e: { name: string }) => e.name);
    assert.equal(names.filter((name) => name.startsWith("run (")).length, 3);
    assert.equal(names.filter((name) => name === "compile").length, 1);
    for (const e of traceEvents) assert.ok(e.ph === "X" && e.dur >= 0 && Number.isFinite(e.ts));
    f(t([1, 2, 3]));
    assert.equal(weft.profile.stop(join(tmpdir(), "weft-none.json")), count, "nothing is recorded after stop");
    rmSync(join(tmpdir(), "weft-none.json"));
  });

  test("random numbers inside jit differ from call to call, and a seed repeats them", () => {
    const f = weft.jit(() => [weft.rand([4]), weft.randn([4]), weft.rand([4], { seed: 3 })]);
    weft.manualSeed(11);
    const first = f().map((x: Tensor) => x.dataSync());
    const second = f().map((x: Tensor) => x.dataSync());
    assert.notDeepEqual(first[0], second[0]);
    assert.notDeepEqual(first[1], second[1]);
    assert.notDeepEqual(first[0], first[1]);
    assert.deepEqual(first[2], second[2]);
    weft.manualSeed(11);
    assert.deepEqual(
      f().map((x: Tensor) => x.dataSync()),
      first,
    );
    weft.manualSeed(12);
    assert.notDeepEqual(
      f().map((x: Tensor) => x.dataSync()),
      first,
    );
    assert.equal(f.programs, 1);
  });

  test("dropout masks differ between layers and examples of one call", () => {
    const f = weft.jit((x: Tensor) => [0, 1, 2].map(() => x.mul(weft.bernoulli(0.5, x.shape))));
    const masks = f(weft.ones([64])).map((x: Tensor) => String(x.dataSync()));
    assert.equal(new Set(masks).size, 3);
    const rows = weft.jit((x: Tensor) => weft.vmap((v: Tensor) => v.mul(weft.bernoulli(0.5, v.shape)))(x))(
      weft.ones([5, 64]),
    );
    assert.equal(new Set((rows.arraySync() as number[][]).map(String)).size, 5);
  });

  test("kernels() names the kernels of a call", () => {
    const f = weft.jit((x: Tensor) => x.mul(2).add(1).sum());
    assert.ok(f.kernels(t([1, 2, 3])).length >= 1);
    assert.equal(f.programs, 1);
  });

  test("functions that cannot be traced throw clear errors", () => {
    class Model {
      w = t([1]);
    }
    assert.throws(() => weft.jit((m: Model) => m.w.add(1))(new Model()), /contains a Model that holds tensors/);
    assert.throws(
      () => weft.jit((m: Map<string, Tensor>) => m.get("w")!)(new Map([["w", t([1])]])),
      /contains a Map that holds/,
    );
    assert.throws(() => weft.jit(async (x: Tensor) => x)(t([1])), /jit: the function is async/);
    assert.throws(() => weft.jit((x: Tensor) => x.mul(x.sum().itemSync()))(t([1])), /has no value.*weft.debug.print/);
    let leaked: Tensor | null = null;
    weft.jit((x: Tensor) => {
      leaked = x.mul(2);
      return x;
    })(t([1]));
    assert.throws(() => leaked!.dataSync(), /exists only inside a traced function/);
    assert.throws(() => weft.jit((x: Tensor) => x.add(leaked!))(t([1])), /exists only inside a traced function/);
    // Later calls still work.
    assertClose(weft.jit((x: Tensor) => x.add(1))(t([1])), [2]);
  });
});

/** A jitted function with one program per text, and the count of its traces. */
function countedJit(options: weft.JitOptions = {}) {
  const count = { traces: 0 };
  const jitted = weft.jit((x: Tensor, n: string) => {
    count.traces++;
    return x.mul(Number(n));
  }, options);
  const f = (x: Tensor, n: number): Tensor => jitted(x, String(n));
  return { f, count, programs: () => jitted.programs };
}

test("jit keeps the programs of each device when two devices alternate", () => {
  const devices = [new weft.ReferenceDevice(), new weft.ReferenceDevice()];
  const { f, count, programs } = countedJit();
  for (let i = 0; i < 6; i++) {
    weft.useDevice(devices[i % 2]);
    assertClose(f(t([1, i]), 3), [3, 3 * i]);
  }
  assert.equal(count.traces, 2);
  assert.equal(programs(), 1, "programs of the current device");
});

test("jit caches at most maxPrograms programs and evicts the least recently used one", () => {
  weft.useDevice(new weft.ReferenceDevice());
  const { f, count, programs } = countedJit({ maxPrograms: 3 });
  for (let n = 0; n < 10; n++) assertClose(f(t([2]), n), [2 * n]);
  assert.equal(programs(), 3);
  assert.equal(count.traces, 10);
  f(t([2]), 7); // the oldest of 7, 8, 9 becomes the newest
  f(t([2]), 10); // evicts 8
  assert.equal(count.traces, 11);
  for (const n of [7, 9, 10]) assertClose(f(t([2]), n), [2 * n]);
  assert.equal(count.traces, 11);
  assertClose(f(t([2]), 8), [16]);
  assert.equal(count.traces, 12);
  for (const maxPrograms of [0, -1, 1.5, Number.NaN])
    assert.throws(() => weft.jit((x: Tensor) => x, { maxPrograms }), /maxPrograms/);
});

test("jit releases the compiled function of an evicted program", () => {
  const session = weft.useDevice(new weft.ReferenceDevice());
  const compile = session.compile.bind(session);
  const released: string[] = [];
  session.compile = (...args) => {
    const compiled = compile(...args);
    const release = compiled.release.bind(compiled);
    compiled.release = () => {
      released.push(compiled.key);
      release();
    };
    return compiled;
  };
  const { f } = countedJit({ maxPrograms: 2 });
  for (const n of [1, 2]) f(t([2]), n);
  assert.equal(released.length, 0);
  for (const n of [3, 4, 5]) assertClose(f(t([2]), n), [2 * n]);
  assert.equal(released.length, 3);
  assert.equal(new Set(released).size, 3);
});
