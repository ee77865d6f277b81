// The CUDA device on the emulated driver against the reference device: generated kernels, library kernels and launches,
// where there is no GPU.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { isOp, type Node } from "../../../graph/index.js";
import * as weft from "../../../index.js";
import * as nn from "../../../nn/index.js";
import * as optim from "../../../optim/index.js";
import { FourierTransforms } from "../fourier.js";
import { manyUpdates, wideSums } from "../scatter.js";
import { agree, data, device, prepareEmulator, reference, skip } from "./testkit.js";

before(prepareEmulator);
after(() => weft.setDevice(reference));

test("rows keep what later passes need, in warps and in blocks", { skip }, () => {
  for (const length of [3, 32, 70, 130, 1000, 2000])
    agree(() => {
      const x = data([5, length], length, 4);
      return [weft.layerNorm(x), weft.softmax(x), weft.grad((p: weft.Tensor) => weft.layerNorm(p).gelu().sum())(x)];
    });
});

test("plain loops in vectors, columns in two stages, complex rows", { skip }, () => {
  agree(() => [
    data([256, 300], 1)
      .mul(2)
      .exp()
      .add(data([300], 2)),
    data([4096, 24], 3).mean(0),
    weft
      .complex(data([5, 40], 4), data([5, 40], 5))
      .abs()
      .sum(1),
    data([9, 70], 6).argmax(1),
  ]);
});

test("vectors of eight: halves, masks of dropout, looked-up rows, rows and columns of half types", { skip }, () => {
  const half = (shape: number[], seed: number): weft.Tensor => data(shape, seed).cast("bfloat16").realize();
  const ids = Int32Array.from({ length: 2048 }, (_, i) => (i * 7919) % 50);
  agree(() => {
    const x = half([2048, 256], 1);
    const hidden = x.add(data([256], 2).cast("bfloat16")).relu();
    const dropped = nn.dropout(hidden, { rate: 0.3, key: weft.key(5) });
    return [
      dropped.cast("float32"),
      data([50, 256], 3)
        .take(weft.tensor(ids, { shape: [2048] }), 0)
        .add(x.cast("float32")),
    ];
  }, 1e-2);
  // Offsets that are no multiple of a vector: read one by one.
  agree(() => [
    half([257, 256], 4).index("1:", ":").mul(2).cast("float32"),
    data([256, 259], 5).index(":", "3:").neg(),
  ]);
  agree(() => {
    const x = half([96, 256], 6);
    const loss = ([p, w, b]: weft.Tensor[]): weft.Tensor =>
      weft
        .layerNorm(p, { weight: w, bias: b })
        .mul(half([96, 256], 7))
        .cast("float32")
        .sum();
    const [g, gw, gb] = weft.grad(loss)([x, data([256], 8), data([256], 9)]);
    return [g.cast("float32"), gw, gb];
  }, 2e-2);
  agree(() => [data([200, 9, 256], 10).sum(1), half([200, 9, 128], 11).cast("float32").max(1)], 1e-4);
});

test("sums over rows are made by the loop that has the rows", { skip }, () => {
  const gradient = weft.jit((params: weft.Tensor[]) =>
    weft.grad(([x, weight, bias]: weft.Tensor[]) => {
      const y = weft.layerNorm(x, { weight, bias }).cast("float32");
      return y.mul(y).sum();
    })(params),
  );
  const params = (): weft.Tensor[] => [data([8192, 64], 1).cast("bfloat16"), data([64], 2), data([64], 3)];
  agree(() => gradient(params()).map((g) => g.cast("float32")), 0.02);
  weft.setDevice(device());
  const names = gradient.kernels(params());
  assert.ok(
    names.some((name) => name.includes("_colsum_")),
    names.join(", "),
  );
  assert.ok(!names.some((name) => name.includes("col_sum_512x16x64")), names.join(", "));
  // A loop that was element-wise goes by rows for the sum's sake.
  const scaled = weft.jit((x: weft.Tensor, w: weft.Tensor) => [x.mul(w), x.mul(w).sum(0)]);
  const given = (): [weft.Tensor, weft.Tensor] => [data([8192, 96], 4), data([96], 5)];
  agree(() => scaled(...given()), 1e-3);
  weft.setDevice(device());
  assert.deepEqual(scaled.kernels(...given()), ["row_colsum_mul_8192x96", "col_sum_1x512x96"]);
});

