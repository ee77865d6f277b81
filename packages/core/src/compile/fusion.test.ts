// Checks the number and kind of kernels of typical programs.
import assert from "node:assert/strict";
import { test } from "node:test";
import { CpuDevice } from "../device/index.js";
import { bareCollective, type Node } from "../graph/index.js";
import * as weft from "../index.js";
import { build } from "../ops/index.js";
import { emitKernel } from "./emit-c.js";
import { scheduleFunction } from "./schedule.js";

const skip = CpuDevice.available() ? false : "no C compiler on this machine";

/** Kernels of a function for arguments like these, by kind. */
function kernels(
  fn: (...args: weft.Tensor[]) => unknown,
  ...args: weft.Tensor[]
): { names: string[]; library: number; kernel: number; loop: number } {
  const names = weft.jit(fn).kernels(...args);
  const isLibrary = (name: string): boolean =>
    /^(gemm|eigh|solve|cholesky|qr|svd|det|triangularSolve|cumsum|argsort|scatterAdd)_/.test(name);
  const library = names.filter(isLibrary).length;
  const loop = names.filter((name) => name.startsWith("scan_")).length;
  return { names, library, loop, kernel: names.length - library - loop };
}

const count = (fn: (...args: weft.Tensor[]) => unknown, ...args: weft.Tensor[]): number =>
  kernels(fn, ...args).names.length;
if (skip === false) weft.setDevice("cpu");

const x = (): weft.Tensor => weft.randn([64, 48], { seed: 1 });

test("an element-wise chain is one kernel, with several results too", { skip }, () => {
  assert.equal(
    count((a) => a.mul(2).add(1).exp().sub(0.5).abs().sqrt().maximum(0.1).neg(), x()),
    1,
  );
  assert.equal(
    count((a) => {
      const e = a.exp();
      return [e, e.add(1), e.mul(a)];
    }, x()),
    1,
  );
  assert.equal(
    count((a, b) => a.add(b).mul(a.sub(b)), x(), weft.randn([48], { seed: 2 })),
    1,
  );
});

test("views cost nothing: transposes, slices, reshapes and flips are addresses", { skip }, () => {
  assert.equal(
    count((a) => a.transpose().reshape([6, 8, 64]).index("::2", "1:5").flip(0).add(1), x()),
    1,
  );
  assert.equal(
    count(
      (a) =>
        weft.concat(
          [
            a.pad([
              [1, 1],
              [0, 0],
            ]),
            a.flip(0),
          ],
          0,
        ),
      x(),
    ),
    1,
  );
});

test("a concatenation is copied part by part; other ops test element by element", { skip }, () => {
  const flat = (t: weft.Tensor): weft.Tensor => t.reshape([t.size]);
  const parts = [[37, 5], [1], [64, 64], [3], [999]].map((shape, i) => weft.randn(shape, { seed: i }));
  const textsOf = (join: (...args: weft.Tensor[]) => weft.Tensor): string => {
    const params = parts.map((t) => build.input(t.shape, t.dtype));
    const traced = { params, outputs: [join(...params.map((node) => new weft.Tensor(node))).node] };
    const { steps } = scheduleFunction(traced, { parallelRows: 16, longReduction: 4096 });
    return steps.map((step) => (step.kind === "kernel" ? emitKernel(step.kernel).text : "")).join("\n");
  };
  const joins: [name: string, pieces: (...args: weft.Tensor[]) => weft.Tensor[], copied: boolean][] = [
    ["whole", (...all) => all.map(flat), true],
    ["rows of a matrix", (...all) => [flat(all[2].index("3:9")), flat(all[0]), all[3]], true],
    ["a scalar among them", (...all) => [flat(all[3].index(1)), flat(all[0]), flat(all[3].index(2)), all[4]], true],
    ["turned", (...all) => [flat(all[0].transpose()), all[1]], false],
    ["computed", (...all) => [flat(all[0]).mul(2), all[4]], false],
  ];
  for (const [name, pieces, copied] of joins) {
    const join = (...args: weft.Tensor[]): weft.Tensor => weft.concat(pieces(...args));
    assert.equal(/memmove/.test(textsOf(join)), copied, name);
    if (!copied) continue;
    for (const dtype of ["float32", "float64", "bfloat16", "int32", "bool", "complex64"] as const) {
      const args = parts.map((t) => t.mul(3).cast(dtype).realize());
      const expected = pieces(...args).flatMap((piece) => piece.arraySync() as unknown[]);
      assert.deepEqual(
        weft
          .jit(join)(...args)
          .arraySync(),
        expected,
        `${name}, ${dtype}`,
      );
    }
  }
});

