// Discrete Fourier transforms by their definition, in double precision: every number of the spectrum is a sum over the line.
import { type Node, numel } from "../../graph/index.js";
import type { Complex } from "./complex.js";
import { complexes, fromComplexes, fromReals, type ReferenceRules, type Value } from "./value.js";

/** exp(sign 2 pi i m / n), with m reduced first so that large products lose no digits. */
function roots(n: number, sign: number): Complex[] {
  return Array.from({ length: n }, (_, m) => {
    const angle = (sign * 2 * Math.PI * (m > n / 2 ? m - n : m)) / n;
    return { re: Math.cos(angle), im: Math.sin(angle) };
  });
}

function line(x: readonly Complex[], sign: number): Complex[] {
  const n = x.length;
  const w = roots(n, sign);
  return x.map((_, k) => {
    let [re, im] = [0, 0];
    for (let j = 0; j < n; j++) {
      const r = w[(j * k) % n];
      re += x[j].re * r.re - x[j].im * r.im;
      im += x[j].re * r.im + x[j].im * r.re;
    }
    return { re, im };
  });
}

/** Transforms lines along an axis of a tensor given by the sizes before, on and after it. */
function along(x: readonly Complex[], n: number, inner: number, sign: number): Complex[] {
  const out = new Array<Complex>(x.length);
  for (let start = 0; start < x.length; start += n * inner)
    for (let i = 0; i < inner; i++) {
      const taken = Array.from({ length: n }, (_, j) => x[start + j * inner + i]);
      line(taken, sign).forEach((value, j) => {
        out[start + j * inner + i] = value;
      });
    }
  return out;
}

function transform([x]: readonly Value[], { attrs, shape, dtype }: Node<"fft">): Value {
  const { kind, inverse, axes, size } = attrs;
  const sign = inverse ? 1 : -1;
  const width = x.shape[x.shape.length - 1];
  let values = complexes(x);
  const half = Math.floor(size / 2) + 1;
  if (kind !== "c2r") values = along(values, width, 1, sign);
  if (kind === "r2c") values = values.filter((_, i) => i % size < half);
  let inner = kind === "c2c" ? size : half;
  for (const n of x.shape.slice(-axes, -1).reverse()) {
    values = along(values, n, inner, sign);
    inner *= n;
  }
  if (kind !== "c2r") return fromComplexes(dtype, shape, values);
  const rows = numel(shape) / size;
  const full = Array.from({ length: rows * size }, (_, i): Complex => {
    const [row, k] = [Math.floor(i / size), i % size];
    const { re, im } = values[row * half + (k < half ? k : size - k)];
    return { re, im: k === 0 || 2 * k === size ? 0 : k < half ? im : -im };
  });
  return fromReals(
    dtype,
    shape,
    along(full, size, 1, 1).map(({ re }) => re),
  );
}

export const fftRules: ReferenceRules<"fft"> = { fft: transform };
