// Gradients of recurrent layers on the emulated GPU against the reference device: products that the forward loop stores, results of
// steps that kernels copy, and sums over all steps after the loop.
import { before, test } from "node:test";
import * as weft from "../../../index.js";
import * as nn from "../../../nn/index.js";
import { agree, data, prepareEmulator, skip } from "./testkit.js";

before(prepareEmulator);

const [batch, length, width] = [64, 3, 128];
const layers = { lstm: nn.lstm, gru: nn.gru };

for (const [name, layer] of Object.entries(layers))
  test(`gradient of ${name}`, { skip }, () => {
    agree(() => {
      const params = layer.init({ in: 16, out: width }, weft.key(0));
      const loss = (p: typeof params, x: weft.Tensor): weft.Tensor => layer.apply(p, x)[0].square().mean();
      const gradients = weft.grad(loss, { argument: [0, 1] });
      const [p, x] = gradients(params, data([batch, length, 16], 1)) as unknown as [typeof params, weft.Tensor];
      return [...Object.values(p as unknown as Record<string, weft.Tensor>), x].map((g) => g.mul(1e3));
    }, 1e-3);
  });

test("results of a step that are equal or arguments", { skip }, () => {
  agree(() => {
    const w = data([width, width], 3).mul(0.1);
    const step = ({ h, c }: { h: weft.Tensor; c: weft.Tensor }, x: weft.Tensor): [object, weft.Tensor[]] => {
      const next = h.matmul(w).add(x).tanh();
      return [{ h: next, c }, [next, next, h, c, x, next.mul(c)]];
    };
    const start = { h: data([batch, width], 4), c: data([batch, width], 5) };
    const [last, ys] = weft.scan(step as never, start as never, data([length, batch, width], 6)) as unknown as [
      { h: weft.Tensor; c: weft.Tensor },
      weft.Tensor[],
    ];
    return [last.h, last.c, ...ys];
  }, 1e-3);
});
