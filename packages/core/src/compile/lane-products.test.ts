// Which loops leave the products of their steps to the library: those whose lanes share one large matrix. Values are those of plain loops.
import assert from "node:assert/strict";
import { test } from "node:test";
import * as weft from "../index.js";

const skip = weft.CpuDevice.available() ? false : "no C compiler";
type Tensor = weft.Tensor;
const [steps, batch] = [5, 20];

const numberAt = (i: number): number => (((i * 7919) % 23) - 11) / 32;
const line = (count: number, from = 0): number[] => Array.from({ length: count }, (_, i) => numberAt(i + from));

const recurrence = (x: Tensor, w: Tensor): Tensor =>
  weft.scan(
    (h: Tensor, part: Tensor): [Tensor, null] => [weft.tanh(part.add(h.matmul(w))), null],
    weft.zeros([x.shape[1], x.shape[2]]),
    x,
  )[0];

/** The last state, by loops over numbers. */
function expected(x: readonly number[], w: readonly number[], width: number): number[] {
  let h = new Array<number>(batch * width).fill(0);
  for (let t = 0; t < steps; t++)
    h = h.map((_, at) => {
      const [row, column] = [Math.floor(at / width), at % width];
      let sum = x[t * batch * width + at];
      for (let k = 0; k < width; k++) sum += h[row * width + k] * w[k * width + column];
      return Math.tanh(sum);
    });
  return h;
}

for (const [width, form] of [
  [5, /lanes_20x5/],
  [16, /lanes_20x5/],
  [17, /scan_5x/],
  [37, /scan_5x/],
] as const)
  test(`a recurrence of width ${width} by one matrix of all lanes`, { skip }, () => {
    weft.setDevice("cpu");
    const [xs, ws] = [line(steps * batch * width), line(width * width, 5)];
    const x = weft.tensor(xs, { shape: [steps, batch, width] });
    const w = weft.tensor(ws, { shape: [width, width] });
    const f = weft.jit(recurrence);
    assert.match(f.kernels(x, w).join(" "), form);
    const got = [...f(x, w).dataSync()].map(Number);
    expected(xs, ws, width).forEach((v, i) => {
      assert.ok(Math.abs(got[i] - v) < 1e-5, `number ${i} is ${v}, got ${got[i]}`);
    });
  });

test("matrices that are known, or that every lane has for itself, stay in lanes", { skip }, () => {
  weft.setDevice("cpu");
  const width = 20;
  const x = weft.tensor(line(steps * batch * width), { shape: [steps, batch, width] });
  const known = weft.eye(width).mul(0.5).realize();
  assert.match(
    weft
      .jit((y: Tensor) => recurrence(y, known))
      .kernels(x)
      .join(" "),
    /lanes_20x5/,
  );
  const own = weft.tensor(line(batch * width * width), { shape: [batch, width, width] });
  const each = weft.jit((y: Tensor, m: Tensor) =>
    weft.vmap((part: Tensor, w: Tensor) => recurrence(part.unsqueeze(1), w).sum())(y.permute([1, 0, 2]), m),
  );
  assert.match(each.kernels(x, own).join(" "), /lanes_20x5/);
});
