// The sequence of driver calls: a jitted call is one graph launch, donated buffers are reused, arguments are packed,
// algorithms are chosen once and kept on disk. Against a driver that writes its calls down.
import assert from "node:assert/strict";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, beforeEach, test } from "node:test";
import koffi from "koffi";
import * as weft from "../../index.js";
import type { CudaBuffer } from "./context.js";
import { CudaDevice } from "./index.js";
import { type CublasProduct, Products } from "./products.js";
import { type DriverCall, FakeCuda } from "./testkit.js";

const cache = mkdtempSync(join(tmpdir(), "weft-fake-cuda-"));
process.env.WEFT_CACHE_DIR = cache;
after(() => rmSync(cache, { recursive: true, force: true }));
beforeEach(() => rmSync(join(cache, "cuda", "products"), { recursive: true, force: true }));

const launches = (names: readonly string[]): string[] => names.filter((n) => /Launch|Gemm|Matmul$/.test(n));
const addressOf = (t: weft.Tensor): number =>
  ((t.realize() as weft.Tensor).node.value as unknown as { buffer: CudaBuffer }).buffer.address;

function onFake(body: (fake: FakeCuda, device: CudaDevice) => void): void {
  new FakeCuda().within((fake) => {
    const device = new CudaDevice(0);
    weft.useDevice(device);
    body(fake, device);
    device.close();
  });
}

test("the third call of a jitted function is one graph launch and nothing else", () =>
  onFake((fake, device) => {
    const f = weft.jit((x: weft.Tensor) => weft.softmax(x.matmul(x).add(1)).sum());
    const x = weft.ones([64, 64]).realize();
    f(x).dispose();
    const first = fake.sequence();
    assert.ok(launches(first).length >= 2 && !first.includes("cuGraphLaunch"), "launched one by one the first time");
    f(x).dispose();
    const second = fake.sequence();
    assert.deepEqual(
      second.filter((n) => /Capture|Graph/.test(n)),
      [
        "cuStreamBeginCapture_v2",
        "cuStreamEndCapture",
        "cuGraphInstantiateWithFlags",
        "cuGraphDestroy",
        "cuGraphLaunch",
      ],
    );
    for (let i = 0; i < 3; i++) {
      f(x).dispose();
      assert.deepEqual(fake.sequence(), ["cuGraphLaunch"]);
    }
    assert.equal(device.graphLaunches, 4);
  }));

test("the recorded graph has the kernels of the program, with the addresses of the call", () =>
  onFake((fake) => {
    const f = weft.jit((x: weft.Tensor) => x.mul(2).add(1));
    const x = weft.ones([1000]).realize();
    f(x).dispose();
    fake.sequence();
    f(x);
    const launch = fake.calls.find(({ name }) => name === "cuGraphLaunch")!;
    const inside = fake.graphCalls(launch.args[0] as number);
    assert.deepEqual(
      inside.map(({ name }) => name),
      ["cuLaunchKernelEx"],
    );
    const [config, fn] = inside[0].args as number[];
    const [gx, gy, gz, bx] = new Uint32Array(koffi.view(BigInt(config), 16) as ArrayBuffer);
    assert.ok(fn > 0 && gx * bx >= 250 && gy === 1 && gz === 1);
  }));

test("eager operations on tensors of many sizes are compiled once", () =>
  onFake((fake) => {
    const compiled = (size: number): number => {
      fake.calls.length = 0;
      weft.sin(weft.ones([size])).realize();
      return fake.calls.filter(({ name }) => name === "nvrtcCompileProgram").length;
    };
    compiled(1001);
    assert.deepEqual([compiled(1003), compiled(77), compiled(5003)], [0, 0, 0]);
  }));

test("arguments of a launch are packed addresses, in the order of the kernel, and the number of elements", () =>
  onFake((fake) => {
    const x = weft.ones([1000]).realize();
    fake.calls.length = 0;
    const y = x.exp().realize();
    const call = fake.calls.find(({ name }) => name === "cuLaunchKernel") as DriverCall;
    assert.deepEqual(new Set(FakeCuda.argumentsOf(call)), new Set([addressOf(x), addressOf(y), 1000]));
  }));

