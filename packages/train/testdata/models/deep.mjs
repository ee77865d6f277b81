// A deep model for tests of placements under memory limits: layers of equal width, so that parameters, optimizer state and
// activations all matter.
import * as weft from "@weft/core";

export function init(key, { layers = 6, width = 64 }) {
  const keys = weft.splitKey(key, layers + 1);
  const weight = (i, rows, columns) => weft.randn([rows, columns], { key: keys.index(i) }).mul(rows ** -0.5);
  return {
    layers: Array.from({ length: layers }, (_, i) => ({ weight: weight(i, width, width), bias: weft.zeros([width]) })),
    head: weight(layers, width, 1),
  };
}

export function loss(params, { x, y }) {
  let h = x;
  for (const { weight, bias } of params.layers) h = h.add(weft.gelu(h.matmul(weight).add(bias)));
  return h.matmul(params.head).sub(y).square().mean();
}

export function data({ rows = 96, width = 64 }) {
  const x = weft.randn([rows, width], { seed: 5 });
  return { x, y: x.index(":", "0:3").sum(1, { keepDims: true }) };
}