function embeddingGradient(rows: number, width: number, ids: Int32Array): weft.Tensor {
  const at = weft.tensor(ids, { shape: [ids.length] });
  const weights = data([ids.length, width], 7);
  return weft.grad((table: weft.Tensor) => table.take(at, 0).mul(weights).sum())(data([rows, width], 8));
}

test("scattered additions: rows with few, many and very many updates", { skip }, () => {
  const light = agree(() =>
    embeddingGradient(
      50,
      20,
      Int32Array.from({ length: 200 }, (_, i) => (i * 7919) % 50),
    ),
  );
  assert.ok(light.includes("w_scatter_light_f32") && light.includes("w_scatter_list"));
  agree(() =>
    embeddingGradient(
      5,
      40,
      Int32Array.from({ length: 300 }, (_, i) => (i % 3 ? 2 : i % 5)),
    ),
  );
  // 5142 updates of one row: more than a block sorts in shared memory.
  agree(() =>
    embeddingGradient(
      3,
      3,
      Int32Array.from({ length: 6000 }, (_, i) => (i % 7 ? 1 : 0)),
    ),
  );
});

test("scattered additions of many updates are sorted first, in batches too", { skip }, () => {
  const before = { ...manyUpdates };
  Object.assign(manyUpdates, { total: 100, perRow: 2 });
  try {
    const ids = (n: number): Int32Array =>
      Int32Array.from({ length: 3 * n }, (_, i) => (i % 5 ? (i * 7919) % 9 : 4) - 1);
    for (const width of [1, 3, 40]) {
      const launched = agree(() => {
        weft.session().forgetCompiled();
        const at = weft.tensor(ids(130), { shape: [3, 130] });
        const add = (x: weft.Tensor, i: weft.Tensor, u: weft.Tensor) => weft.indexAdd(x, i, u, 0);
        return weft.vmap(add)(data([3, 8, width], 1), at, data([3, 130, width], 2));
      });
      assert.ok(launched.includes("w_scatter_ends") && launched.includes("w_scatter_heavy_f32"), `${launched}`);
    }
  } finally {
    Object.assign(manyUpdates, before);
    weft.session().forgetCompiled();
  }
});

test("many scattered additions of narrow rows are sums in float64", { skip }, () => {
  const { least } = wideSums;
  wideSums.least = 1;
  try {
    for (const [rows, tail] of [
      [40, []],
      [7, [3]],
    ] as const)
      for (const dtype of ["float32", "bfloat16"] as const) {
        const launched = agree(() => {
          const indices = weft.tensor(
            Array.from({ length: 200 }, (_, i) => ((i * 37) % (rows + 2)) - 1),
            { dtype: "int32" },
          );
          const base = data([rows, ...tail], 1).cast(dtype);
          return weft.indexAdd(base, indices, data([200, ...tail], 2).cast(dtype)).cast("float32");
        }, 1e-2);
        assert.ok(
          launched.some((name) => name.startsWith("w_scatter_rounded_")),
          `${launched}`,
        );
      }
  } finally {
    wideSums.least = least;
  }
});

test("scattered additions of integers are atomic", { skip }, () => {
  const add = (classes: number, dtype: "int32" | "int64", updates: weft.Tensor): weft.Tensor => {
    const at = weft.tensor(
      Int32Array.from({ length: 3000 }, (_, i) => (i * 7919) % classes),
      { shape: [3000] },
    );
    return weft.indexAdd(weft.arange(0, classes, 1, { dtype }), at, updates.cast(dtype), 0).cast("float64");
  };
  // Made inside: they belong to the device that is compared.
  const numbers = (): weft.Tensor =>
    weft.tensor(
      Int32Array.from({ length: 3000 }, (_, i) => (i % 11) - 5),
      { shape: [3000] },
    );
  assert.ok(agree(() => add(100, "int64", weft.ones([3000]))).includes("w_scatter_counts_i64"));
  assert.ok(agree(() => add(100, "int64", numbers())).includes("w_scatter_bins_i64"));
  assert.ok(agree(() => add(20000, "int32", numbers())).includes("w_scatter_whole_i32"));
});