test("donated arguments: results take over their memory, nothing is allocated, two graphs at most take turns", () =>
  onFake((fake) => {
    const step = weft.jit((p: weft.Tensor, g: weft.Tensor) => p.sub(g.mul(0.1)), { donate: [0] });
    let p = weft.ones([4096]).realize();
    const g = weft.ones([4096]).realize();
    const home = addressOf(p);
    for (let i = 0; i < 3; i++) p = step(p, g);
    fake.sequence();
    for (let i = 0; i < 5; i++) {
      p = step(p, g);
      assert.equal(addressOf(p), home);
    }
    assert.deepEqual(fake.sequence(), new Array(5).fill("cuGraphLaunch"));
  }));

test("a loop whose results are dropped uses the same memory and the same graphs again", () =>
  onFake((fake) => {
    const f = weft.jit((x: weft.Tensor) => x.mul(2));
    let x = weft.ones([4096]).realize();
    for (let i = 0; i < 6; i++) {
      const next = f(x);
      x.dispose();
      x = next;
    }
    fake.sequence();
    for (let i = 0; i < 6; i++) {
      const next = f(x);
      x.dispose();
      x = next;
    }
    assert.deepEqual(fake.sequence(), new Array(6).fill("cuGraphLaunch"));
  }));

test("small uploads do not wait for the GPU", () =>
  onFake((fake) => {
    fake.sequence();
    weft.tensor([1, 2, 3]).realize();
    const names = fake.sequence();
    assert.ok(names.includes("cuMemcpyHtoDAsync_v2") && !names.includes("cuStreamSynchronize"), names.join(" "));
    // More than 4 MB of small ones (a batch of a large model is one): the ring comes round, and waits once.
    for (let i = 0; i < 40; i++) weft.tensor(new Float32Array(40000)).realize();
    assert.equal(fake.sequence().filter((n) => n === "cuStreamSynchronize").length, 1);
  }));

const large = (device: CudaDevice, epilogue: CublasProduct["epilogue"] = null): CublasProduct => {
  const [left, right, out] = [1, 2, 3].map(() => (device.allocate(4 << 20) as CudaBuffer).address);
  const n = 1024;
  return {
    dtype: "float32",
    precision: "tf32",
    m: n,
    n,
    k: n,
    left: { address: left, op: 0, ld: n },
    right: { address: right, op: 0, ld: n },
    out: { address: out, ld: n },
    batch: [],
    scale: 1,
    epilogue,
  };
};

test("large products time the library's guesses once; the choice is kept in memory and on disk", () =>
  onFake((fake, device) => {
    // cuBLAS 3.1 ms; of the three guesses the second is the fastest.
    const times = { 0: 3.1, 1: 3.05, 2: 3, 3: 9 } as Record<number, number>;
    let asked = 0;
    fake.milliseconds = () => {
      asked++;
      const { name, args } = [...fake.calls].reverse().find((call) => /Gemm|LtMatmul$/.test(call.name))!;
      return times[name === "cublasGemmEx" ? 0 : FakeCuda.byteAt(args[12] as number)];
    };
    const product = large(device);
    const products = new Products(device.context, true);
    products.issue(product);
    assert.equal(products.tuned, 1);
    // Once each, then four rounds of those that are close.
    assert.equal(asked, 4 + 4 * 3);
    assert.equal(FakeCuda.byteAt([...fake.calls].reverse()[0].args[12] as number), 2);
    fake.sequence();
    products.issue(product);
    assert.deepEqual(fake.sequence(), ["cublasLtMatmul"], "known: one call");
    assert.equal(readdirSync(join(cache, "cuda", "products")).length, 1);
    const other = new Products(device.context, true);
    other.issue(product);
    assert.deepEqual([other.tuned, asked], [0, 16], "read from disk by the next process");
    const off = new Products(device.context, false);
    fake.sequence();
    off.issue(product);
    assert.deepEqual(fake.sequence(), ["cublasGemmEx"], "WEFT_CUDA_AUTOTUNE=0 leaves the choice to cuBLAS");
  }));