test("reductions are fused with their prologue and epilogue", { skip }, () => {
  assert.equal(
    count((a) => a.square().sum(1).sqrt().add(1), x()),
    1,
  );
  assert.equal(
    count((a) => weft.softmax(a), x()),
    1,
  );
  assert.equal(
    count((a) => weft.logSoftmax(a), x()),
    1,
  );
  assert.equal(
    count((a, w, b) => weft.layerNorm(a, { weight: w, bias: b }), x(), weft.ones([48]), weft.zeros([48])),
    1,
  );
  assert.equal(
    count((a) => a.var(1), x()),
    1,
  );
  assert.equal(
    count((a) => a.sum(0), x()),
    1,
  );
});

test("an MLP is one library call per layer and nothing else", { skip }, () => {
  const [w1, b1, w2, b2] = [[48, 32], [32], [32, 10], [10]].map((shape, i) => weft.randn(shape, { seed: i }));
  const mlp = (a: weft.Tensor, p: weft.Tensor, q: weft.Tensor, r: weft.Tensor, s: weft.Tensor): weft.Tensor =>
    a.matmul(p).add(q).relu().matmul(r).add(s);
  const found = kernels(mlp as never, x(), w1, b1, w2, b2);
  assert.deepEqual([found.library, found.kernel], [2, 0], found.names.join(" "));
});

test("attention writes its heads in place: no copies between the products", { skip }, () => {
  const [batch, time, heads, size] = [2, 6, 2, 4];
  const attention = (q: weft.Tensor, w: weft.Tensor): weft.Tensor => {
    const split = q.matmul(w).reshape([batch, time, heads, size]).permute([0, 2, 1, 3]);
    const scores = split.matmul(split.transpose()).mul(0.5).softmax();
    return scores
      .matmul(split)
      .permute([0, 2, 1, 3])
      .reshape([batch, time, heads * size])
      .matmul(w);
  };
  const found = kernels(attention as never, weft.randn([batch, time, 8], { seed: 1 }), weft.randn([8, 8], { seed: 2 }));
  assert.deepEqual([found.library, found.kernel], [4, 1], found.names.join(" "));
});

test("a training step of softmax regression needs six kernels at most", { skip }, () => {
  const step = (w: weft.Tensor, a: weft.Tensor, y: weft.Tensor): weft.Tensor[] => {
    const [loss, g] = weft.valueAndGrad((p: weft.Tensor) => weft.crossEntropy(a.matmul(p), y))(w);
    return [w.sub(g.mul(0.1)), loss];
  };
  const found = kernels(step as never, weft.zeros([48, 10]), x(), weft.zeros([64], { dtype: "int32" }));
  assert.equal(found.library, 2, found.names.join(" "));
  assert.ok(found.names.length <= 6, found.names.join(" "));
});

test("a scan over small problems is one lane kernel, with its reverse pass in it", { skip }, () => {
  const path = (c: weft.Tensor, xs: weft.Tensor): weft.Tensor =>
    weft.scan((s: weft.Tensor, v: weft.Tensor) => [s.matmul(s.transpose()).mul(v).tanh(), s.sum()], c, xs)[0].sum();
  const forward = kernels(
    (c, xs) => weft.vmap(path, { inAxes: [0, null] })(c, xs),
    weft.randn([33, 2, 2], { seed: 1 }),
    weft.ones([7]),
  );
  assert.deepEqual(
    forward.names.filter((name) => name.startsWith("lanes_")),
    ["lanes_33x7"],
  );
  assert.equal(forward.names.length, 1, forward.names.join(" "));
  const both = kernels(
    (c, xs) => weft.vmap(weft.valueAndGrad(path), { inAxes: [0, null] })(c, xs),
    weft.randn([33, 2, 2], { seed: 1 }),
    weft.ones([7]),
  );
  assert.deepEqual(both.names, ["lanes_33x7x2"]);
});

test("a scan whose lanes read each other, or hold too much state, is an ordinary loop", { skip }, () => {
  const mixed = kernels(
    (c, xs) => weft.scan((s: weft.Tensor, v: weft.Tensor) => [s.sub(s.mean(0)).mul(v), s.sum()], c, xs) as never,
    weft.randn([300, 4], { seed: 1 }),
    weft.ones([7]),
  );
  assert.deepEqual([mixed.loop, mixed.names.length], [1, 1], mixed.names.join(" "));
  const large = kernels(
    (c, xs) => weft.scan((s: weft.Tensor, v: weft.Tensor) => [s.matmul(s).mul(v), s.sum()], c, xs) as never,
    weft.randn([64, 64], { seed: 1 }),
    weft.ones([7]),
  );
  assert.deepEqual([large.loop, large.names.length], [1, 1], large.names.join(" "));
});

test("dead code is eliminated and common subexpressions are computed once", { skip }, () => {
  const found = kernels((a) => {
    a.matmul(a.transpose()).exp();
    return a.exp().add(a.exp());
  }, x());
  assert.deepEqual(found.names.length, 1, found.names.join(" "));
});

