import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import * as weft from "@weft/core";
import { showSeconds } from "@weft/core/internal/shard";
import * as nn from "@weft/core/nn";
import { adam } from "@weft/core/optim";
import type { ClusterBuffer } from "./buffer.js";
import { type Cluster, connect } from "./connect.js";
import { skip, testWorker } from "./workers.testkit.js";

let cluster: Cluster;
before(async () => {
  // Shard over all workers: whether that is worthwhile is tested with the planner.
  process.env.WEFT_FORCE_SHARD = "1";
  if (!skip) cluster = await connect({ devices: 3, ...testWorker });
});
after(async () => {
  if (!skip) await cluster.close();
});

const bufferOf = (t: weft.Tensor): ClusterBuffer => (t.node.value as unknown as { buffer: ClusterBuffer }).buffer;

/** A program and its arguments; run on the cluster and on one CPU device. */
interface Case {
  name: string;
  shapes: number[][];
  run(...args: weft.Tensor[]): weft.Tensor | weft.Tensor[];
  /** More than one worker must take part. */
  spread: boolean;
}

const big = [700, 130];
const cases: Case[] = [
  { name: "element-wise", shapes: [big, big], run: (a, b) => a.mul(b).add(1).tanh().exp(), spread: true },
  {
    name: "product",
    shapes: [
      [1001, 256],
      [256, 128],
    ],
    run: (a, b) => a.matmul(b).relu(),
    spread: true,
  },
  {
    name: "contraction cut",
    shapes: [
      [64, 4000],
      [4000, 96],
    ],
    run: (a, b) => a.matmul(b),
    spread: true,
  },
  {
    name: "softmax of a product",
    shapes: [
      [512, 256],
      [256, 200],
    ],
    run: (a, b) => a.matmul(b).softmax(1),
    spread: true,
  },
  {
    name: "column sums",
    shapes: [
      [2000, 300],
      [300, 300],
    ],
    run: (a, b) => a.matmul(b).sum(0),
    spread: true,
  },
  {
    name: "transpose and back",
    shapes: [
      [600, 400],
      [400, 400],
    ],
    run: (a, b) => a.matmul(b).T.add(1).T.mul(a),
    spread: true,
  },
  {
    name: "gradients of a layer",
    shapes: [[900, 200], [200, 150], [150]],
    run: (x, w, c) => {
      const loss = (w: weft.Tensor, c: weft.Tensor) => x.matmul(w).add(c).tanh().square().mean();
      const [dw, dc] = weft.grad(loss, { argument: [0, 1] })(w, c);
      return [dw, dc];
    },
    spread: true,
  },
  {
    name: "a scan",
    shapes: [[300, 64]],
    run: (x) =>
      weft.scan((c: weft.Tensor, r: weft.Tensor) => [c.add(r).tanh(), c], weft.zeros([64]), x)[0] as weft.Tensor,
    spread: true,
  },
  {
    name: "random numbers",
    shapes: [
      [1200, 300],
      [300, 300],
    ],
    run: (a, b) => a.add(weft.randn(a.shape, { key: weft.key(7) })).matmul(b),
    spread: true,
  },
];

const wave = (shape: number[], seed: number): weft.Tensor => {
  const n = shape.reduce((a, b) => a * b, 1);
  return weft.tensor(Float32Array.from({ length: n }, (_, i) => Math.sin(i * 0.7 + seed) * 0.5)).reshape(shape);
};

for (const { name, shapes, run, spread } of cases) {
  test(`3 workers compute the same values as one device: ${name}`, { skip }, async () => {
    const program = () => [run(...shapes.map((shape, i) => wave(shape, i)))].flat();
    weft.useDevice(cluster.device);
    const before = cluster.device.counts.sharded;
    const got = await Promise.all(program().map((t) => t.data()));
    const sharded = cluster.device.counts.sharded - before;
    weft.setDevice("cpu");
    const expected = program().map((t) => t.dataSync());
    weft.useDevice(cluster.device);
    if (spread) assert.ok(sharded > 0, "nothing was sharded");
    expected.forEach((values, k) => {
      assert.equal(got[k].length, values.length);
      let scale = 0;
      for (const v of values) scale = Math.max(scale, Math.abs(Number(v)));
      for (let i = 0; i < values.length; i++)
        if (!(Math.abs(Number(got[k][i]) - Number(values[i])) <= 2e-5 * (1 + scale)))
          assert.fail(`${name}: element ${i} is ${got[k][i]}, not ${values[i]}`);
    });
  });
}

