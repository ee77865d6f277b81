// Regions of convolutions that are computed with channels last: values and gradients of image models are those of the graph as it was
// traced, and axes are permuted at the edges of a region only.
import assert from "node:assert/strict";
import { before, test } from "node:test";
import { functionOrder, type GraphFn, isOp, type Node, numel } from "../graph/index.js";
import * as weft from "../index.js";
import { convRoles, evaluate } from "../ops/index.js";
import { Dice } from "../test/dice.js";
import { trace } from "../test/traced.js";
import { simplify } from "../transform/index.js";
import { moveChannelsLast } from "./channels-last.js";

type Tensor = weft.Tensor;

before(() => weft.setDevice("reference"));

const draw = (shape: number[], seed: number): Tensor =>
  weft.randn(shape, { seed, dtype: "float64" }).mul(0.3).realize();

/** The graph of the value and the gradients of a loss, with channels first and last. */
function both(loss: (...x: Tensor[]) => Tensor, inputs: readonly Tensor[]) {
  const argument = inputs.map((_, i) => i);
  const step = weft.valueAndGrad(loss, { argument });
  const { fn: traced, args } = trace((...x) => {
    const [value, gradients] = step(...x) as unknown as [Tensor, Tensor[]];
    return [value, ...gradients];
  }, inputs);
  const fn = simplify(traced);
  return { fn, args, moved: moveChannelsLast(fn, () => true, 3) };
}

function assertSame({ fn, args, moved }: ReturnType<typeof both>, what: string): void {
  const [want, got] = [fn, moved].map((f) => evaluate(f, args));
  want.forEach((value, i) => {
    assert.deepEqual(got[i].shape, value.shape, `${what}: shape of result ${i}`);
    const [a, b] = [got[i].data, value.data].map((data) => Array.from(data as Float64Array));
    const scale = b.reduce((most, x) => Math.max(most, Math.abs(x)), 1e-6);
    b.forEach((x, k) => {
      assert.ok(Math.abs(a[k] - x) <= 1e-9 * scale, `${what}: result ${i}, element ${k}: ${a[k]}, expected ${x}`);
    });
  });
}

const convolutions = (fn: GraphFn): Node<"conv">[] => functionOrder(fn).filter((node) => isOp(node, "conv"));

/** Permutations of tensors of four axes or more that are larger than all weights. */
function permutations(fn: GraphFn): string[] {
  const weights = convolutions(fn).map((node) => numel(convRoles(node).w.shape));
  const most = Math.max(...weights);
  return functionOrder(fn)
    .filter((node) => isOp(node, "permute") && numel(node.shape) > most)
    .map(({ inputs, shape }) => `[${inputs[0].shape}] to [${shape}]`);
}

interface Model {
  inputs: number[][];
  loss: (...x: Tensor[]) => Tensor;
  /** Permutations of images that remain: at most so many. */
  edges: number;
}

const norm = (x: Tensor, gain: Tensor, bias: Tensor): Tensor => weft.batchNorm(x, { weight: gain, bias });