test("when cuBLAS's own choice is the fastest, it stays", () =>
  onFake((fake, device) => {
    fake.milliseconds = () => 1;
    const products = new Products(device.context, true);
    const product = large(device);
    products.issue(product);
    fake.sequence();
    products.issue(product);
    assert.deepEqual(fake.sequence(), ["cublasGemmEx"]);
  }));

test("a product in a loop is timed if all of its runs are worth it", () =>
  onFake((fake, device) => {
    fake.milliseconds = () => 1;
    const steps = (length: number): void => {
      const [w, x, xs] = [
        [256, 256],
        [256, 256],
        [length, 1],
      ].map((shape) => weft.ones(shape).realize());
      const last = (a: weft.Tensor, b: weft.Tensor, each: weft.Tensor): weft.Tensor =>
        weft.scan((h: weft.Tensor) => [h.matmul(a).tanh(), h], b, each)[0] as weft.Tensor;
      weft.jit(last)(w, x, xs).realize();
    };
    steps(8);
    assert.equal(device.products.tuned, 0);
    steps(64);
    assert.equal(device.products.tuned, 1);
  }));

test("nothing is timed while a graph is recorded", () =>
  onFake((fake, device) => {
    device.context.capturing = true;
    const products = new Products(device.context, true);
    products.issue(large(device));
    products.issue(large(device, { activation: "relu", bias: (device.allocate(4096) as CudaBuffer).address }));
    device.context.capturing = false;
    const names = fake.sequence();
    assert.equal(products.tuned, 0);
    assert.deepEqual(launches(names), ["cublasGemmEx", "cublasLtMatmul"]);
  }));

test("the library is told a bias address when it changes", () =>
  onFake((fake, device) => {
    const products = new Products(device.context, false);
    const product = large(device, { activation: "none", bias: (device.allocate(4096) as CudaBuffer).address });
    products.issue(product);
    fake.sequence();
    products.issue(product);
    assert.deepEqual(fake.sequence(), ["cublasLtMatmul"]);
    products.issue({
      ...product,
      epilogue: { activation: "none", bias: (device.allocate(4096) as CudaBuffer).address },
    });
    assert.deepEqual(
      fake.sequence().filter((n) => n.startsWith("cublasLt")),
      ["cublasLtMatmulDescSetAttribute", "cublasLtMatmul"],
    );
  }));

test("a copy to another GPU goes directly, in order with both streams", () =>
  new FakeCuda({ devices: 2 }).within((fake) => {
    const [a, b] = [new CudaDevice(0), new CudaDevice(1)];
    const buffer = a.allocate(1000);
    a.upload(buffer, new Uint8Array(1000).fill(5));
    fake.sequence();
    const copy = a.copyTo(buffer, b)!;
    const names = fake.sequence();
    assert.ok(names.includes("cuCtxEnablePeerAccess") && names.includes("cuMemcpyPeerAsync"));
    assert.equal(names.filter((n) => n === "cuStreamWaitEvent").length, 2);
    const into = new Uint8Array(1000);
    b.download(copy, into);
    assert.ok(into.every((x) => x === 5));
    fake.sequence();
    a.copyTo(buffer, b);
    assert.ok(!fake.sequence().includes("cuCtxEnablePeerAccess"), "enabled once");
    assert.equal(a.copyTo(buffer, new weft.ReferenceDevice()), null);
    a.close();
    b.close();
  }));

