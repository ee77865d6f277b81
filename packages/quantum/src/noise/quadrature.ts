// Quadrature rules for integrals over frequency, graded where integrands vary fast.

/** Nodes and weights of a quadrature. */
export interface QuadratureRule {
  nodes: Float64Array;
  weights: Float64Array;
}

/** Gauss-Legendre nodes and weights on [-1, 1], by Newton's method on the Legendre polynomial. */
export function gaussLegendre(n: number): QuadratureRule {
  const nodes = new Float64Array(n);
  const weights = new Float64Array(n);
  for (let i = 0; i < n; i++) {
    let x = Math.cos((Math.PI * (i + 0.75)) / (n + 0.5));
    let slope = 1;
    for (let round = 0; round < 100; round++) {
      let [before, value] = [1, x];
      for (let k = 2; k <= n; k++) [before, value] = [value, ((2 * k - 1) * x * value - (k - 1) * before) / k];
      slope = (n * (x * value - before)) / (x * x - 1);
      const step = value / slope;
      x -= step;
      if (Math.abs(step) < 1e-16) break;
    }
    nodes[i] = x;
    weights[i] = 2 / ((1 - x * x) * slope * slope);
  }
  return { nodes, weights };
}

/** Composite Gauss-Legendre rule over the panels between consecutive edges. */
export function panels(edges: readonly number[], perPanel: number): QuadratureRule {
  const unit = gaussLegendre(perPanel);
  const count = (edges.length - 1) * perPanel;
  const rule = { nodes: new Float64Array(count), weights: new Float64Array(count) };
  for (let p = 0, at = 0; p + 1 < edges.length; p++) {
    const [middle, half] = [(edges[p] + edges[p + 1]) / 2, (edges[p + 1] - edges[p]) / 2];
    for (let i = 0; i < perPanel; i++, at++) {
      rule.nodes[at] = middle + half * unit.nodes[i];
      rule.weights[at] = half * unit.weights[i];
    }
  }
  return rule;
}

/** Edges 0, from / 2^halvings, ..., from / 2: panels graded toward 0, for integrands that are not smooth there. */
export function towardZero(from: number, halvings: number): number[] {
  const edges = [0];
  for (let k = halvings; k >= 1; k--) edges.push(from * 2 ** -k);
  return edges;
}

/** The union of rules. */
export function join(...rules: readonly QuadratureRule[]): QuadratureRule {
  const all = (pick: (rule: QuadratureRule) => Float64Array): Float64Array =>
    Float64Array.from(rules.flatMap((rule) => Array.from(pick(rule))));
  return { nodes: all((r) => r.nodes), weights: all((r) => r.weights) };
}
