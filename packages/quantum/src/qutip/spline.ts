// Cubic splines through values at given times, as QuTiP interpolates lists of coefficients: the third derivative is continuous at the
// second and the last but one time ("not a knot").
import { WeftError } from "@weft/core/internal/graph";
import { complex, searchsorted, type Tensor, take, tensor } from "@weft/core/internal/tensor";
import type { OperatorEntry } from "../operators/index.js";

/** Second derivatives of the spline at its times. */
function curvatures(times: readonly number[], values: readonly number[]): number[] {
  const n = times.length;
  const h = times.slice(1).map((t, k) => t - times[k]);
  const slope = h.map((step, k) => (values[k + 1] - values[k]) / step);
  // Rows of a tridiagonal system for the inner times; the conditions at both ends eliminate the outer ones.
  const lower = h.slice(0, n - 2);
  const diagonal = lower.map((_, k) => 2 * (h[k] + h[k + 1]));
  const upper = h.slice(1);
  const right = lower.map((_, k) => 6 * (slope[k + 1] - slope[k]));
  const [a, z] = [h[0] / h[1], h[n - 2] / h[n - 3]];
  diagonal[0] += h[0] * (1 + a);
  upper[0] -= h[0] * a;
  diagonal[n - 3] += h[n - 2] * (1 + z);
  lower[n - 3] -= h[n - 2] * z;
  for (let k = 1; k < n - 2; k++) {
    const factor = lower[k] / diagonal[k - 1];
    diagonal[k] -= factor * upper[k - 1];
    right[k] -= factor * right[k - 1];
  }
  const inner = new Array<number>(n - 2);
  for (let k = n - 3; k >= 0; k--) inner[k] = (right[k] - (k === n - 3 ? 0 : upper[k] * inner[k + 1])) / diagonal[k];
  const first = inner[0] * (1 + a) - inner[1] * a;
  const last = inner[n - 3] * (1 + z) - inner[n - 4] * z;
  return [first, ...inner, last];
}

/** Coefficients of the polynomial in every interval, highest power first. */
function polynomials(times: readonly number[], values: readonly number[]): number[][] {
  const m = curvatures(times, values);
  return times.slice(1).map((t, k) => {
    const h = t - times[k];
    const slope = (values[k + 1] - values[k]) / h;
    return [(m[k + 1] - m[k]) / (6 * h), m[k] / 2, slope - (h * (2 * m[k] + m[k + 1])) / 6, values[k]];
  });
}

/** The spline as a function from times [m] to values [m]; complex if a value is. */
export function spline(
  times: readonly number[],
  values: readonly OperatorEntry[],
  name: string,
): (t: Tensor) => Tensor {
  if (values.length !== times.length || times.length < 4)
    throw new WeftError(
      `${name}: a list of values needs one per time of tlist and at least 4, got ${values.length} values for ${times.length} times`,
    );
  const parts = values.map((x) => (typeof x === "number" ? { re: x, im: 0 } : x));
  const bad = parts.findIndex((x) => !Number.isFinite(x?.re) || !Number.isFinite(x?.im));
  if (bad >= 0) throw new WeftError(`${name}: value ${bad} is not a finite number`);
  const inner = tensor(times.slice(1, -1), { dtype: "float64" });
  const starts = tensor(times.slice(0, -1), { dtype: "float64" });
  const tableOf = (list: number[]): Tensor => tensor(polynomials(times, list), { dtype: "float64" });
  const isReal = parts.every(({ im }) => im === 0);
  const tables = (isReal ? (["re"] as const) : (["re", "im"] as const)).map((part) =>
    tableOf(parts.map((x) => x[part])),
  );
  return (t) => {
    const at = t.cast("float64");
    const interval = searchsorted(inner, at, { side: "right" });
    const x = at.sub(take(starts, interval, 0));
    const [re, im] = tables.map((table) => {
      const row = take(table, interval, 0);
      return [1, 2, 3].reduce((sum, k) => sum.mul(x).add(row.index(":", k)), row.index(":", 0));
    });
    return im === undefined ? re : complex(re, im);
  };
}
