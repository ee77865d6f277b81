// Hand-written attention on a cluster of GPU workers (emulated driver): each worker runs the fused kernels on its
// shard, forward and backward, and no other matrix product.
import assert from "node:assert/strict";
import { after, afterEach, test } from "node:test";
import * as weft from "@weft/core";
import { numel } from "@weft/core/internal/graph";
import { build, evaluate } from "@weft/core/internal/ops";
import { attentionNode } from "@weft/core/internal/transform";
import { type Cluster, connect } from "./connect.js";
import { skip } from "./workers.testkit.js";

const preload = new URL(import.meta.resolve("@weft/testing/emulated-cuda")).href;
const emulated = { NODE_OPTIONS: `--import ${preload}`, WEFT_CUDA_GRAPHS: "0" };
process.env.WEFT_FORCE_SHARD = "1";
const open: Cluster[] = [];

afterEach(async () => {
  delete process.env.WEFT_ATTENTION;
  for (const cluster of open.splice(0)) await cluster.close();
  weft.setDevice("cpu");
});

const [batch, heads, length, size] = [4, 2, 40, 16];
const wave = (seed: number): weft.Tensor => {
  const shape = [batch, heads, length, size];
  const data = Float32Array.from({ length: batch * heads * length * size }, (_, i) => Math.sin(i * 0.7 + seed));
  return weft.tensor(data, { shape });
};

function attend(q: weft.Tensor, k: weft.Tensor, v: weft.Tensor): weft.Tensor {
  const at = weft.arange(0, length);
  const causal = at.unsqueeze(1).greaterEqual(at.unsqueeze(0));
  const scores = q.matmul(k.transpose()).div(Math.sqrt(size));
  return weft.softmax(scores.where(causal, Number.NEGATIVE_INFINITY)).matmul(v);
}

type Attend = typeof attend;
/** A result and gradients, as one program. */
const program = (f: Attend): ((...x: weft.Tensor[]) => weft.Tensor[]) =>
  weft.jit((...x: weft.Tensor[]) => {
    const cut = x.map((t) => weft.shard(t, { 0: "d" })) as [weft.Tensor, weft.Tensor, weft.Tensor];
    const loss = (...y: weft.Tensor[]): [weft.Tensor, weft.Tensor] => {
      const z = f(y[0], y[1], y[2]);
      return [z.square().sum(), z];
    };
    const [[, z], grads] = weft.valueAndGrad(loss, { argument: [0, 1, 2], hasAux: true })(...cut);
    return [z, ...(grads as unknown as weft.Tensor[])];
  });

let gpus: { cluster: Cluster; ops: Map<string, string[]> } | null = null;
after(() => gpus?.cluster.close());

/** Two workers with one GPU each, and the ops that each of them ran. */
async function workers(): Promise<NonNullable<typeof gpus>> {
  if (gpus === null) {
    const cluster = await connect({ devices: 2, device: "cuda:0", env: emulated, tape: true });
    const ops = new Map<string, string[]>();
    cluster.device.connection.onTape = (records) => {
      for (const { workerId, op } of records as { workerId: string; op: string }[])
        ops.set(workerId, [...(ops.get(workerId) ?? []), op]);
    };
    gpus = { cluster, ops };
  }
  gpus.ops.clear();
  return gpus;
}

/** The ops that each worker runs; values and gradients equal those of one device. */
async function check(f: Attend): Promise<string[][]> {
  weft.setDevice("cpu");
  const make = (): weft.Tensor[] => program(f)(wave(1), wave(2), wave(3));
  const expected = make().map((t) => [...(t.dataSync() as Float32Array)]);
  const { cluster, ops } = await workers();
  weft.useDevice(cluster.device);
  const results = make();
  for (const [i, t] of results.entries())
    ((await t.data()) as Float32Array).forEach((x, at) => {
      const want = expected[i][at];
      assert.ok(Math.abs(x - want) < 1e-4 * (1 + Math.abs(want)), `result ${i}, element ${at}: ${x}, not ${want}`);
    });
  assert.equal(ops.size, 2, "both workers took part");
  return [...ops.values()];
}

const isAttention = (op: string): boolean => op.startsWith("attention");
const isProduct = (op: string): boolean => op.startsWith("matmul");

test("GPU workers run hand-written attention as fused kernels, each on its examples", { skip }, async () => {
  for (const ops of await check(attend)) {
    const dims = [batch / 2, length, heads, size].join("x");
    assert.deepEqual(ops.filter(isAttention), [`attention_${dims}`, `attentionGradient_${dims}`]);
    assert.deepEqual(ops.filter(isProduct), []);
  }
});

test("with fusion disabled, attention runs as matrix products", { skip }, async () => {
  process.env.WEFT_ATTENTION = "0";
  for (const ops of await check(attend)) {
    assert.deepEqual(ops.filter(isAttention), []);
    assert.ok(ops.filter(isProduct).length >= 5, ops.join());
  }
});

test("dropout with one key per example matches one device; dropout with one shared key is not split", {
  skip,
}, async () => {
  const dropping =
    (key: () => weft.Tensor): Attend =>
    (q, k, v) =>
      weft.scaledDotProductAttention(q, k, v, { dropout: 0.3, key: key() });
  for (const ops of await check(dropping(() => weft.splitKey(weft.key(3), batch))))
    assert.equal(ops.filter(isAttention).length, 2, ops.join());
  for (const ops of await check(dropping(() => weft.key(3)))) assert.deepEqual(ops.filter(isAttention), []);
});

test("a worker without attention kernels runs the separate operations", { skip }, async () => {
  const cluster = await connect({ devices: 2, device: "cpu", cores: 1 });
  open.push(cluster);
  const { device } = cluster;
  const kernel = { kind: "attention", gradient: false, packed: false, scale: 0.25, mask: "none", dropout: 0 } as const;
  const params = [1, 2, 3].map(() => build.input([batch, length, heads, size], "float32"));
  const custom = attentionNode(params, kernel);
  assert.equal(device.supportsCustomKernel(custom), false);
  const fn = { params, outputs: [build.pick(custom, 0)] };
  const data = params.map((_, i) => Float32Array.from({ length: numel(params[i].shape) }, (__, k) => Math.sin(k + i)));
  const inputs = data.map((numbers) => {
    const buffer = device.allocate(numbers.byteLength);
    device.upload(buffer, new Uint8Array(numbers.buffer));
    return buffer;
  });
  const executable = device.compile(fn, {});
  assert.ok(executable.kernels.some(({ name }) => name === "attention"));
  const before = device.counts.sharded;
  const [result] = executable.run(inputs);
  const got = new Float32Array(await device.fetchAsync(result));
  assert.equal(device.counts.sharded, before + 1);
  const [expected] = evaluate(
    fn,
    data.map((numbers, i) => ({ shape: params[i].shape, dtype: "float32", data: numbers })),
  );
  expected.data.forEach((x, i) => {
    assert.ok(Math.abs(got[i] - Number(x)) < 1e-5, `element ${i}`);
  });
});
