// A small residual network with batch norm, for tests of models with a state: two blocks over images of 6 x 6.
import * as weft from "@weft/core";
import * as nn from "@weft/core/nn";

const norms = ["stem", "first", "second"];

export function init(key, { width = 4 }) {
  const keys = weft.splitKey(key, 4);
  const kernel = (i, inputs) => weft.randn([width, inputs, 3, 3], { key: keys.index(i) }).mul((9 * inputs) ** -0.5);
  return {
    ...Object.fromEntries(
      norms.map((name, i) => [
        name,
        { weight: kernel(i, i === 0 ? 1 : width), norm: nn.batchNorm.init({ channels: width }) },
      ]),
    ),
    head: weft.randn([width, 3], { key: keys.index(3) }).mul(0.5),
  };
}

export const state = ({ width = 4 }) =>
  Object.fromEntries(norms.map((name) => [name, nn.batchNorm.state({ channels: width })]));

function logits(params, x, before, training) {
  const after = {};
  const convolve = (name, h) => {
    const { weight, norm } = params[name];
    const [y, next] = nn.batchNorm.apply(norm, weft.conv2d(h, weight, { padding: 1 }), {
      state: before[name],
      training,
    });
    after[name] = next;
    return y;
  };
  const h = weft.relu(convolve("stem", x));
  const sum = h.add(convolve("second", weft.relu(convolve("first", h))));
  return { scores: weft.relu(sum).mean([2, 3]).matmul(params.head), after };
}

export function loss(params, { x, y }, { train, state: before }) {
  const { scores, after } = logits(params, x, before, train);
  return { loss: weft.crossEntropy(scores, y), state: after };
}

export const correct = (params, { x, y }, { state: before }) =>
  logits(params, x, before, false).scores.argmax(-1).equal(y).cast("float32").sum();

export const classes = () => ["a", "b", "c"];

export function data({ rows = 21 }) {
  const x = weft.randn([rows, 1, 6, 6], { seed: 3 }).mul(2).add(1);
  const y = x.index(":", 0, 0, 0).add(3).maximum(0).minimum(5).div(2).floor().cast("int32");
  return { train: { x, y }, validation: { x: x.index("0:8"), y: y.index("0:8") } };
}
