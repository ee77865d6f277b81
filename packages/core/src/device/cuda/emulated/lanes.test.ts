// Lane programs as CUDA on the emulated driver against the reference device: a thread a lane, every way of keeping states.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import * as weft from "../../../index.js";
import { useCudaLibraries } from "../driver.js";
import { CudaDevice } from "../index.js";
import { canEmulate, emulatedLibraries } from "./index.js";

type Tensor = weft.Tensor;
const skip = canEmulate() ? false : "no C++ compiler";
const reference = new weft.ReferenceDevice();
let device: CudaDevice;

before(() => {
  if (skip !== false) return;
  const found = useCudaLibraries(emulatedLibraries());
  device = new CudaDevice(0, { graphs: false });
  useCudaLibraries(found);
});
after(() => weft.setDevice(reference));

/** A rotating and decaying complex pair of numbers per lane, driven by xs, with a weight that all lanes share. */
function loss(w: Tensor, s0: Tensor, xs: Tensor): Tensor {
  const one = (s: Tensor, x: Tensor): Tensor => {
    const [last, ys] = weft.scan(
      (z: Tensor, v: Tensor): [Tensor, Tensor] => {
        const turned = z.mul(weft.complex(weft.cos(v), weft.sin(v)));
        const next = turned.add(w.matmul(turned).mul(0.1));
        return [next, weft.abs(next.index(0, 0))];
      },
      s,
      x,
    );
    return weft.real(last).square().sum().add(ys.sum());
  };
  return weft.vmap(one)(s0, xs).mean();
}

const inputs = (): [Tensor, Tensor, Tensor] => [
  weft.complex(weft.randn([2, 2], { seed: 1, dtype: "float64" }), weft.randn([2, 2], { seed: 2, dtype: "float64" })),
  weft.complex(
    weft.randn([70, 2, 1], { seed: 3, dtype: "float64" }),
    weft.randn([70, 2, 1], { seed: 4, dtype: "float64" }),
  ),
  weft.randn([70, 9], { seed: 5, dtype: "float64" }),
];

const flat = ([value, grads]: [Tensor, Tensor[]]): number[] =>
  [value, ...grads].flatMap((t) => Array.from(t.dataSync() as ArrayLike<number>));

for (const policy of ["", "local", "memory", "checkpoint"])
  test(`value and gradients of lanes, states ${policy || "as chosen"}`, { skip }, () => {
    const run = (): number[] => {
      const fn = weft.jit((...x: Tensor[]) => weft.valueAndGrad(loss, { argument: [0, 1, 2] })(x[0], x[1], x[2]));
      const got = flat(fn(...inputs()) as [Tensor, Tensor[]]);
      if (weft.session().device === device)
        assert.deepEqual(
          fn.kernels(...inputs()).filter((k) => k.startsWith("lanes") || k.startsWith("scan")),
          ["lanes_70x9x2"],
        );
      return got;
    };
    weft.setDevice(reference);
    const want = run();
    if (policy !== "") process.env.WEFT_LANE_HISTORY = policy;
    try {
      weft.setDevice(device as never);
      weft.session().forgetCompiled();
      const got = run();
      assert.equal(got.length, want.length);
      for (const [i, x] of want.entries())
        assert.ok(Math.abs(x - got[i]) <= 1e-11 * (1 + Math.abs(x)), `${i}: ${got[i]} is not ${x}`);
    } finally {
      delete process.env.WEFT_LANE_HISTORY;
    }
  });

/** A propagator column a lane: gates on neighboring pairs of four two-level parts, and its gradient by storing states. */
function gates(g: Tensor, angles: Tensor, psi0: Tensor): Tensor {
  const put = (gate: Tensor, psi: Tensor, before: number): Tensor =>
    gate.matmul(psi.reshape([before, 4, 4 / before])).reshape([16]);
  const one = (psi: Tensor): Tensor => {
    const [last] = weft.scan(
      (s: Tensor, a: Tensor): [Tensor, null] => {
        const phase = weft.complex(weft.cos(a), weft.sin(a)).reshape([1, 2, 1]);
        const turned = s.reshape([2, 2, 4]).mul(phase).reshape([16]);
        return [put(g, put(g, put(g, turned, 1), 2), 4), null];
      },
      psi,
      angles,
    );
    return weft.abs(last.index(3)).square();
  };
  return weft.vmap(one)(psi0).mean();
}

