// Gradients of weights that every step of a loop multiplies with, and of biases: one product or reduction after the loop, instead of a
// sum that every step reads and writes. Against the same steps written one after the other.
import assert from "node:assert/strict";
import { test } from "node:test";
import { isOp, type Node, topological } from "../graph/index.js";
import * as weft from "../index.js";

const [steps, width] = [3, 192];
type Tensors = weft.Tensor[];
type Cell = (h: weft.Tensor, x: weft.Tensor, weights: Tensors) => weft.Tensor;

interface Expected {
  cell: Cell;
  /** Gradients of matrices that are products of stacks, and of vectors that are sums of stacks. */
  stacked: number;
  biases?: number;
  /** Products in a step of both loops: those of the step, and one with the cotangent of each whose left operand is a state. */
  products?: number;
  batch?: number;
}

const gated: Cell = (h, x, [w, , b]) => {
  const all = h.matmul(w).add(b).add(x);
  const gate = weft.sigmoid(all.index(":", ":96"));
  return weft.concat([gate.mul(h.index(":", "96:")), gate.add(all.index(":", "96:").tanh())], 1);
};

const cells: Record<string, Expected> = {
  "a state times weights": { cell: (h, x, [w]) => h.matmul(w).add(x).tanh(), stacked: 1, products: 2 },
  "transposed weights": { cell: (h, x, [w]) => h.matmul(w.transpose()).add(x).tanh(), stacked: 1, products: 2 },
  "inputs and a state": { cell: (h, x, [w, u]) => h.matmul(w).add(x.matmul(u)).tanh(), stacked: 2, products: 4 },
  "what a step computed": { cell: (h, x, [w, u]) => h.add(x).sin().matmul(w).mul(h).matmul(u).tanh(), stacked: 1 },
  "weights that are used twice stay sums": {
    cell: (h, x, [w]) => h.matmul(w).sin().matmul(w).add(x).tanh(),
    stacked: 0,
  },
  "a bias": { cell: (h, x, [w, , b]) => h.matmul(w).add(b).add(x).tanh(), stacked: 1, biases: 1, products: 2 },
  "gates of one product": { cell: gated, stacked: 1, biases: 1, products: 2 },
  "a product of which the gradient reads only the result": {
    cell: (h, x, [w, , b]) => h.matmul(w).add(b).mul(x),
    stacked: 1,
    biases: 1,
    products: 2,
  },
  "many rows that are stacked anyway": {
    cell: (h, x, [w, , b]) => h.matmul(w).add(b).add(x).tanh(),
    stacked: 1,
    biases: 1,
    products: 2,
    batch: 256,
  },
  "many rows that would be stacked for the product": {
    cell: (h, x, [w]) => h.sin().matmul(w).add(x).tanh(),
    stacked: 0,
    products: 3,
    batch: 256,
  },
  "products beyond the memory of the states": {
    cell: (h, x, [w, u]) =>
      h
        .matmul(w)
        .sin()
        .add(h.matmul(u).sin())
        .add(h.matmul(w.mul(0.5)).sin())
        .add(x),
    stacked: 1,
    products: 7,
  },
  "a bias of what a step computed": {
    cell: (h, x, [w, , b]) => h.matmul(w).add(x).add(h.sin().mul(b)).tanh(),
    stacked: 1,
    biases: 1,
  },
  "a bias beside weights that are used twice": {
    cell: (h, x, [w, , b]) =>
      h
        .matmul(w)
        .sin()
        .matmul(w)
        .add(x)
        .add(b.reshape([1, width]))
        .tanh(),
    stacked: 0,
    biases: 1,
  },
  "a bias that is used twice stays a sum": {
    cell: (h, x, [w, , b]) => h.matmul(w).add(b).add(x).tanh().mul(b),
    stacked: 1,
    biases: 0,
  },
  "a bias of a loop without products stays a sum": { cell: (h, x, [, , b]) => h.add(b).mul(x), stacked: 0, biases: 0 },
};

const draw = (shape: number[], seed: number): weft.Tensor => weft.randn(shape, { seed }).mul(0.07).realize();

for (const [name, { cell, stacked, biases, products, batch = 32 }] of Object.entries(cells))
  for (const reverse of [false, true])
    test(`${name}${reverse ? ", in reverse" : ""}`, () => {
      weft.setDevice("reference");
      const [w, u, bias] = [draw([width, width], 1), draw([width, width], 2), draw([width], 5)];
      const [h0, xs] = [draw([batch, width], 3), draw([steps, batch, width], 4)];
      const looped = (...[a, b, c, h, x]: Tensors): weft.Tensor => {
        const step = (state: weft.Tensor, each: weft.Tensor): [weft.Tensor, weft.Tensor] => {
          const next = cell(state, each, [a, b, c]);
          return [next, next];
        };
        const [last, all] = weft.scan(step, h, x, { reverse }) as [weft.Tensor, weft.Tensor];
        return last.sum().add(all.square().sum());
      };
      const unrolled = (...[a, b, c, h, x]: Tensors): weft.Tensor => {
        let [state, sum] = [h, weft.zeros([])];
        for (let i = 0; i < steps; i++) {
          state = cell(state, x.index(reverse ? steps - 1 - i : i), [a, b, c]);
          sum = sum.add(state.square().sum());
        }
        return state.sum().add(sum);
      };
      const gradient = (f: (...args: Tensors) => weft.Tensor): Tensors =>
        weft.grad(f, { argument: [0, 1, 2, 3, 4] })(w, u, bias, h0, xs) as unknown as Tensors;
      const [got, want] = [gradient(looped), gradient(unrolled)];
      const loops = topological(got.map((t) => t.node as Node)).filter((node) => isOp(node, "scan"));
      const sums = loops.flatMap((node) => {
        const { consts, carries } = (node as Node<"scan">).attrs;
        return node.inputs.slice(consts, consts + carries).filter((x) => x.shape[0] === width);
      });
      const carried = (rank: number): number => sums.filter(({ shape }) => shape.length === rank).length;
      const used = ["(w", "(u"].filter((name) => cell.toString().includes(name)).length;
      assert.equal(carried(2), used - stacked, "sums of matrices that the loop carries");
      assert.equal(carried(1), biases === undefined ? 0 : 1 - biases, "sums of vectors that the loop carries");
      const bodies = loops.flatMap((node) => topological((node as Node<"scan">).attrs.body.outputs));
      const count = new Set(bodies.filter((node) => isOp(node, "matmul"))).size;
      if (products !== undefined) assert.equal(count, products, "products of the loops");
      got.forEach((t, i) => {
        const [a, b] = [t, want[i]].map((x) => x.dataSync() as Float32Array);
        const scale = b.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
        a.forEach((value, k) => {
          assert.ok(Math.abs(value - b[k]) <= 1e-5 * scale, `gradient ${i}, element ${k}: ${value}, ${b[k]}`);
        });
      });
    });