const models: Record<string, Model> = {
  "residual blocks with batch norm and pooling": {
    inputs: [[2, 3, 14, 14], [16, 3, 3, 3], [16, 16, 3, 3], [16, 16, 3, 3], [16], [16], [5, 16]],
    loss: (x, a, b, c, gain, bias, head) => {
      let h = weft.relu(norm(weft.conv2d(x, a, { stride: 2, padding: 1 }), gain, bias));
      h = weft.maxPool2d(h, { kernel: 3, stride: 2, padding: 1 });
      const inner = weft.relu(norm(weft.conv2d(h, b, { padding: 1 }), gain, bias));
      h = weft.relu(norm(weft.conv2d(inner, c, { padding: 1 }), gain, bias).add(h));
      return h.mean([2, 3]).matmul(head.transpose()).square().sum();
    },
    // The image, and its gradient.
    edges: 2,
  },
  "inverted residuals: depthwise, squeeze and excitation": {
    inputs: [
      [2, 16, 9, 9],
      [32, 16, 1, 1],
      [32, 1, 3, 3],
      [8, 32],
      [32, 8],
      [16, 32, 1, 1],
      [16, 16, 1, 1],
    ],
    loss: (x, expand, depth, squeeze, excite, project, last) => {
      const wide = weft.silu(norm(weft.conv2d(x, expand), weft.ones([32]), weft.zeros([32])));
      const deep = weft.silu(weft.conv2d(wide, depth, { groups: 32, stride: 2, padding: 1 }));
      const squeezed = weft.silu(deep.mean([2, 3]).matmul(squeeze.transpose()));
      const gates = weft.sigmoid(squeezed.matmul(excite.transpose())).reshape([2, 32, 1, 1]);
      return weft
        .conv2d(weft.conv2d(deep.mul(gates), project), last)
        .square()
        .mean();
    },
    edges: 2,
  },
  "a U-Net with group norm, attention, upsampling and concatenation": {
    inputs: [
      [2, 16, 8, 8],
      [16, 16, 3, 3],
      [32, 16, 3, 3],
      [96, 32, 1, 1],
      [16, 32, 3, 3],
      [16, 32, 3, 3],
      [32],
      [32],
      [2, 16],
    ],
    loss: (x, a, b, qkv, up, out, gain, bias, time) => {
      const h = weft.silu(weft.groupNorm(weft.conv2d(x, a, { padding: 1 }), 4)).add(time.reshape([2, 16, 1, 1]));
      const down = weft.conv2d(h, b, { stride: 2, padding: 1 });
      const normed = weft.groupNorm(down, 8, { weight: gain, bias });
      const [q, k, v] = weft.split(weft.conv2d(normed, qkv).reshape([2, 96, 16]).transpose(1, 2), 3, -1);
      const mixed = weft.softmax(q.matmul(k.transpose(1, 2)), -1).matmul(v);
      const middle = down.add(mixed.transpose(1, 2).reshape([2, 32, 4, 4]));
      const wide = weft.conv2d(weft.interpolate(middle, { scale: 2 }), up, { padding: 1 });
      return weft
        .conv2d(weft.concat([wide, h], 1), out, { padding: 1 })
        .square()
        .mean();
    },
    edges: 2,
  },
  "transposed convolutions and average pooling": {
    inputs: [[2, 16, 6, 6], [16, 16, 4, 4], [16, 16, 3, 3], [16, 16, 3, 3], [16]],
    loss: (x, a, b, c, bias) => {
      const h = weft.convTranspose2d(x, a, { stride: 2, padding: 1, bias }).tanh();
      const pooled = weft.avgPool2d(weft.conv2d(h, b, { padding: "same" }), { kernel: 3, stride: 2, padding: 1 });
      const around = weft.pad(
        pooled,
        [
          [0, 0],
          [0, 0],
          [1, 1],
          [2, 1],
        ],
        { mode: "reflect" },
      );
      return weft
        .conv2d(around, c, { bias, dilation: 2, padding: 1 })
        .flip([2])
        .index(":", ":", "1:", "::2")
        .square()
        .sum();
    },
    edges: 2,
  },
  signals: {
    inputs: [
      [3, 16, 20],
      [16, 16, 3],
      [16, 8, 3],
      [16, 16, 5],
    ],
    loss: (x, a, b, c) => {
      const h = weft.gelu(weft.conv1d(x, a, { padding: 2, dilation: 2 }).add(x));
      return weft
        .conv1d(weft.conv1d(h, b, { groups: 2 }), c, { stride: 2 })
        .square()
        .sum();
    },
    edges: 2,
  },
  "channels that are normalized by linear layers' norms": {
    inputs: [
      [2, 16, 6, 6],
      [16, 16, 3, 3],
      [16, 16, 3, 3],
      [16, 16, 3, 3],
      [16, 16],
    ],
    loss: (x, a, b, c, w) => {
      const h = weft.conv2d(x, a, { padding: 1 });
      const lines = weft
        .layerNorm(h.permute([0, 2, 3, 1]))
        .matmul(w)
        .permute([0, 3, 1, 2]);
      return weft
        .conv2d(weft.conv2d(h.add(lines), b), c)
        .square()
        .sum([1, 3])
        .max();
    },
    edges: 2,
  },
};

for (const [name, { inputs, loss, edges }] of Object.entries(models))
  test(name, () => {
    const graphs = both(
      loss,
      inputs.map((shape, i) => draw(shape, i + 1)),
    );
    assertSame(graphs, name);
    assert.ok(
      convolutions(graphs.moved).every((node) => node.attrs.channelsLast),
      "every convolution is moved",
    );
    const found = permutations(graphs.moved);
    assert.ok(found.length <= edges, `${found.length} permutations of images:\n${found.join("\n")}`);
  });

