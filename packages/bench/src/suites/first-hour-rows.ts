// Weft's side of the first-hour suite. Every row runs in its own process. After warming up it starts processes that keep the cores busy, and
// prints one line of JSON with its samples in milliseconds.
import { type ChildProcess, spawn } from "node:child_process";
import {
  crossEntropy,
  grad,
  jit,
  key,
  linspace,
  logSoftmax,
  matmul,
  oneHot,
  ones,
  randn,
  type Tensor,
  take,
  tensor,
  treeMap,
  valueAndGrad,
  zeros,
  zerosLike,
} from "@weft/core";
import { encoder, encoderLayer } from "@weft/core/nn";
import { adamW } from "@weft/core/optim";
import { MetaTrainer } from "@weft/quantum";

interface Measured {
  samples: number[];
  /** What the row computed. */
  check: number;
}

interface RowOptions {
  seconds: number;
  busy: number;
}

type Row = (options: RowOptions) => Measured | Promise<Measured>;

const now = (): number => performance.now();

/** Runs `body` beside processes that keep the cores busy. */
async function beside<T>(busy: number, body: () => T): Promise<T> {
  const children: ChildProcess[] = Array.from({ length: busy }, () =>
    spawn(process.execPath, ["-e", "for (;;);"], { stdio: "ignore" }),
  );
  try {
    if (busy > 0) await new Promise((resolve) => setTimeout(resolve, 500));
    return await body();
  } finally {
    for (const child of children) child.kill("SIGKILL");
  }
}

/** Times of single calls, for at least some seconds and three calls. */
function timed(seconds: number, call: () => void): number[] {
  const samples: number[] = [];
  for (const end = now() + 1e3 * seconds; samples.length < 3 || now() < end; ) {
    const start = now();
    call();
    samples.push(now() - start);
  }
  return samples;
}

/** Times per call of batches of 200 calls, for calls that are shorter than the resolution of the clock. */
function timedInBatches(seconds: number, call: () => void): number[] {
  for (let i = 0; i < 2000; i++) call();
  return timed(seconds, () => {
    for (let i = 0; i < 200; i++) call();
  }).map((ms) => ms / 200);
}

/** The longest time during which a timer of 2 ms did not tick, and the result. */
async function longestGap<T>(work: () => Promise<T>): Promise<{ gap: number; result: T }> {
  await new Promise((resolve) => setTimeout(resolve, 20));
  let last = now();
  let gap = 0;
  const tick = (): void => {
    gap = Math.max(gap, now() - last);
    last = now();
  };
  const timer = setInterval(tick, 2);
  const result = await work();
  tick();
  clearInterval(timer);
  return { gap, result };
}

const [width, heads, layers, batch, length, vocabulary] = [64, 4, 2, 8, 64, 256];

/** The two-layer Transformer of the peers: one step of stochastic gradient descent. */
function gptStep(): () => number {
  let params = {
    embedding: randn([vocabulary, width]),
    positions: randn([length, width]).mul(0.1),
    layers: Array.from({ length: layers }, (_, i) =>
      encoderLayer.init({ width, heads, feedForward: 4 * width }, key(i)),
    ),
    head: randn([width, vocabulary]).mul(0.1),
  };
  type Params = typeof params;
  const loss = (p: Params, x: Tensor, y: Tensor): Tensor => {
    let h = take(p.embedding, x, 0).add(p.positions);
    for (const layer of p.layers) h = encoderLayer.apply(layer, h, { heads, activation: "gelu", norm: "pre" });
    return logSoftmax(matmul(h, p.head), -1)
      .mul(oneHot(y, vocabulary))
      .sum()
      .div(-batch * length);
  };
  const step = jit(
    (p: Params, x: Tensor, y: Tensor) => {
      const [value, gradient] = valueAndGrad(loss)(p, x, y);
      return { value, params: treeMap((w, g) => w.sub(g.mul(0.01)), p, gradient) };
    },
    { donate: [0] },
  );
  const tokens = (factor: number): Tensor =>
    tensor(
      Int32Array.from({ length: batch * length }, (_, i) => (i * factor) % vocabulary),
      { shape: [batch, length], dtype: "int32" },
    ).realize();
  const [x, y] = [tokens(7919), tokens(104729)];
  return () => {
    const next = step(params, x, y);
    params = next.params;
    return next.value.itemSync();
  };
}

