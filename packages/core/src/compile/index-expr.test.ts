// Index arithmetic against plain numbers: quotients and remainders of sums near and below zero, as in flips inside pads.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Ix } from "./index-expr.js";

/** Evaluates printed C, whose division rounds to zero. */
function evaluate(text: string, i: number, j: number): number {
  const script = text.replace(/\(((?:[^()]|\([^()]*\))*)\) \/ (\d+)/g, "Math.trunc(($1) / $2)");
  return new Function("i", "j", `return ${script};`)(i, j) as number;
}

test("quotients and remainders round down for every sum that is itself in range", () => {
  for (const [a, b, c] of [
    [-1, 0, 12],
    [-1, -4, 23],
    [-3, 2, 40],
    [1, -5, 30],
    [-2, -2, 31],
  ])
    for (const by of [2, 3, 4, 6, 12]) {
      const sum = Ix.variable("i", 13).times(a).add(Ix.variable("j", 4).times(b)).plus(c);
      for (let i = 0; i < 13; i++)
        for (let j = 0; j < 4; j++) {
          const value = a * i + b * j + c;
          if (value < 0) continue;
          const at = `(${a} i + ${b} j + ${c}) by ${by} at ${i}, ${j}`;
          assert.equal(evaluate(sum.div(by).print(), i, j), Math.floor(value / by), `quotient of ${at}`);
          assert.equal(evaluate(sum.mod(by).print(), i, j), value % by, `remainder of ${at}`);
        }
    }
});
