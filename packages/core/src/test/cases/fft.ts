// Cases of the Fourier transforms: lengths of every kind of factor, cut and padded axes, norms, several axes, both kinds of numbers.
import * as weft from "../../index.js";
import { anyDType, type Case, complexes, floats, inexact, reals, singles } from "./case.js";

const norms = ["backward", "ortho", "forward"] as const;
/** Powers of two and four, mixed factors, primes with a butterfly, primes without. */
const lengths = [1, 2, 3, 4, 5, 8, 12, 15, 49, 53];

const oneAxis: Case[] = [
  ...lengths.flatMap((n): Case[] => [
    {
      name: `fft: length ${n}`,
      dtypes: complexes,
      inputs: (s) => [s.any([2, n])],
      fn: (x) => [weft.fft(x), weft.ifft(x)],
      np: "(np.fft.fft(a), np.fft.ifft(a))",
      loose: 8,
      ...(n > 12 ? { grad: false } : {}),
    },
    {
      name: `rfft: length ${n}`,
      dtypes: singles,
      inputs: (s) => [s.any([2, n])],
      fn: (x) => weft.rfft(x),
      np: "np.fft.rfft(a)",
      loose: 8,
      ...(n > 12 ? { grad: false } : {}),
    },
    {
      name: `irfft: length ${n}`,
      dtypes: complexes,
      inputs: (s) => [s.any([2, Math.floor(n / 2) + 1])],
      fn: (x) => weft.irfft(x, { n }),
      np: `np.fft.irfft(a, ${n})`,
      loose: 8,
      ...(n > 12 ? { grad: false } : {}),
    },
  ]),
  ...norms.map(
    (norm): Case => ({
      name: `ifft: cut, padded, ${norm}`,
      dtypes: inexact,
      inputs: (s) => [s.any([3, 4, 2])],
      fn: (x) => [weft.ifft(x, { n: 3, axis: 1, norm }), weft.fft(x, { n: 6, axis: 0, norm })],
      np: `(np.fft.ifft(a, 3, 1, "${norm}"), np.fft.fft(a, 6, 0, "${norm}"))`,
      loose: 8,
    }),
  ),
  ...norms.map(
    (norm): Case => ({
      name: `hfft: and its inverse, ${norm}`,
      dtypes: singles,
      inputs: (s) => [s.any([2, 5]), s.any([2, 5], s.dtype === "float32" ? "complex64" : "complex128")],
      fn: (x, z) => [
        weft.ihfft(x, { norm }),
        weft.hfft(z, { norm }),
        weft.hfft(z, { n: 7, norm }),
        weft.hfft(x, { norm }),
      ],
      np: `(np.fft.ihfft(a, norm="${norm}"), np.fft.hfft(b, norm="${norm}"), np.fft.hfft(b, 7, norm="${norm}"), np.fft.hfft(a, norm="${norm}"))`,
      loose: 8,
    }),
  ),
  {
    name: "ihfft: another axis",
    dtypes: singles,
    inputs: (s) => [s.any([6, 2])],
    fn: (x) => weft.ihfft(x, { axis: 0, n: 5 }),
    np: "np.fft.ihfft(a, 5, 0)",
    loose: 8,
  },
  {
    name: "rfft: integers and bool",
    dtypes: reals.filter((d) => !floats.includes(d)),
    inputs: (s) => [s.any([5])],
    fn: (x) => weft.rfft(x),
    np: "np.fft.rfft(a)",
    grad: false,
    loose: 8,
  },
];

