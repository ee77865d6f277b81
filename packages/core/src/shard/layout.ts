// Placements of operands and results of one op under a given strategy. The partitioner builds what this computes, the
// planner estimates its cost.
import { type Node, outputAvals, type ReduceFn } from "../graph/index.js";
import { boundOf, type DimMap, type Factors, factorBound, factorsOf, isLinear } from "../ops/index.js";
import type { Mesh } from "./mesh.js";
import { type DimensionSplit, type PendingReduction, Placement } from "./placement.js";

/**
 * How a node is split: the factor that each mesh axis splits. Other axes replicate the work, or carry pending reductions.
 */
export interface Strategy {
  readonly split: Readonly<Record<string, number>>;
  /** Axes over which pending reductions of operands stay pending in the result. */
  readonly carry: readonly string[];
}

export interface Layout {
  operands: Placement[];
  results: Placement[];
  /** Mesh axes and boundaries of each factor; null where it is not split. */
  factors: (DimensionSplit | null)[];
}

/** The mesh axes that split each factor, in mesh order. */
function axesByFactor(mesh: Mesh, strategy: Strategy, factors: number): string[][] {
  const axes: string[][] = Array.from({ length: factors }, () => []);
  for (const { name } of mesh.axes) if (strategy.split[name] !== undefined) axes[strategy.split[name]].push(name);
  return axes;
}

const sameAxes = (a: readonly string[], b: readonly string[]): boolean =>
  a.length === b.length && a.every((axis, i) => axis === b[i]);

/** Boundaries of a factor that an operand's placement already has. */
function boundsFrom(node: Node, rule: Factors, factor: number, axes: readonly string[], current: readonly Placement[]) {
  let best: { size: number; bounds: readonly number[] } | null = null;
  node.inputs.forEach((input, i) => {
    rule.inputs[i].forEach((map, dim) => {
      const split = current[i].dims[dim];
      if (map === null || map.factor !== factor || split === null || !sameAxes(split.axes, axes)) return;
      // The boundaries of one part of a concatenation say nothing about the result.
      if (map.kind === "window" && node.op === "concat") return;
      const size = input.shape.reduce((n, d) => n * d, 1);
      if (best !== null && size <= best.size) return;
      const bounds = split.bounds.map((bound) => factorBound(map, input.shape[dim], rule.factors[factor].size, bound));
      if (bounds.includes(null)) return;
      const same = bounds.every((bound, k) => bound === split.bounds[k]);
      best = { size, bounds: same ? split.bounds : (bounds as number[]) };
    });
  });
  return (best as { bounds: readonly number[] } | null)?.bounds ?? null;
}

/** Boundaries of a dimension from those of its factor: the same list where they are equal. */
function dimensionBounds(map: DimMap, size: number, whole: number, bounds: readonly number[]): readonly number[] {
  const mapped = bounds.map((bound) => boundOf(map, size, whole, bound));
  return mapped.every((bound, k) => bound === bounds[k]) ? bounds : mapped;
}

/** Which operands propagate a pending reduction over an axis, and by which function; null where none may. */
export function carriedParts(
  node: Node,
  axis: string,
  current: readonly Placement[],
): { parts: boolean[]; fn: ReduceFn } | null {
  const parts = current.map((placement) => placement.pending?.axes.includes(axis) ?? false);
  const fns = new Set(current.flatMap((placement, i) => (parts[i] ? [placement.pending!.fn] : [])));
  if (fns.size !== 1) return null;
  const [fn] = fns;
  return isLinear(node, parts, fn) ? { parts, fn } : null;
}

/** Placements of operands and results under a strategy; null where the strategy is impossible. */
export function layoutOf(node: Node, mesh: Mesh, strategy: Strategy, current: readonly Placement[]): Layout | null {
  const rule = factorsOf(node);
  const factors = axesByFactor(mesh, strategy, rule.factors.length).map((axes, f): DimensionSplit | null => {
    if (axes.length === 0) return null;
    const bounds = boundsFrom(node, rule, f, axes, current);
    return { axes, bounds: bounds ?? mesh.bounds(rule.factors[f].size, axes) };
  });
  const carried = strategy.carry.map((axis) => ({ axis, ...carriedParts(node, axis, current) }));
  if (carried.some(({ parts }) => parts === undefined)) return null;

  const operands = node.inputs.map((input, i) => {
    const dims = rule.inputs[i].map((map, dim): DimensionSplit | null => {
      const split = map === null ? null : factors[map.factor];
      if (map === null || split === null) return null;
      const size = input.shape[dim];
      const whole = rule.factors[map.factor].size;
      const has = current[i].dims[dim];
      const fits =
        has !== null &&
        sameAxes(has.axes, split.axes) &&
        has.bounds.every((bound, k) => factorBound(map, size, whole, bound) === split.bounds[k]);
      if (fits) return has;
      return { axes: split.axes, bounds: dimensionBounds(map, size, whole, split.bounds) };
    });
    const pending = carried.filter(({ parts }) => parts![i]);
    return new Placement(mesh, dims, pendingOf(pending.map(({ axis, fn }) => ({ axis, fn: fn! }))));
  });

  const results: Placement[] = [];
  for (const [index, aval] of outputAvals(node).entries()) {
    const dims = rule.outputs[index].map((map, dim): DimensionSplit | null => {
      const split = map === null ? null : factors[map.factor];
      if (map === null || split === null) return null;
      const whole = rule.factors[map.factor].size;
      return { axes: split.axes, bounds: dimensionBounds(map, aval.shape[dim], whole, split.bounds) };
    });
    const waits = carried.map(({ axis, fn }) => ({ axis, fn: fn! }));
    rule.factors.forEach(({ reduce, partial }, f) => {
      if (reduce === null || !partial[index]) return;
      for (const axis of factors[f]?.axes ?? []) waits.push({ axis, fn: reduce });
    });
    if (new Set(waits.map(({ fn }) => fn)).size > 1) return null;
    results.push(new Placement(mesh, dims, pendingOf(waits)));
  }
  return { operands, results, factors };
}

function pendingOf(waits: readonly { axis: string; fn: ReduceFn }[]): PendingReduction | null {
  return waits.length === 0 ? null : { axes: waits.map(({ axis }) => axis), fn: waits[0].fn };
}

/** The strategy that needs no resharding where possible: split by what the largest operands are split by. */
export function followOperands(node: Node, mesh: Mesh, current: readonly Placement[]): Strategy {
  const rule = factorsOf(node);
  const split: Record<string, number> = {};
  const bySize = node.inputs.map((_, i) => i).sort((a, b) => elements(node.inputs[b]) - elements(node.inputs[a]));
  for (const i of bySize) {
    current[i].dims.forEach((has, dim) => {
      const map = rule.inputs[i][dim];
      if (has === null || map === null || rule.factors[map.factor].size < 2) return;
      for (const axis of has.axes) split[axis] ??= map.factor;
    });
  }
  const carry = mesh.axes
    .map(({ name }) => name)
    .filter((axis) => split[axis] === undefined && carriedParts(node, axis, current) !== null);
  const strategy = { split, carry };
  return layoutOf(node, mesh, strategy, current) === null ? { split, carry: [] } : strategy;
}

const elements = (node: Node): number => node.shape.reduce((n, d) => n * d, 1);
