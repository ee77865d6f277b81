// Checks of derivatives at one point: forward mode against central differences, reverse mode against forward mode by
// the inner product <c, J t> = <J^T c, t>. Real inner product throughout: a complex number is two real ones.
import { type DType, jit, jvp, onesLike, type Tensor, vjp } from "../index.js";
import { type CaseFn, type Host, Source } from "./cases/index.js";
import { difference, inner, isInexactDType, type Result, toResult } from "./compare.js";
import { list, upload } from "./jobs.js";

export interface Point {
  name: string;
  fn: CaseFn;
  inputs: Host[];
  /** Positions of the inputs that carry a gradient. */
  wrt: number[];
}

/** The inputs to differentiate: the given ones, or all floating-point ones. */
export const differentiable = (inputs: readonly Host[], asked?: readonly number[]): number[] =>
  [...(asked ?? inputs.keys())].filter((i) => isInexactDType(inputs[i].dtype));

const shifted = (host: Host, direction: readonly number[], by: number): Host => ({
  ...host,
  data: host.data.map((x, i) => x + by * direction[i]),
});

/** The function of the differentiable inputs alone, with only its inexact results. */
function restricted({ fn, inputs, wrt }: Point): (...x: Tensor[]) => Tensor[] {
  return (...x) => {
    const all = inputs.map((host, i) => (wrt.includes(i) ? x[wrt.indexOf(i)] : upload(host)));
    return list(fn(...all)).filter((t) => isInexactDType(t.dtype));
  };
}

const directionsLike = (source: Source, results: readonly { shape: readonly number[]; dtype: DType }[]): Host[] =>
  results.map(({ shape, dtype }) => source.between(-1, 1, shape, dtype));

/** Problems with the first derivatives of a function at a point; none if all agree. */
export function checkDerivatives(point: Point, step = 1e-5, tolerance = 2e-7): string[] {
  const source = new Source("float64", `${point.name} derivatives`);
  const hosts = point.wrt.map((i) => point.inputs[i]);
  const f = restricted(point);
  const run = jit((x: Tensor[]) => f(...x));
  const values = run(hosts.map(upload)).map(toResult);
  if (values.length === 0) return [`${point.name}: no result carries a gradient`];
  const tangents = directionsLike(source, hosts);
  const cotangents = directionsLike(source, values);

  const [, forward] = jvp(f, hosts.map(upload), tangents.map(upload));
  const [, pull] = vjp(f, ...hosts.map(upload));
  const grads = pull(cotangents.map(upload)).map(toResult);
  const slopes = forward.map(toResult);
  const problems = slopes.flatMap((slope, i) => {
    const { shape, dtype } = values[i];
    return slope.dtype === dtype && String(slope.shape) === String(shape)
      ? []
      : [`tangent ${i} is ${slope.dtype}[${slope.shape}], its value ${dtype}[${shape}]`];
  });
  grads.forEach((g, i) => {
    if (g.dtype !== hosts[i].dtype || String(g.shape) !== String(hosts[i].shape))
      problems.push(`gradient ${i} is ${g.dtype}[${g.shape}], its input ${hosts[i].dtype}[${hosts[i].shape}]`);
  });
  if (problems.length > 0) return problems.map((p) => `${point.name}: ${p}`);

  const moved = (by: number): Result[] =>
    run(hosts.map((host, i) => upload(shifted(host, tangents[i].data, by)))).map(toResult);
  const [up, down] = [moved(step), moved(-step)];
  slopes.forEach((slope, i) => {
    const data = up[i].data.map((x, k) => (x - down[i].data[k]) / (2 * step));
    const size = Math.max(1, ...slope.data.map(Math.abs), ...values[i].data.map(Math.abs));
    const problem = difference(slope, { ...slope, data }, { rtol: tolerance, atol: tolerance * size });
    if (problem !== null) problems.push(`jvp, result ${i}, against finite differences: ${problem}`);
  });
  const [left, right] = [inner(cotangents as Result[], slopes), inner(grads, tangents as Result[])];
  const scale = Math.max(1, Math.abs(left), ...slopes.flatMap((s) => s.data.map(Math.abs)));
  if (!(Math.abs(left - right) <= 1e-9 * scale)) problems.push(`<c, J t> = ${left}, but <J^T c, t> = ${right}`);
  return problems.map((p) => `${point.name}: ${p}`);
}

/** The gradients of a function with respect to some of its inputs, with ones as cotangents of its inexact results. */
export const gradientFn =
  (fn: CaseFn, wrt: readonly number[]): CaseFn =>
  (...x) => {
    const run = (...chosen: Tensor[]): Tensor[] =>
      list(fn(...x.map((t, i) => (wrt.includes(i) ? chosen[wrt.indexOf(i)] : t)))).filter((t) =>
        isInexactDType(t.dtype),
      );
    const [outputs, pull] = vjp(run, ...wrt.map((i) => x[i]));
    return pull(outputs.map((t) => onesLike(t)));
  };

/** The function that gives the gradients of a point's function for a fixed cotangent: its derivatives are the second ones. */
export function gradientPoint(point: Point): Point {
  const source = new Source("float64", `${point.name} second`);
  const f = restricted(point);
  const shapes = f(...point.wrt.map((i) => upload(point.inputs[i]))).map(({ shape, dtype }) => ({ shape, dtype }));
  const cotangents = directionsLike(source, shapes);
  return {
    name: `${point.name}, second derivatives`,
    inputs: point.wrt.map((i) => point.inputs[i]),
    wrt: point.wrt.map((_, i) => i),
    fn: (...x) => {
      const [, pull] = vjp(f, ...x);
      return pull(cotangents.map(upload));
    },
  };
}
