// A model for tests of user-defined training: two layers, dropout, and a normalization over the whole batch, which is
// right only if every rank sees the statistics of all rows.
import * as weft from "@weft/core";
import { classCounts } from "@weft/core/nn";

export function init(key, { width = 12 }) {
  const [a, b] = [weft.splitKey(key).index(0), weft.splitKey(key).index(1)];
  return {
    first: { weight: weft.randn([5, width], { key: a }).mul(0.4), bias: weft.zeros([width]) },
    second: { weight: weft.randn([width, 1], { key: b }).mul(0.3), bias: weft.zeros([1]) },
  };
}

export function loss(params, { x, y }, { key, train }) {
  let h = weft.tanh(x.matmul(params.first.weight).add(params.first.bias));
  const mean = h.mean(0);
  h = h.sub(mean).div(h.sub(mean).square().mean(0).add(0.1).sqrt());
  if (train) h = h.mul(weft.dropoutMask(h.shape, 0.2, key));
  return h.matmul(params.second.weight).add(params.second.bias).sub(y).square().mean();
}

// A classifier that looks at one column, whatever the parameters are.
export const classes = () => ["down", "up"];
export const correct = (_, { x, y }) => classCounts(x.index(":", 1).less(0), y.index(":", 0).greater(0), 2);

export function data({ rows = 43 }) {
  const x = weft.randn([rows, 5], { seed: 3 });
  const y = x.index(":", "0:1").mul(2).sub(x.index(":", "1:2"));
  const part = (at) => ({ x: x.index(at), y: y.index(at) });
  return { train: { x, y }, validation: part("0:7"), test: part("3:22") };
}