test("a block a problem: gates on states in shared memory, forwards and backwards", { skip }, () => {
  const complexNormal = (shape: number[], seed: number): Tensor =>
    weft.complex(
      weft.randn(shape, { seed, dtype: "float64" }).mul(0.4),
      weft.randn(shape, { seed: seed + 1, dtype: "float64" }).mul(0.4),
    );
  const arguments_ = (): [Tensor, Tensor, Tensor] => [
    complexNormal([4, 4], 1),
    weft.randn([5, 2], { seed: 3, dtype: "float64" }),
    complexNormal([7, 16], 4),
  ];
  const run = (): { values: number[]; kernels: string[] } => {
    // The shared gates are arguments of the batch too, as lanes have gradients of their own.
    const loss = (g: Tensor, a: Tensor, p: Tensor): Tensor => gates(g, a, p);
    const fn = weft.jit((...x: Tensor[]) => weft.valueAndGrad(loss, { argument: 2 })(x[0], x[1], x[2]));
    const [value, grad] = fn(...arguments_()) as [Tensor, Tensor];
    return { values: flat([value, [grad]]), kernels: fn.kernels(...arguments_()) };
  };
  weft.setDevice(reference);
  const want = run().values;
  process.env.WEFT_LANE_FORM = "block";
  try {
    weft.setDevice(device as never);
    weft.session().forgetCompiled();
    const { values, kernels } = run();
    assert.deepEqual(
      kernels.filter((k) => k.startsWith("blocks") || k.startsWith("lanes") || k.startsWith("scan")),
      ["blocks_7x5", "blocks_7x5"],
    );
    for (const [i, x] of want.entries())
      assert.ok(Math.abs(x - values[i]) <= 1e-11 * (1 + Math.abs(x)), `${i}: ${values[i]} is not ${x}`);
  } finally {
    delete process.env.WEFT_LANE_FORM;
  }
});

test("numbers of many steps go through tiles of shared memory", { skip }, () => {
  const make = (): [Tensor, Tensor] => [weft.randn([64, 3], { seed: 1 }), weft.randn([64, 21, 2], { seed: 2 })];
  const loss = (s0: Tensor, xs: Tensor): Tensor =>
    weft
      .vmap((s: Tensor, x: Tensor) => {
        const [last, ys] = weft.scan(
          (q: Tensor, v: Tensor): [Tensor, Tensor] => {
            const next = q.mul(v.index(0)).add(v.index(1)).sin();
            return [next, next.index(0)];
          },
          s,
          x,
        );
        return last.sum().add(ys.square().sum());
      })(s0, xs)
      .mean();
  const run = (): number[] => {
    const fn = weft.jit((...x: Tensor[]) => weft.valueAndGrad(loss, { argument: [0, 1] })(x[0], x[1]));
    return flat(fn(...make()) as [Tensor, Tensor[]]);
  };
  weft.setDevice(reference);
  const want = run();
  process.env.WEFT_LANE_TILES = "32";
  const sources: string[] = [];
  try {
    weft.setDevice(device as never);
    weft.session().forgetCompiled();
    const compile = device.compile.bind(device);
    device.compile = (fn, options) => {
      sources.push(device.source(fn, options));
      return compile(fn, options);
    };
    const got = run();
    device.compile = compile;
    for (const [i, x] of want.entries())
      assert.ok(Math.abs(x - got[i]) <= 2e-6 * (1 + Math.abs(x)), `${i}: ${got[i]} is not ${x}`);
    assert.ok(sources.some((text) => text.includes("* const y0 = w0 + threadIdx.x / 32")));
  } finally {
    delete process.env.WEFT_LANE_TILES;
  }
});

/** A gated recurrent unit (Cho et al. 2014) of a given width, whose gates' signs are stored beside floats in a block's shared memory. */
function gated(x: Tensor, wx: Tensor, wh: Tensor): Tensor {
  const cell = (h: Tensor, part: Tensor): [Tensor, Tensor] => {
    const [r, z, n] = weft.split(part.matmul(wx.transpose()), 3, -1);
    const [hr, hz, hn] = weft.split(h.matmul(wh.transpose()), 3, -1);
    const fresh = weft.tanh(n.add(weft.sigmoid(r.add(hr)).mul(hn)));
    const next = fresh.add(weft.sigmoid(z.add(hz)).mul(h.sub(fresh)));
    return [next, next];
  };
  return weft.scan(cell, weft.zeros([x.shape[1], wh.shape[1]], { dtype: x.dtype }), x)[1] as Tensor;
}

for (const dtype of ["float32", "float64", "float16", "bfloat16"] as const)
  test(`a recurrent loop in blocks stores values of every width, ${dtype}`, { skip }, () => {
    const draw = (shape: number[], seed: number): Tensor => weft.randn(shape, { seed }).mul(0.2).cast(dtype).realize();
    const run = (): number[] => {
      const operands = [draw([10, 4, 32], 1), draw([96, 32], 2), draw([96, 32], 3)];
      const forward = weft.jit(gated as never) as unknown as (...args: Tensor[]) => Tensor;
      const slope = weft.jit((...args: Tensor[]) =>
        weft.grad((x: Tensor, a: Tensor, b: Tensor) => gated(x, a, b).cast("float32").square().sum(), {
          argument: [0, 1, 2],
        })(args[0], args[1], args[2]),
      ) as unknown as (...args: Tensor[]) => Tensor[];
      return [forward(...operands), ...slope(...operands)].flatMap((t) =>
        Array.from(t.cast("float64").dataSync() as ArrayLike<number>),
      );
    };
    weft.setDevice(reference);
    const want = run();
    weft.setDevice(device as never);
    const got = run();
    const off = { float64: 1e-12, float32: 2e-6, float16: 2e-3, bfloat16: 2e-2 }[dtype];
    for (const [i, x] of want.entries())
      assert.ok(Math.abs(x - got[i]) <= off * (1 + Math.abs(x)), `${i}: ${got[i]} is not ${x}`);
  });
