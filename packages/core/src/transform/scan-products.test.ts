// Gradients of weights that every step of a loop multiplies with: one product after the loop, instead of a sum that every step reads
// and writes. Against the same steps written one after the other.
import assert from "node:assert/strict";
import { test } from "node:test";
import { isOp, type Node, topological } from "../graph/index.js";
import * as weft from "../index.js";

const [steps, batch, width] = [3, 32, 192];
type Tensors = weft.Tensor[];
type Cell = (h: weft.Tensor, x: weft.Tensor, weights: Tensors) => weft.Tensor;

const cells: Record<string, { cell: Cell; stacked: number }> = {
  "a state times weights": { cell: (h, x, [w]) => h.matmul(w).add(x).tanh(), stacked: 1 },
  "transposed weights": { cell: (h, x, [w]) => h.matmul(w.transpose()).add(x).tanh(), stacked: 1 },
  "inputs and a state": { cell: (h, x, [w, u]) => h.matmul(w).add(x.matmul(u)).tanh(), stacked: 2 },
  "what a step computed": { cell: (h, x, [w, u]) => h.add(x).sin().matmul(w).mul(h).matmul(u).tanh(), stacked: 1 },
  "weights that are used twice stay sums": {
    cell: (h, x, [w]) => h.matmul(w).sin().matmul(w).add(x).tanh(),
    stacked: 0,
  },
};

const draw = (shape: number[], seed: number): weft.Tensor => weft.randn(shape, { seed }).mul(0.07).realize();

for (const [name, { cell, stacked }] of Object.entries(cells))
  for (const reverse of [false, true])
    test(`${name}${reverse ? ", in reverse" : ""}`, () => {
      weft.setDevice("reference");
      const [w, u] = [draw([width, width], 1), draw([width, width], 2)];
      const [h0, xs] = [draw([batch, width], 3), draw([steps, batch, width], 4)];
      const looped = (...[a, b, h, x]: Tensors): weft.Tensor => {
        const step = (state: weft.Tensor, each: weft.Tensor): [weft.Tensor, weft.Tensor] => {
          const next = cell(state, each, [a, b]);
          return [next, next];
        };
        const [last, all] = weft.scan(step, h, x, { reverse }) as [weft.Tensor, weft.Tensor];
        return last.sum().add(all.square().sum());
      };
      const unrolled = (...[a, b, h, x]: Tensors): weft.Tensor => {
        let [state, sum] = [h, weft.zeros([])];
        for (let i = 0; i < steps; i++) {
          state = cell(state, x.index(reverse ? steps - 1 - i : i), [a, b]);
          sum = sum.add(state.square().sum());
        }
        return state.sum().add(sum);
      };
      const gradient = (f: (...args: Tensors) => weft.Tensor): Tensors =>
        weft.grad(f, { argument: [0, 1, 2, 3] })(w, u, h0, xs) as unknown as Tensors;
      const [got, want] = [gradient(looped), gradient(unrolled)];
      const loops = topological(got.map((t) => t.node as Node)).filter((node) => isOp(node, "scan"));
      const sums = loops.flatMap((node) => {
        const { consts, carries } = (node as Node<"scan">).attrs;
        return node.inputs.slice(consts, consts + carries).filter((x) => x.shape[0] === width);
      });
      const used = cell.toString().includes("u]") ? 2 : 1;
      assert.equal(sums.length, used - stacked, "sums that the loop carries");
      got.forEach((t, i) => {
        const [a, b] = [t, want[i]].map((x) => x.dataSync() as Float32Array);
        const scale = Math.max(...b.map(Math.abs));
        a.forEach((value, k) => {
          assert.ok(Math.abs(value - b[k]) <= 1e-5 * scale, `gradient ${i}, element ${k}: ${value}, ${b[k]}`);
        });
      });
    });