const severalAxes: Case[] = [
  {
    name: "fftn: all axes, some axes, sizes",
    dtypes: complexes,
    inputs: (s) => [s.any([2, 3, 4])],
    fn: (x) => [
      weft.fftn(x),
      weft.fftn(x, { axes: [2, 0] }),
      weft.fftn(x, { sizes: [2, 5], norm: "ortho" }),
      weft.fftn(x, { axes: [1], sizes: [4] }),
    ],
    np: "(np.fft.fftn(a), np.fft.fftn(a, axes=(2, 0)), np.fft.fftn(a, (2, 5), axes=(1, 2), norm='ortho'), np.fft.fftn(a, (4,), (1,)))",
    loose: 8,
  },
  {
    name: "ifftn: four axes",
    dtypes: complexes,
    inputs: (s) => [s.any([2, 3, 2, 3])],
    fn: (x) => [weft.ifftn(x), weft.fftn(x)],
    np: "(np.fft.ifftn(a), np.fft.fftn(a))",
    loose: 8,
  },
  {
    name: "rfftn: real numbers over several axes",
    dtypes: singles,
    inputs: (s) => [s.any([2, 3, 4])],
    fn: (x) => [weft.rfftn(x), weft.rfftn(x, { axes: [0, 1] }), weft.rfftn(x, { sizes: [5, 3], norm: "forward" })],
    np: "(np.fft.rfftn(a), np.fft.rfftn(a, axes=(0, 1)), np.fft.rfftn(a, (5, 3), axes=(1, 2), norm='forward'))",
    loose: 8,
  },
  {
    name: "rfftn: four axes",
    dtypes: singles,
    inputs: (s) => [s.any([2, 2, 3, 3])],
    fn: (x) => weft.rfftn(x),
    np: "np.fft.rfftn(a)",
    loose: 8,
  },
  {
    name: "irfftn: half spectra without symmetry",
    dtypes: complexes,
    inputs: (s) => [s.any([2, 3, 4])],
    fn: (x) => [weft.irfftn(x), weft.irfftn(x, { sizes: [3, 5] }), weft.irfftn(x, { axes: [2, 0], norm: "ortho" })],
    np: "(np.fft.irfftn(a), np.fft.irfftn(a, (3, 5), axes=(1, 2)), np.fft.irfftn(a, axes=(2, 0), norm='ortho'))",
    loose: 8,
  },
  {
    name: "irfftn: four axes",
    dtypes: complexes,
    inputs: (s) => [s.any([2, 2, 3, 2])],
    fn: (x) => weft.irfftn(x),
    np: "np.fft.irfftn(a)",
    loose: 8,
  },
  {
    name: "fft2: and its inverse",
    dtypes: complexes,
    inputs: (s) => [s.any([2, 4, 3])],
    fn: (x) => [weft.fft2(x), weft.ifft2(x, { axes: [0, 1] })],
    np: "(np.fft.fft2(a), np.fft.ifft2(a, axes=(0, 1)))",
    loose: 8,
  },
  {
    name: "ifft2: scaled",
    dtypes: complexes,
    inputs: (s) => [s.any([3, 3])],
    fn: (x) => weft.ifft2(x),
    np: "np.fft.ifft2(a)",
    loose: 8,
  },
  {
    name: "rfft2: matrices",
    dtypes: singles,
    inputs: (s) => [s.any([2, 3, 5])],
    fn: (x) => weft.rfft2(x),
    np: "np.fft.rfft2(a)",
    loose: 8,
  },
  {
    name: "irfft2: matrices",
    dtypes: complexes,
    inputs: (s) => [s.any([2, 3, 3])],
    fn: (x) => weft.irfft2(x),
    np: "np.fft.irfft2(a)",
    loose: 8,
  },
];

const frequencies: Case[] = [
  {
    name: "fftfreq: even, odd, spacing",
    dtypes: singles,
    inputs: () => [],
    fn: () => [weft.fftfreq(6), weft.fftfreq(5, 0.25), weft.fftfreq(1, 2, { dtype: "float64" })],
    np: "(np.fft.fftfreq(6), np.fft.fftfreq(5, 0.25), np.fft.fftfreq(1, 2))",
    vmap: false,
    grad: false,
  },
  {
    name: "rfftfreq: even, odd, spacing",
    dtypes: singles,
    inputs: () => [],
    fn: () => [weft.rfftfreq(6), weft.rfftfreq(5, 0.25)],
    np: "(np.fft.rfftfreq(6), np.fft.rfftfreq(5, 0.25))",
    vmap: false,
    grad: false,
  },
  {
    name: "fftshift: and back",
    dtypes: anyDType,
    inputs: (s) => [s.any([2, 5, 4])],
    fn: (x) => [weft.fftshift(x), weft.fftshift(x, 1), weft.fftshift(x, [0, -1])],
    np: "(np.fft.fftshift(a), np.fft.fftshift(a, 1), np.fft.fftshift(a, (0, -1)))",
    vmap: false,
  },
  {
    name: "ifftshift: odd sizes",
    dtypes: anyDType,
    inputs: (s) => [s.any([3, 5])],
    fn: (x) => [weft.ifftshift(x), weft.ifftshift(x, [1])],
    np: "(np.fft.ifftshift(a), np.fft.ifftshift(a, (1,)))",
    vmap: false,
  },
];

export const ffts: Case[] = [...oneAxis, ...severalAxes, ...frequencies];