test("a profiler sees the program, its kernels and the user's spans by name", () => {
  process.env.WEFT_NVTX = "1";
  onFake((fake) => {
    delete process.env.WEFT_NVTX;
    const x = weft.ones([8, 8]).realize();
    fake.calls.length = 0;
    weft.profile.span("my step", () => x.matmul(x).exp().realize());
    const ranges = fake.calls.filter(({ name }) => name.startsWith("nvtx"));
    const names = ranges.filter(({ name }) => name === "nvtxRangePushA").map(({ args }) => String(args[0]));
    assert.equal(names[0], "my step");
    assert.ok(
      names.some((name) => /^weft: \d+ kernels/.test(name)) && names.includes("matmul_8x8x8"),
      names.join("; "),
    );
    assert.equal(ranges.length, 2 * names.length, "every push has its pop");
  });
  onFake((fake) => {
    weft.profile.span("my step", () => weft.ones([8]).realize());
    assert.ok(!fake.sequence().includes("nvtxRangePushA"), "off unless asked for");
  });
});

test("results that a user keeps and fresh batches do not keep a program from being one graph launch", () =>
  onFake((fake) => {
    const f = weft.jit((x: weft.Tensor, w: weft.Tensor) => {
      const h = x.matmul(w).tanh();
      return weft.softmax(h.matmul(w)).sum(0);
    });
    const w = weft.ones([32, 32]).realize();
    const kept: weft.Tensor[] = [];
    const call = (): string[] => {
      const x = weft.ones([4, 32]).add(kept.length).realize();
      fake.sequence();
      kept.push(x, f(x, w));
      return fake.sequence();
    };
    for (let i = 0; i < 9; i++) call();
    const last = call().filter((name) => name !== "cuMemAlloc_v2");
    assert.deepEqual(last, ["cuMemcpyDtoDAsync_v2", "cuGraphLaunch", "cuMemcpyDtoDAsync_v2"]);
    // The copies go between the call's own memory and the places of the graph.
    fake.calls.length = 0;
    const x = weft.ones([4, 32]).mul(7).realize();
    fake.calls.length = 0;
    const y = f(x, w);
    const [into, , out] = fake.calls.filter(({ name }) => /DtoD|GraphLaunch/.test(name));
    assert.equal(into.args[1], addressOf(x));
    assert.equal(out.args[0], addressOf(y));
  }));

test("a state behind another result keeps its memory, and results in many places take no recording per call", () =>
  onFake((fake) => {
    type State = { cache: weft.Tensor; token: weft.Tensor; slot: weft.Tensor };
    const step = weft.jit(
      ({ cache, token, slot }: State) => {
        const next = weft.sort(weft.cumsum(cache)).sum().add(token);
        const updated = weft.dynamicUpdateSlice(cache, next, [slot]);
        return { emitted: next, state: { cache: updated, token: next.add(0), slot: slot.add(1) } };
      },
      { donate: [0] },
    );
    let state: State = {
      cache: weft.zeros([64]).realize(),
      token: weft.zeros([1]).realize(),
      slot: weft.tensor(0, { dtype: "int32" }).realize(),
    };
    // As many results as a reader is behind are alive: their addresses take turns with those of the state.
    const behind: weft.Tensor[] = [];
    const run = (count: number): void => {
      for (let i = 0; i < count; i++) {
        const made = step(state);
        behind.push(made.emitted.realize());
        if (behind.length > 11) behind.shift()!.dispose();
        state = made.state;
      }
    };
    run(60);
    fake.sequence();
    run(20);
    const names = fake.sequence().filter((name) => name !== "cuMemcpyDtoDAsync_v2");
    assert.deepEqual(names, new Array(20).fill("cuGraphLaunch"));
  }));

test("a program that gets another state is one launch per call again", () =>
  onFake((fake) => {
    const step = weft.jit((w: weft.Tensor, x: weft.Tensor) => w.sub(weft.softmax(x.matmul(w)).sum(0).mul(0.1)), {
      donate: [0],
    });
    const fresh = (): weft.Tensor => weft.ones([64, 64]).realize();
    // Kept, so that memory does not come again by chance.
    const batches: weft.Tensor[] = [fresh()];
    let state = fresh();
    for (let i = 0; i < 4; i++) state = step(state, batches[0]);
    const before = state;
    state = fresh();
    const next = (): string[] => {
      batches.push(fresh());
      fake.sequence();
      state = step(state, batches[batches.length - 1]);
      return fake.sequence();
    };
    for (let i = 0; i < 24; i++) next();
    assert.deepEqual(next(), ["cuMemcpyDtoDAsync_v2", "cuGraphLaunch"]);
    before.dispose();
  }));