test("rows are stored where the placement says, and tensor bytes do not pass through the dispatcher", {
  skip,
}, async () => {
  weft.useDevice(cluster.device);
  const { sent } = cluster.device.connection;
  const before = sent.bytes;
  const x = wave([1000, 1000], 1);
  const y = x.matmul(x).realize();
  const parts = cluster.device.describe(bufferOf(y));
  assert.equal(parts.length, 3);
  assert.equal(new Set(parts.map((p) => p.worker)).size, 3);
  assert.deepEqual(
    parts.map((p) => [p.start[0], p.stop[0]]),
    [
      [0, 334],
      [334, 667],
      [667, 1000],
    ],
  );
  assert.equal((await y.data()).length, 1e6);
  // 4 MB were uploaded and 4 MB fetched; the dispatcher saw only the plan.
  assert.ok(sent.bytes - before < 20_000, `${sent.bytes - before} bytes`);
});

test("a computed or uploaded tensor is fetched into a given array", { skip }, async () => {
  const whole = new Float32Array(7 * 5 + 2).fill(-1);
  const own = whole.subarray(1, 36);
  const numbers = Array.from({ length: 35 }, (_, i) => i);
  const x = weft.tensor(numbers).reshape([7, 5]);
  const y = x.add(1);
  assert.equal(await y.data(own), own);
  assert.ok(cluster.device.describe(bufferOf(y)).filter(({ start, stop }) => stop[0] > start[0]).length > 1);
  assert.deepEqual([...whole], [-1, ...numbers.map((n) => n + 1), -1]);
  await weft.tensor(numbers).data(own);
  assert.deepEqual([...own], numbers);
  assert.deepEqual(whole[36], -1);
});

test("fetching a result larger than the client's memory is an error that says so", { skip }, async () => {
  await assert.rejects(
    weft.zeros([600_000, 600_000]).data(),
    /no memory for one array of the 1440000000000 bytes of a result/,
  );
  assert.deepEqual(await weft.tensor([1, 2]).add(1).array(), [2, 3]);
});

test("a jitted training loop with donated state does not modify the client's arrays", { skip }, async () => {
  weft.useDevice(cluster.device);
  const step = weft.jit(
    (w: weft.Tensor, x: weft.Tensor) =>
      w.sub(
        weft
          .grad((w: weft.Tensor) => x.matmul(w).square().mean())(w)
          .mul(0.01),
      ),
    { donate: [0] },
  );
  let w = wave([128, 64], 2);
  const x = wave([640, 128], 3);
  for (let i = 0; i < 5; i++) w = step(w, x);
  const got = await w.data();
  weft.setDevice("cpu");
  let expected = wave([128, 64], 2);
  const xs = wave([640, 128], 3);
  for (let i = 0; i < 5; i++) expected = step(expected, xs);
  const values = expected.dataSync();
  weft.useDevice(cluster.device);
  for (let i = 0; i < values.length; i++) assert.ok(Math.abs(Number(got[i]) - Number(values[i])) < 1e-5);
});