test("donated memory is reused in place, and results stay correct", { skip }, () => {
  const update = weft.jit(
    (p: weft.Tensor, m: weft.Tensor, g: weft.Tensor) => {
      const next = m.mul(0.9).add(g);
      return [p.sub(next.mul(0.1)), next];
    },
    { donate: [0, 1] },
  );
  const device = weft.session().device;
  let [p, m] = [weft.ones([1000]).realize(), weft.zeros([1000]).realize()];
  const g = weft.ones([1000]).realize();
  [p, m] = update(p, m, g);
  const before = device.memory().usedBytes;
  for (let i = 0; i < 3; i++) [p, m] = update(p, m, g);
  assert.equal(device.memory().usedBytes, before, "no new memory");
  // m: 1, 1.9, 2.71, 3.439; p decreases by a tenth of each.
  assert.ok(Math.abs(Number(m.dataSync()[999]) - 3.439) < 1e-5);
  assert.ok(Math.abs(Number(p.dataSync()[0]) - (1 - 0.1 * (1 + 1.9 + 2.71 + 3.439))) < 1e-5);
});

test("kernels before and after two collectives are not fused, so that collectives keep their order", () => {
  const sum = (operand: Node, sequence: number): Node =>
    build.make("collective", [operand], {
      ...bareCollective,
      kind: "allReduce",
      groups: [[0, 1]],
      rank: 0,
      sequence,
      shape: operand.shape,
      dtype: "float32",
    });
  const [p, q] = [build.input([64, 48], "float32"), build.input([64, 48], "float32")];
  // The second one does not read what the first one does, and still waits for it.
  const squares = build.mul(p, p);
  const fn = { params: [p, q], outputs: [sum(squares, 0), build.add(squares, sum(q, 1))] };
  const { steps } = scheduleFunction(fn, { parallelRows: 16, longReduction: 4096 });
  const kinds = steps.map((step) =>
    step.kind === "collective" ? `${step.phase} ${step.node.attrs.sequence}` : step.kind,
  );
  assert.equal(kinds.filter((kind) => kind === "kernel").length, 2);
  assert.ok(kinds.indexOf("kernel") < kinds.indexOf("start 0"), kinds.join(", "));
  assert.ok(kinds.lastIndexOf("kernel") > kinds.indexOf("finish 1"), kinds.join(", "));
});

test("a long chain of expensive functions becomes equal kernels, which are compiled once", { skip }, () => {
  const param = build.input([1000], "float32");
  let y: Node = param;
  for (let i = 0; i < 2000; i++) y = build.unary("sin", y);
  const source = new CpuDevice().source({ params: [param], outputs: [y] });
  const calls = source.match(/ w_sin_f\(t\d+\)/g)?.length ?? 0;
  assert.ok(calls >= 16 && calls <= 200, `${calls} calls in the source of 2,000 sines`);
});

test("a thousand tensors are joined in kernels of limited size", { skip }, async () => {
  const parts = Array.from({ length: 1000 }, (_, i) => weft.tensor([[i], [2 * i]]));
  const both = weft.jit((...args: weft.Tensor[]) => {
    const joined = weft.concat(args, 1).mul(2);
    return [joined, joined.sum(1)];
  });
  const [joined, sums] = both(...parts);
  const values = Array.from({ length: 1000 }, (_, i) => 2 * i);
  assert.deepEqual(await joined.array(), [values, values.map((v) => 2 * v)]);
  assert.deepEqual(await sums.array(), [999_000, 1_998_000]);
});

test("a half that two kernels read as float32 is stored as it is", () => {
  weft.setDevice("reference");
  const shape = [4, 8, 32, 32];
  const half = build.input(shape, "bfloat16");
  const chain = [1, 2, 3, 4].reduce<Node>((y) => build.unary("exp", build.mul(y, build.unary("tanh", y))), half);
  const wide = build.cast(chain, "float32");
  const mean = build.mul(build.sum(wide, [0, 2, 3]), build.full([8], 1 / 4096, "float32"));
  const centered = build.sub(wide, build.expand(build.reshape(mean, [1, 8, 1, 1]), shape));
  const fn = { params: [half], outputs: [build.cast(build.mul(centered, centered), "bfloat16")] };
  const plan = scheduleFunction(fn, { parallelRows: 1024, longReduction: 4096 });
  const written = plan.steps.flatMap((step) =>
    step.kind === "kernel" ? [...step.kernel.written].map((i) => step.kernel.buffers[i]) : [],
  );
  const large = written.filter((node) => node.shape.length === 4);
  assert.deepEqual(
    large.map(({ dtype }) => dtype),
    ["bfloat16", "bfloat16"],
  );
});
