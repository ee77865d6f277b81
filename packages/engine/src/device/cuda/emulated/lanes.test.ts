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

/** A rotating and decaying complex pair of numbers a lane, driven by xs, with a weight that all lanes share. */
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