test("transformer training steps over 3 workers equal those of one device", { skip }, async () => {
  const train = async (): Promise<number[]> => {
    const shape = { vocabulary: 50, width: 16, heads: 2, layers: 1, feedForward: 32, classes: 4 };
    let params = nn.textClassifier.init(shape, weft.key(1));
    const rule = adam({ learningRate: 1e-2 });
    let state = rule.init(params);
    const ids = weft.tensor(Int32Array.from({ length: 10 * 6 }, (_, i) => (i * 37) % 50)).reshape([10, 6]);
    const labels = weft.oneHot(weft.tensor(Int32Array.from({ length: 10 }, (_, i) => i % 4)), 4);
    const step = weft.jit(
      (p: typeof params, s: typeof state, ids: weft.Tensor, labels: weft.Tensor) => {
        const loss = (p: typeof params): weft.Tensor =>
          weft.mean(nn.textClassifier.apply(p, ids, { heads: 2 }).logSoftmax(-1).mul(labels).sum(-1).neg());
        const [value, gradients] = weft.valueAndGrad(loss)(p) as [weft.Tensor, typeof params];
        const [next, after] = rule.update(p, gradients, s);
        return { next, after, value };
      },
      { donate: [0, 1] },
    );
    const losses: number[] = [];
    for (let i = 0; i < 3; i++) {
      const result = step(params, state, ids, labels);
      [params, state] = [result.next, result.after];
      losses.push(await result.value.item());
    }
    return losses;
  };
  weft.useDevice(cluster.device);
  const before = { ...cluster.device.counts };
  const got = await train();
  assert.ok(cluster.device.counts.sharded - before.sharded >= 3);
  // Parameters and optimizer state stay in place from step to step.
  assert.equal(cluster.device.counts.reshards, before.reshards);
  weft.setDevice("cpu");
  const expected = await train();
  weft.useDevice(cluster.device);
  assert.ok(expected[2] < expected[0]);
  got.forEach((loss, i) => {
    assert.ok(Math.abs(loss - expected[i]) < 1e-5, `${got} against ${expected}`);
  });
});

test("sharding constraints in the program, a rules file and a mesh are followed and visualized", { skip }, async () => {
  const options = { token: cluster.local!.token };
  const columns = await connect(cluster.address, {
    ...options,
    sharding: { scopes: { head: { shard: { axis: 1 } } } },
  });
  const x = wave([90, 60], 1);
  const y = weft.named("head", () => x.matmul(wave([60, 120], 2))).realize();
  assert.deepEqual(
    columns.device.describe(bufferOf(y)).map((p) => [p.start, p.stop]),
    [
      [
        [0, 0],
        [90, 40],
      ],
      [
        [0, 40],
        [90, 80],
      ],
      [
        [0, 80],
        [90, 120],
      ],
    ],
  );
  assert.match(weft.debug.sharding(y), /120/);
  // The explanation contains the cost that predict() returns, and labels each cost.
  const cost = showSeconds(columns.device.predict()!.seconds);
  const explanation = columns.device.explain();
  assert.match(
    explanation,
    new RegExp(`^3 devices \\(d=3\\).*: ${cost} against .*x \\(predicted for .*, by kernels\\)\\.`),
  );
  assert.match(explanation, /\nTried \(all predicted for .*, by operations\):\n/);
  const pinned = weft.shard(wave([90, 60], 1).matmul(wave([60, 120], 2)), { 0: "d" }).realize();
  assert.deepEqual(
    columns.device.describe(bufferOf(pinned)).map((p) => p.stop[0]),
    [30, 60, 90],
  );
  await columns.close();
  await assert.rejects(
    connect(cluster.address, { ...options, sharding: "/nowhere.yaml" }),
    /sharding: \/nowhere.yaml cannot be read/,
  );
  weft.useDevice(cluster.device);
});

test("debug.print inside jit prints cluster values in order", { skip }, async () => {
  weft.useDevice(cluster.device);
  const lines: string[] = [];
  weft.debug.onPrint((text) => lines.push(text));
  try {
    const f = weft.jit((x: weft.Tensor) => weft.debug.print(weft.debug.print(x.add(1), "first").mul(2), "second"));
    assert.deepEqual(await f(weft.tensor([1, 2])).array(), [4, 6]);
    while (lines.length < 2) await new Promise((resolve) => setTimeout(resolve, 5));
    assert.deepEqual(lines, ["first: float32[2] [2, 3]", "second: float32[2] [4, 6]"]);
  } finally {
    weft.debug.onPrint((text) => console.log(text));
  }
});

test("a synchronous read is an error that names the asynchronous functions", { skip }, () => {
  weft.useDevice(cluster.device);
  assert.throws(() => weft.tensor([1]).add(1).dataSync(), /await t\.data\(\)/);
});

test("two clients with the same ids do not see each other's tensors", { skip }, async () => {
  weft.useDevice(cluster.device);
  const mine = weft.tensor([1, 2, 3]).add(1);
  mine.realize();
  const other = await connect(cluster.address, { token: cluster.local!.token });
  const theirs = weft.tensor([10, 20, 30]).add(1);
  assert.deepEqual(await theirs.array(), [11, 21, 31]);
  weft.useDevice(cluster.device);
  assert.deepEqual(await mine.array(), [2, 3, 4]);
  await other.close();
  assert.deepEqual(await mine.mul(2).array(), [4, 6, 8]);
});