const isConv = ({ name }: DriverCall): boolean => /^cudnnConvolution/.test(name);

test("a convolution and its gradients are one library call each, with the algorithm that fits", () =>
  onFake((fake) => {
    const [x, w] = [weft.ones([2, 4, 6, 6]).realize(), weft.ones([8, 2, 3, 3]).realize()];
    const loss = (a: weft.Tensor, b: weft.Tensor) => weft.conv2d(a, b, { groups: 2, padding: 1 }).square().sum();
    fake.calls.length = 0;
    for (const g of weft.grad(loss, { argument: [0, 1] })(x, w)) g.realize();
    const calls = fake.calls.filter(isConv);
    assert.deepEqual(
      new Set(calls.map(({ name }) => name)),
      new Set(["cudnnConvolutionForward", "cudnnConvolutionBackwardData", "cudnnConvolutionBackwardFilter"]),
    );
    for (const { args } of calls) {
      assert.equal(args[7], 7, "the algorithm whose workspace is small enough");
      assert.equal(args[9], 4096);
    }
    const asked = fake.calls.filter(({ name }) => name === "cudnnGetConvolutionForwardAlgorithm_v7");
    assert.deepEqual(
      asked.map(({ args }) => args.at(-3)),
      [1, 8],
      "more algorithms only where the first does not fit",
    );
    const groups = fake.calls.filter(({ name }) => name === "cudnnSetConvolutionGroupCount");
    assert.ok(groups.length > 0 && groups.every(({ args }) => args[1] === 2));
    const math = fake.calls.filter(({ name }) => name === "cudnnSetConvolutionMathType");
    assert.ok(
      math.every(({ args }) => args[1] === 3),
      "float32 stays exact unless the program says otherwise",
    );
  }));

test("asymmetric padding is explicit before the library sees it; a refused convolution is a product", () =>
  onFake((fake) => {
    const [x, w] = [weft.ones([1, 2, 5, 5]).realize(), weft.ones([3, 2, 2, 2]).realize()];
    fake.calls.length = 0;
    weft.conv2d(x, w, { padding: "same" }).realize();
    assert.equal(fake.calls.filter(isConv).length, 1);
    const set = fake.calls.find(({ name }) => name === "cudnnSetTensorNdDescriptorEx")!;
    assert.deepEqual([...(set.args[4] as Int32Array)], [1, 2, 6, 6]);
    fake.fail("cudnnGetConvolutionForwardAlgorithm_v7", 9);
    fake.calls.length = 0;
    weft.conv2d(x, w, { padding: 1 }).realize();
    assert.equal(fake.calls.filter(isConv).length, 0);
    assert.ok(fake.calls.some(({ name }) => /Gemm|LtMatmul$/.test(name)));
  }));

test("Fourier transforms run by plans that own their memory, and say what is missing", () => {
  onFake((fake) => {
    const z = weft.ones([4, 8], { dtype: "complex64" }).realize();
    fake.calls.length = 0;
    weft.fft(z).realize();
    const names = fake.calls.map(({ name }) => name).filter((name) => name.startsWith("cufft"));
    assert.deepEqual(names.slice(-3), ["cufftMakePlanMany64", "cufftSetStream", "cufftExecC2C"]);
    fake.fail("cufftExecC2C", 2);
    assert.throws(() => weft.ifft(z).realize(), /cufftExecC2C failed with error 2/);
  });
  new FakeCuda({ without: ["fft"] }).within(() => {
    const device = new CudaDevice(0);
    weft.useDevice(device);
    assert.throws(() => weft.fft(weft.ones([4])).realize(), /cuFFT .* was not found,.*pip install nvidia-cufft/);
    device.close();
  });
});
