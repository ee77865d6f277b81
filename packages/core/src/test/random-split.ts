// Seeded random strategies, for the suites that must cover every split of every op.
import type { Node } from "../graph/index.js";
import { factorsOf } from "../ops/index.js";
import { type Mesh, Placement, type Strategy } from "../shard/index.js";

/** A small seeded generator: the same splits on every run. */
export function generator(seed: string): (n: number) => number {
  let state = 2166136261;
  for (const c of seed) state = Math.imul(state ^ c.charCodeAt(0), 16777619);
  return (n) => {
    state = (Math.imul(state ^ (state >>> 15), 2246822519) + 0x9e3779b9) | 0;
    return ((state ^ (state >>> 13)) >>> 0) % n;
  };
}

export function randomPlacement(mesh: Mesh, shape: readonly number[], draw: (n: number) => number): Placement {
  const by: Record<number, string[]> = {};
  const dims = shape.map((_, i) => i).filter((i) => shape[i] > 1);
  for (const { name } of mesh.axes) {
    if (dims.length === 0 || draw(4) === 0) continue;
    const dim = dims[draw(dims.length)];
    by[dim] = [...(by[dim] ?? []), name];
  }
  return Placement.split(mesh, shape, by);
}

/** Each mesh axis splits one of the factors, or none, or follows the operands (null). */
export function randomStrategy(mesh: Mesh, draw: (n: number) => number): (node: Node) => Strategy | null {
  return (node) => {
    const usable = factorsOf(node)
      .factors.map((_, f) => f)
      .filter((f) => factorsOf(node).factors[f].size > 1);
    if (usable.length === 0 || draw(3) === 0) return null;
    const split: Record<string, number> = {};
    for (const { name } of mesh.axes) if (draw(5) > 0) split[name] = usable[draw(usable.length)];
    return { split, carry: [] };
  };
}