test("a row adds its updates in the order of the indices", { skip }, () => {
  // 20 updates of each row, large and small ones mixed: another order rounds otherwise.
  const ids = Int32Array.from({ length: 40 }, (_, i) => i % 2);
  const size = (i: number): number => Math.fround(i % 3 === 0 ? 1e7 / (i + 1) : 0.3 * i);
  const expected = new Float32Array(2);
  ids.forEach((id, i) => {
    expected[id] += size(i);
  });
  weft.setDevice(device());
  const at = weft.tensor(ids, { shape: [40] });
  const weights = weft.tensor(
    Float32Array.from({ length: 40 }, (_, i) => size(i)),
    { shape: [40, 1] },
  );
  const got = weft.grad((table: weft.Tensor) => table.take(at, 0).mul(weights).sum())(data([2, 1], 10));
  assert.deepEqual([...(got.dataSync() as Float32Array)], [...expected]);
});

test("argsort is stable in both directions, in one block and in passes over memory", { skip }, () => {
  for (const n of [1, 2, 7, 100, 2049, 8193]) {
    const log = agree(() => {
      const x = data([2, n], n, 40).round();
      return [weft.argsort(x), weft.argsort(x, -1, { descending: true })];
    }, 0);
    const passes = log.filter((name) => name === "w_sort_move_f32").length;
    assert.equal(passes, n <= 8192 ? 0 : 2 * 4);
  }
  agree(() => {
    const x = weft.tensor([3, Number.NaN, 1, Number.NaN, 2]);
    return [weft.argsort(x), weft.argsort(x, -1, { descending: true })];
  }, 0);
});

test("a training step updates all parameters in one launch", { skip }, () => {
  const size = { vocabulary: 50, width: 16, heads: 2, layers: 2, feedForward: 32, classes: 4 };
  const adam: string[] = [];
  const log = agree(() => {
    // A large epsilon: the gradient of key biases is zero but for rounding, which Adam would blow up.
    const optimizer = optim.adam({ learningRate: 1e-2, epsilon: 1e-3 });
    const step = weft.jit(
      (params: nn.TextClassifier, state: optim.AdamState, x: weft.Tensor, y: weft.Tensor, key: weft.Key) => {
        const loss = (p: nn.TextClassifier): weft.Tensor =>
          weft.crossEntropy(nn.textClassifier.apply(p, x, { heads: 2, dropout: 0.1, key }), y);
        const [value, grads] = weft.valueAndGrad(loss)(params);
        const [updated, next] = optimizer.update(params, grads, state);
        return [updated as nn.TextClassifier, next, value] as const;
      },
      { donate: [0, 1] },
    );
    let params = nn.textClassifier.init(size, weft.key(0));
    let state = optimizer.init(params);
    const losses: weft.Tensor[] = [];
    for (let i = 0; i < 3; i++) {
      const x = weft.tensor(
        Int32Array.from({ length: 27 }, (_, k) => (k * 17 + i) % 50),
        { shape: [3, 9] },
      );
      const y = weft.tensor(Int32Array.from([0, 3, 1]), { shape: [3] });
      let loss: weft.Tensor;
      [params, state, loss] = step(params, state, x, y, weft.key(i));
      losses.push(loss);
      if (i === 2) {
        const names = step.kernels(params, state, x, y, weft.key(i));
        const updates = names.filter((name) => name.includes("add_sqrt"));
        if (names.some((name) => name.startsWith("each_"))) adam.push(...updates);
      }
    }
    return [...losses, ...weft.treeLeaves(params)];
  }, 3e-4);
  assert.ok(log.length > 0);
  assert.deepEqual(adam, ["each_28_map_mul_add_sqrt_div_4"], "28 parameters in one launch");
});

test("plans of Fourier transforms are kept while an executable uses them, and 64 of the others", { skip }, () => {
  weft.setDevice(device());
  const transforms = new FourierTransforms(device().context);
  const nodeOf = (n: number): Node<"fft"> => {
    const find = (node: Node): Node<"fft"> => (isOp(node, "fft") ? node : find(node.inputs[0]));
    return find(weft.fft(weft.complex(weft.zeros([n]), weft.zeros([n]))).node);
  };
  const ask = (n: number) => transforms.hold(() => transforms.prepare(nodeOf(n)));
  const held = Array.from({ length: 80 }, (_, i) => ask(i + 2));
  assert.equal(transforms.size, 80);
  for (const { release } of held.slice(0, 10)) release();
  assert.equal(transforms.size, 70);
  for (const { release } of held.slice(10)) release();
  assert.equal(transforms.size, 64);
});
