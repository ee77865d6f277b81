// Fourier transforms of the CPU device against sums of products, around the lengths and numbers of lines at which the method changes.
import assert from "node:assert/strict";
import { test } from "node:test";
import * as weft from "../../index.js";

const skip = weft.CpuDevice.available() ? false : "no C compiler";

const numbers = (count: number, salt: number): Float64Array =>
  Float64Array.from({ length: count }, (_, i) => ((Math.imul(i + 1, 0x9e3779b1) + salt * 40503) >>> 0) * 2 ** -31 - 1);

/** Element k of the transform of line l. */
function element(re: Float64Array, im: Float64Array, n: number, l: number, k: number): [number, number] {
  const sum: [number, number] = [0, 0];
  for (let j = 0; j < n; j++) {
    const angle = (-2 * Math.PI * ((j * k) % n)) / n;
    const [c, s] = [Math.cos(angle), Math.sin(angle)];
    sum[0] += re[l * n + j] * c - im[l * n + j] * s;
    sum[1] += re[l * n + j] * s + im[l * n + j] * c;
  }
  return sum;
}

const cases: [lines: number, n: number][] = [
  ...([1, 2, 16, 256, 512, 513, 1024, 1009, 2048, 4096, 5000, 5001, 6007] as const).map(
    (n) => [1, n] as [number, number],
  ),
  ...[
    [3, 1024],
    [17, 30],
    [33, 97],
    [5, 512],
  ].map((pair) => pair as [number, number]),
];

for (const [lines, n] of cases)
  test(`${lines} lines of ${n}`, { skip }, () => {
    weft.setDevice("cpu");
    const [re, im] = [numbers(lines * n, 1), numbers(lines * n, 2)];
    const none = new Float64Array(lines * n);
    const shape = [lines, n];
    const x = weft.complex(weft.tensor(re, { shape }), weft.tensor(im, { shape }));
    const there = weft.fft(x);
    // The same lines as columns.
    const columns = weft.fft(x.transpose().realize(), { axis: 0 }).transpose();
    const real = weft.rfft(weft.tensor(re, { shape }));
    const back = weft.irfft(real, { n });
    const close = (got: weft.Tensor, at: number, [a, b]: [number, number]): void => {
      const off = Math.hypot(Number(weft.real(got).dataSync()[at]) - a, Number(weft.imag(got).dataSync()[at]) - b);
      assert.ok(off < 1e-11 * Math.sqrt(n) * 10, `element ${at} is off by ${off}`);
    };
    const half = Math.floor(n / 2) + 1;
    for (const l of new Set([0, lines - 1]))
      for (const k of new Set([0, 1 % n, Math.floor(n / 3), n - 1])) {
        close(there, l * n + k, element(re, im, n, l, k));
        close(columns, l * n + k, element(re, im, n, l, k));
        const kept = Math.min(k, half - 1);
        close(real, l * half + kept, element(re, none, n, l, kept));
      }
    const [again, first] = [back.dataSync() as Float64Array, re];
    assert.ok(first.every((value, i) => Math.abs(value - again[i]) < 1e-12));
    const single = weft.real(weft.ifft(weft.fft(x.cast("complex64")))).dataSync() as Float32Array;
    assert.ok(re.every((value, i) => Math.abs(value - single[i]) < 1e-5));
  });