/** A training step of the size of GPT-2 124M with AdamW, as in fine-tuning. It is compiled, not executed. */
function compileGpt2(): Measured {
  const sizes = { width: 768, heads: 12, vocabulary: 50257, length: 128, batch: 4 };
  const params = {
    embedding: zeros([sizes.vocabulary, sizes.width]),
    positions: zeros([sizes.length, sizes.width]),
    layers: treeMap(
      (x) => zerosLike(x),
      encoder.init(
        { width: sizes.width, heads: sizes.heads, feedForward: 4 * sizes.width, layers: 12, finalNorm: true },
        key(0),
      ),
    ),
  };
  const ids = zeros([sizes.batch, sizes.length], { dtype: "int32" });
  const loss = (p: typeof params, x: Tensor): Tensor => {
    const from = take(p.embedding, x, 0).add(p.positions);
    const h = encoder.apply(p.layers, from, { heads: sizes.heads, activation: "gelu", norm: "pre", causal: true });
    return crossEntropy(matmul(h, p.embedding.transpose()).index(":", ":-1"), x.index(":", "1:"));
  };
  const optimizer = adamW({ learningRate: 1e-4 });
  const step = jit(
    (p: typeof params, s: ReturnType<typeof optimizer.init>, x: Tensor) => {
      const [value, gradient] = valueAndGrad(loss)(p, x);
      return [...optimizer.update(p, gradient, s), value] as const;
    },
    { donate: [0, 1] },
  );
  const state = optimizer.init(params);
  jit((x: Tensor) => x.add(1))(ones([3])).dispose();
  const start = now();
  const kernels = step.kernels(params, state, ids);
  return { samples: [now() - start], check: kernels.length };
}

const chain = (x: Tensor, times: number): Tensor => {
  let y = x;
  for (let i = 0; i < times; i++) y = y.sin().add(x);
  return y;
};

export const firstHourRows: Record<string, Row> = {
  "eager-op": ({ seconds }) => {
    const [x, y] = [ones([1000]).realize(), ones([1000]).realize()];
    const samples = timedInBatches(seconds, () => x.add(y).realize().dispose());
    return { samples, check: x.add(y).sum().itemSync() };
  },
  "new-shape": () => {
    ones([3]).mul(2).sum().itemSync();
    let check = 0;
    const samples = Array.from({ length: 30 }, (_, i) => {
      const x = ones([i + 1, 7]).realize();
      const start = now();
      check += x.mul(2).add(1).sum().itemSync();
      return now() - start;
    });
    return { samples, check };
  },
  "jit-call": ({ seconds }) => {
    const [x, y] = [ones([1000]).realize(), ones([1000]).realize()];
    const add = jit((a: Tensor, b: Tensor) => a.add(b));
    const samples = timedInBatches(seconds, () => add(x, y).dispose());
    return { samples, check: add(x, y).sum().itemSync() };
  },
  "loop-compute": async ({ seconds }) => {
    const x = linspace(0, 1, 1 << 20).realize();
    await chain(x, 20).data();
    const samples: number[] = [];
    let check = 0;
    for (const end = now() + 1e3 * seconds; samples.length < 3 || now() < end; ) {
      const { gap, result } = await longestGap(() => chain(x, 20).data());
      samples.push(gap);
      check = Number(result[1 << 19]);
    }
    return { samples, check };
  },
  "loop-compile": async () => {
    const samples: number[] = [];
    let check = 0;
    // Sizes that no earlier run compiled.
    const first = 20000 + (Date.now() % 50000);
    for (let i = 0; i < 5; i++) {
      const x = ones([first + 7 * i]).realize();
      const { gap, result } = await longestGap(() => chain(x, 3).mean().item());
      samples.push(gap);
      check = result;
    }
    return { samples, check };
  },
  "sine-gradient": () => {
    const slope = jit((x: Tensor) =>
      grad((v: Tensor) => {
        let y = v;
        for (let i = 0; i < 2000; i++) y = y.sin();
        return y.sum();
      })(x),
    );
    const x = linspace(0, 1, 1000 + (Date.now() % 5000)).realize();
    const start = now();
    const check = slope(x).sum().itemSync();
    return { samples: [now() - start], check };
  },
  "gpt2-compile": compileGpt2,
  step: ({ seconds, busy }) => {
    const step = gptStep();
    for (let i = 0; i < 10; i++) step();
    let check = 0;
    return beside(busy, () => ({
      samples: timed(seconds, () => {
        check = step();
      }),
      check,
    }));
  },
  meta: ({ seconds, busy }) => {
    const trainer = new MetaTrainer({ preset: "debug" });
    const iterate = (): void => {
      trainer.step();
      trainer.readMetrics();
    };
    for (let i = 0; i < 3; i++) iterate();
    return beside(busy, () => ({ samples: timed(seconds, iterate), check: trainer.iteration }));
  },
};