test("too few convolutions, few channels, groups, and convolutions that are not better stay as they are", () => {
  const grouped = both(
    (x, a, b) =>
      weft
        .conv2d(weft.conv2d(x, a, { groups: 8 }), b, { groups: 8 })
        .square()
        .sum(),
    [draw([2, 32, 8, 8], 1), draw([32, 4, 3, 3], 2), draw([32, 4, 3, 3], 3)],
  );
  assert.equal(grouped.moved, grouped.fn);
  const patches = both(
    (x, w, head) => weft.conv2d(x, w, { stride: 4 }).reshape([2, 16, 4]).transpose(1, 2).matmul(head).square().sum(),
    [draw([2, 3, 8, 8], 1), draw([16, 3, 4, 4], 2), draw([16, 4], 3)],
  );
  assert.equal(patches.moved, patches.fn);
  const narrow = both(
    (x, a, b) => weft.conv2d(weft.conv2d(x, a), b).square().sum(),
    [draw([2, 4, 8, 8], 1), draw([8, 4, 3, 3], 2), draw([4, 8, 3, 3], 3)],
  );
  assert.equal(narrow.moved, narrow.fn);
  const { fn } = both(
    models.signals.loss,
    models.signals.inputs.map((shape) => draw(shape, 1)),
  );
  assert.equal(
    moveChannelsLast(fn, () => false),
    fn,
  );
});

/** Ops between convolutions of random models, on [2, 16, n, n]. */
const between: ((x: Tensor, r: (n: number) => number) => Tensor)[] = [
  (x) => weft.relu(x),
  (x) => weft.groupNorm(x, 4),
  (x) => weft.batchNorm(x),
  (x) => x.sub(x.mean([2], { keepDims: true })).mul(x.max([1], { keepDims: true })),
  (x) => x.mul(weft.sigmoid(x.mean([2, 3])).reshape([2, 16, 1, 1])),
  (x) => x.add(x.sum([0, 2, 3]).reshape([1, 16, 1, 1]).mul(0.01)),
  (x) => weft.concat([x.index(":", "8:"), x.index(":", ":8")], 1),
  (x) => weft.flip(x, [1, 3]),
  (x) => x.transpose(2, 3),
  (x) => x.transpose(0, 1).mul(0.5).transpose(0, 1),
  (x) => x.reshape([2, 4, 4, x.shape[2], x.shape[3]]).transpose(1, 2).reshape(x.shape),
  (x) => x.reshape([2, 16, -1]).softmax(-1).reshape(x.shape),
  (x) =>
    x
      .reshape([2, 8, 2, x.shape[2], x.shape[3]])
      .sum(2)
      .reshape([2, 8, 1, x.shape[2], x.shape[3]])
      .expand([2, 8, 2, x.shape[2], x.shape[3]])
      .reshape(x.shape),
  (x) => weft.maxPool2d(x, { kernel: 3, stride: 1, padding: 1 }),
  (x) => weft.where(x.greater(0), x, weft.cumsum(x, 1).mul(0.1)),
  (x) => x.add(weft.arange(0, 16).cast("float64").mul(0.1).reshape([1, 16, 1, 1])),
  (x, r) => {
    const places = [0, 3, 1, 2].map((i) => (i + r(16)) % 16);
    return x
      .index(":", weft.tensor(places, { dtype: "int32" }))
      .sum([1], { keepDims: true })
      .add(x);
  },
];

test("random models", () => {
  for (let seed = 0; seed < 60; seed++) {
    const dice = new Dice(seed + 1);
    const count = 3 + dice.below(3);
    const weights = Array.from({ length: count }, (_, i) => draw([16, 16, 3, 3], 10 * seed + i));
    const steps = weights.map(() =>
      Array.from({ length: dice.below(4) }, () => [dice.below(between.length), dice.below(100)]),
    );
    const loss = (x: Tensor, ...ws: Tensor[]): Tensor => {
      let h = x;
      ws.forEach((w, i) => {
        for (const [k, salt] of steps[i]) h = between[k](h, (n) => salt % n);
        h = weft.conv2d(h, w, { padding: 1 });
      });
      return h.square().mean();
    };
    assertSame(both(loss, [draw([2, 16, 4, 4], seed), ...weights]), `seed ${seed}: ${JSON.stringify(steps)}`);
  }
});
