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

/** The derivative of the sum of the last state by the matrix, by loops over numbers. */
function expectedGradient(x: readonly number[], w: readonly number[], rows: number, width: number): number[] {
  const states = [new Array<number>(rows * width).fill(0)];
  for (let t = 0; t < steps; t++)
    states.push(
      states[t].map((_, at) => {
        const [row, column] = [Math.floor(at / width), at % width];
        let sum = x[t * rows * width + at];
        for (let k = 0; k < width; k++) sum += states[t][row * width + k] * w[k * width + column];
        return Math.tanh(sum);
      }),
    );
  const made = new Array<number>(width * width).fill(0);
  let from = new Array<number>(rows * width).fill(1);
  for (let t = steps - 1; t >= 0; t--) {
    const inner = from.map((g, at) => g * (1 - states[t + 1][at] ** 2));
    from = from.map(() => 0);
    for (let row = 0; row < rows; row++)
      for (let k = 0; k < width; k++)
        for (let column = 0; column < width; column++) {
          made[k * width + column] += states[t][row * width + k] * inner[row * width + column];
          from[row * width + k] += inner[row * width + column] * w[k * width + column];
        }
  }
  return made;
}

// Neither one lane with all rows nor one lane for each row of the matrix's gradient pays: both would unroll the whole product.
for (const rows of [1, 3])
  test(`the gradient of a large matrix that ${rows} rows share`, { skip }, () => {
    weft.setDevice("cpu");
    const width = 20;
    const [xs, ws] = [line(steps * rows * width), line(width * width, 5)];
    const x = weft.tensor(xs, { shape: [steps, rows, width] });
    const w = weft.tensor(ws, { shape: [width, width] });
    const f = weft.jit(weft.grad((m: Tensor, y: Tensor) => recurrence(y, m).sum()));
    const kernels = f.kernels(w, x).join(" ");
    assert.match(kernels, /scan_5x/);
    assert.doesNotMatch(kernels, /lanes_/);
    const got = [...f(w, x).dataSync()].map(Number);
    expectedGradient(xs, ws, rows, width).forEach((v, i) => {
      assert.ok(Math.abs(got[i] - v) < 1e-5 * (1 + Math.abs(v)), `number ${i} is ${v}, got ${got[i]}`);
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
