// The knapsack of the planner against all choices of random instances.
import assert from "node:assert/strict";
import { test } from "node:test";
import { type CoverItem, cheapestCover } from "./cover.js";

/** Numbers that look random and are the same everywhere. */
function numbers(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

function instance(seed: number): CoverItem[] {
  const next = numbers(seed);
  return Array.from({ length: 2 + Math.floor(next() * 6) }, () => {
    const saves = 1 + Math.floor(next() * 50);
    const costs = next() < 0.2 ? 0 : next() * 10;
    const first = { saves, costs };
    return { ways: next() < 0.5 ? [first] : [first, { saves: saves + 1 + next() * 30, costs: costs + next() * 8 }] };
  });
}

function exhaustive(items: readonly CoverItem[], need: number): number | null {
  const [head, ...rest] = items;
  if (head === undefined) return need <= 1e-9 ? 0 : null;
  const found = [{ saves: 0, costs: 0 }, ...head.ways].flatMap(({ saves, costs }) => {
    const inner = exhaustive(rest, need - saves);
    return inner === null ? [] : [costs + inner];
  });
  return found.length === 0 ? null : Math.min(...found);
}

test("the cheapest choice of all is found", () => {
  let fulfilled = 0;
  for (let seed = 1; seed <= 300; seed++) {
    const items = instance(seed);
    const all = items.reduce((n, { ways }) => n + Math.max(...ways.map(({ saves }) => saves)), 0);
    for (const part of [0.1, 0.5, 0.9, 1, 1.01]) {
      const need = part * all;
      const wanted = exhaustive(items, need);
      const found = cheapestCover(items, need, 0);
      assert.equal(found === null, wanted === null, `seed ${seed}, part ${part}`);
      if (found === null || wanted === null) continue;
      fulfilled++;
      const saved = found.chosen.reduce((n, way) => n + (way?.saves ?? 0), 0);
      assert.ok(saved >= need * (1 - 1e-9), `seed ${seed}: ${saved} of ${need}`);
      assert.ok(Math.abs(found.costs - wanted) <= 1e-9, `seed ${seed}, part ${part}: ${found.costs}, least ${wanted}`);
    }
  }
  assert.ok(fulfilled > 1000);
});

test("many items are chosen quickly and near the bound", () => {
  const next = numbers(5);
  const items = Array.from({ length: 600 }, () => ({ ways: [{ saves: 10 + next() * 90, costs: 1 + next() * 9 }] }));
  const start = performance.now();
  const found = cheapestCover(items, 15_000, 0.5);
  assert.ok(found !== null && performance.now() - start < 5000);
  // Parts of items allowed: no choice costs less.
  const sorted = items.map(({ ways: [way] }) => way).sort((a, b) => a.costs / a.saves - b.costs / b.saves);
  let [left, least] = [15_000, 0];
  for (const { saves, costs } of sorted) {
    if (left <= 0) break;
    least += costs * Math.min(1, left / saves);
    left -= saves;
  }
  assert.ok(found.costs <= least + 0.5 + 1e-9, `${found.costs} ${least}`);
});