test("limits apply per client", { skip }, async () => {
  const small = await connect(cluster.address, { token: cluster.local!.token, maxBytes: 1000 });
  await assert.rejects(weft.ones([1000]).add(1).data(), /its limit is 1000.*maxBytes/);
  assert.deepEqual(await weft.ones([2]).add(1).array(), [2, 2]);
  await small.close();
  weft.useDevice(cluster.device);
  assert.equal((await weft.ones([1000]).add(1).data())[999], 2);
});

test("a client that exceeds its queue limit gets an error and can continue", { skip }, async () => {
  const hasty = await connect(cluster.address, { token: cluster.local!.token, maxQueue: 100 });
  const step = weft.jit((x: weft.Tensor) => x.add(1));
  let x = step(weft.ones([2]));
  const ahead = x;
  for (let i = 0; i < 2000; i++) x = step(x);
  await assert.rejects(x.data(), /instructions of this client are queued.*maxQueue/s);
  assert.deepEqual(await ahead.array(), [2, 2]);
  await hasty.close();
  weft.useDevice(cluster.device);
});

test("fetches and uploads over sockets, as between hosts", { skip }, async () => {
  process.env.WEFT_CLUSTER_DATA = "socket";
  const remote = await connect(cluster.address, { token: cluster.local!.token });
  try {
    const x = wave([777, 333], 5);
    const y = x.matmul(wave([333, 333], 6)).add(1);
    const got = await y.data();
    weft.setDevice("cpu");
    const expected = wave([777, 333], 5)
      .matmul(wave([333, 333], 6))
      .add(1)
      .dataSync();
    for (let i = 0; i < expected.length; i += 7) assert.ok(Math.abs(Number(got[i]) - Number(expected[i])) < 1e-3);
  } finally {
    delete process.env.WEFT_CLUSTER_DATA;
    await remote.close();
    weft.useDevice(cluster.device);
  }
});

test("recurring arguments are resharded once, not in every call", { skip }, async () => {
  const product = weft.jit((a: weft.Tensor, b: weft.Tensor) => a.matmul(b));
  const a = weft.randn([600, 256], { key: weft.key(1) }).realize();
  const b = weft.randn([256, 192], { key: weft.key(2) }).realize();
  const { device } = cluster;
  const first = await product(a, b).data();
  const after = [];
  for (let i = 0; i < 4; i++) {
    assert.deepEqual(await product(a, b).data(), first);
    after.push(device.counts.reshards);
  }
  // The second call may reshard; later calls reuse the copy.
  assert.deepEqual(after.slice(1), [after[0], after[0], after[0]]);
  const lies = (t: weft.Tensor): number => bufferOf(t).copies?.size ?? 0;
  assert.equal(lies(a) + lies(b), 1, "one of the two has a second copy");
  for (const tensor of [a, b]) tensor.dispose();
});

test("sizes that vary share a program, and give what one device gives", { skip }, async () => {
  const step = (w: weft.Tensor, x: weft.Tensor): weft.Tensor[] => {
    const [loss, gradient] = weft.valueAndGrad((v: weft.Tensor) => x.matmul(v).tanh().square().mean())(w);
    return [w.sub(gradient), loss, x.matmul(w).softmax(0)];
  };
  const run = async (): Promise<{ programs: number; results: ArrayLike<unknown>[] }> => {
    const jitted = weft.jit(step, { vary: [1] });
    const w = wave([64, 48], 2);
    const results: ArrayLike<unknown>[] = [];
    for (const rows of [500, 431, 512]) for (const t of jitted(w, wave([rows, 64], rows))) results.push(await t.data());
    return { programs: jitted.programs, results };
  };
  const shared = await run();
  weft.setDevice("cpu");
  const single = await run();
  weft.useDevice(cluster.device);
  assert.equal(shared.programs, 1);
  for (const [i, expected] of single.results.entries()) {
    const got = shared.results[i];
    assert.equal(got.length, expected.length);
    for (let k = 0; k < got.length; k++)
      assert.ok(
        Math.abs(Number(got[k]) - Number(expected[k])) < 1e-4,
        `result ${i}, element ${k}: ${got[k]}, ${expected[k]}`,
      );
  }
});
