// Programs that the processes of distributed.test.ts run, one per rank.

import * as weft from "@weft/core";
import type { RankContext } from "@weft/testing/groups";

import * as distributed from "./distributed.js";

interface Args {
  device: string;
  /** Join through the launcher's variables instead of arguments. */
  launched?: "auto" | "mpi";
}

async function start({ rank, size, name }: RankContext, { device, launched }: Args): Promise<void> {
  weft.setDevice(device);
  if (launched !== undefined) await distributed.init({ backend: launched });
  else await distributed.init({ rank, size, name, joinTimeout: 30 });
}

/** Every function once, eagerly and inside jit. */
export async function functions(context: RankContext, args: Args): Promise<object> {
  await start(context, args);
  const { rank, size } = context;
  const x = weft.tensor([1, 2, 3]).mul(rank + 1);
  const uneven = weft.full([rank + 1, 2], rank);
  const sizes = Array.from({ length: size }, (_, r) => r + 1);
  const whole = weft.arange(2 * size + 1).mul(rank + 1);
  const all = (a: weft.Tensor, b: weft.Tensor, c: weft.Tensor) => ({
    sum: distributed.allReduce(a),
    mean: distributed.allReduce(a, "mean"),
    max: distributed.allReduce(a, "max"),
    gathered: distributed.allGather(b, 0, { sizes }),
    scattered: distributed.reduceScatter(c),
    broadcast: distributed.broadcast(a, size - 1),
    after: distributed.allReduce(a).mul(2).sum(),
  });
  const numbers = (r: ReturnType<typeof all>) =>
    Object.fromEntries(Object.entries(r).map(([key, value]) => [key, [...value.dataSync()]]));
  const eager = numbers(all(x, uneven, whole));
  const jitted = weft.jit(all);
  const first = numbers(jitted(x, uneven, whole));
  const second = numbers(jitted(x, uneven, whole));
  const kernels = jitted.kernels(x, uneven, whole);
  const { kind } = distributed.group();
  distributed.barrier();
  distributed.shutdown();
  return { eager, first, second, kernels, kind };
}

/** One step of data-parallel gradient descent, large enough for the in-place path. */
export async function gradientStep(context: RankContext, args: Args): Promise<object> {
  await start(context, args);
  const { rank, size } = context;
  const rows = 64 * size;
  const x = weft
    .arange(rows * 96)
    .reshape([rows, 96])
    .mul(0.37)
    .sin();
  const y = weft
    .arange(rows * 160)
    .reshape([rows, 160])
    .mul(0.11)
    .cos();
  const w = weft.full([96, 160], 0.01);
  const loss = (w: weft.Tensor, x: weft.Tensor, y: weft.Tensor) => x.matmul(w).sub(y).square().mean();
  const step = weft.jit((w: weft.Tensor, x: weft.Tensor, y: weft.Tensor) => {
    const gradient = weft.grad(loss)(w, x, y);
    return w.sub(distributed.allReduce(gradient, "mean").mul(10));
  });
  let mine = w;
  for (let i = 0; i < 3; i++) {
    const from = rank * 64;
    mine = step(mine, x.slice([from, 0], [from + 64, 96]), y.slice([from, 0], [from + 64, 160]));
  }
  let expected = w;
  for (let i = 0; i < 3; i++) expected = expected.sub(weft.grad(loss)(expected, x, y).mul(10));
  const error = mine.sub(expected).abs().max().itemSync();
  const bits = new Uint32Array(mine.dataSync().buffer);
  let hash = 0;
  for (const word of bits) hash = (Math.imul(hash, 31) + word) >>> 0;
  return { error, hash, moved: expected.sub(w).abs().max().itemSync() };
}

/** Several pending collectives during other work, and a loop around one. */
export async function overlapped(context: RankContext, args: Args): Promise<object> {
  await start(context, args);
  const { rank, size } = context;
  const base = weft.arange(40_000).mul(0.001);
  const many = weft.jit((x: weft.Tensor) => {
    const sums = Array.from({ length: 20 }, (_, i) => distributed.allReduce(x.mul(i + 1)));
    return sums.reduce((a, b) => a.add(b)).add(x.square());
  });
  const got = many(base.add(rank)).dataSync();
  let worst = 0;
  for (let i = 0; i < got.length; i += 997) {
    const parts = Array.from({ length: size }, (_, r) => i * 0.001 + r);
    const expected = parts.reduce((a, b) => a + b, 0) * 210 + (i * 0.001 + rank) ** 2;
    worst = Math.max(worst, Math.abs((got[i] as number) - expected) / (1 + Math.abs(expected)));
  }
  const looped = weft.jit((x: weft.Tensor) =>
    weft.scan((carry: weft.Tensor) => [distributed.allReduce(carry, "mean").add(1), carry.sum()], x, null, {
      length: 5,
    }),
  );
  const [last] = looped(weft.full([3], rank)) as [weft.Tensor, weft.Tensor];
  return { worst, last: [...last.dataSync()] };
}

/** Rank 1 leaves during the program; the others get an error. */
export async function deserted(context: RankContext, args: Args): Promise<string> {
  await start(context, args);
  const step = weft.jit((x: weft.Tensor) => distributed.allReduce(x));
  step(weft.ones([8])).dataSync();
  if (context.rank === 1) return "left";
  try {
    step(weft.ones([8])).dataSync();
    return "no error";
  } catch (error) {
    return (error as Error).message;
  }
}
