// Cases of polynomials, signals and scatter.
import * as weft from "../../index.js";
import { anyDType, type Case, inexact, none, numbers, plain, reals, singles } from "./case.js";

const polynomials: Case[] = [
  plain(
    "poly.val: vectors and batches",
    numbers,
    (s) => [s.any([4]), s.any([2, 3]), s.any([3, 3])],
    (p, x, q) => [
      weft.poly.val(p, x),
      weft.poly.val(q, x.index(0)),
      weft.poly.val(weft.zeros([0], { dtype: p.dtype }), x),
    ],
    "(np.polyval(a, b), np.polyval(c, b[0]), b * 0)",
    { loose: 8 },
  ),
  plain(
    "poly.add: lengths",
    numbers,
    (s) => [s.any([4]), s.any([2])],
    (p, q) => [weft.poly.add(p, q), weft.poly.sub(q, p)],
    "(np.polyadd(a, b), np.polysub(b, a))",
  ),
  plain(
    "poly.sub: batches",
    inexact,
    (s) => [s.any([2, 3]), s.any([1])],
    (p, q) => weft.poly.sub(p, q),
    "np.stack([a[0], a[1] - b[0]])",
  ),
  plain(
    "poly.mul: lengths",
    numbers,
    (s) => [s.nonzero([4]), s.nonzero([2])],
    (p, q) => weft.poly.mul(p, q),
    "np.convolve(a, b)",
  ),
  plain(
    "poly.div: with remainder",
    singles,
    (s) => [s.nonzero([5]), s.nonzero([3])],
    (p, q) => [weft.poly.div(p, q).quotient, weft.poly.div(p, q).remainder, weft.poly.div(q, p).quotient],
    "(np.polydiv(a, b)[0], np.pad(np.polydiv(a, b)[1], (2 - len(np.polydiv(a, b)[1]), 0)), np.zeros(1))",
    { loose: 32, grad2: false },
  ),
  plain(
    "poly.derivative: orders",
    numbers,
    (s) => [s.nonzero([5])],
    (p) => [weft.poly.derivative(p), weft.poly.derivative(p, 2), weft.poly.derivative(p, 9)],
    "(np.polyder(a), np.polyder(a, 2), np.zeros(0))",
  ),
  plain(
    "poly.integral: constant",
    inexact,
    (s) => [s.nonzero([4])],
    (p) => weft.poly.integral(p, 3),
    "np.polyint(a, k=3)",
  ),
  plain(
    "poly.fit: two columns",
    singles,
    (s) => [s.distinct([8]), s.any([8]), s.any([8, 2])],
    (x, y, z) => [weft.poly.fit(x, y, 2), weft.poly.fit(x, z, 1)],
    "(np.polyfit(a, b, 2), np.polyfit(a, c, 1))",
    { loose: 64, grad2: false },
  ),
  plain(
    "poly.roots: sums and products of roots",
    singles,
    (s) => [s.nonzero([4])],
    (p) => [
      weft.real(weft.poly.roots(p).sum()),
      weft.real(weft.poly.roots(p).prod()),
      weft.real(weft.poly.roots(p.index("0:1"))),
    ],
    "(-a[1] / a[0], -a[3] / a[0], np.zeros(0))",
    { ...none, loose: 256, vmap: false },
  ),
  plain(
    "poly.fromRoots: vector",
    inexact,
    (s) => [s.any([4])],
    (x) => weft.poly.fromRoots(x),
    "np.poly(a)",
    { loose: 8 },
  ),
];

const signals: Case[] = [
  ...(["full", "same", "valid"] as const).flatMap((mode) => [
    plain(
      `signal.convolve: ${mode}`,
      numbers,
      (s) => [s.any([7]), s.any([3]), s.any([4])],
      (x, y, z) => [weft.signal.convolve(x, y, { mode }), weft.signal.convolve(z, x, { mode })],
      `(np.convolve(a, b, "${mode}"), np.convolve(c, a, "${mode}"))`,
      { loose: 4 },
    ),
    plain(
      `signal.correlate: ${mode}`,
      numbers,
      (s) => [s.any([7]), s.any([3]), s.any([4])],
      (x, y, z) => [
        weft.signal.correlate(x, y, { mode }),
        weft.signal.correlate(z, x, { mode }),
        weft.signal.correlate(x, z, { mode }),
      ],
      `(np.correlate(a, b, "${mode}"), np.correlate(c, a, "${mode}"), np.correlate(a, c, "${mode}"))`,
      { loose: 4 },
    ),
  ]),
  ...(["bartlett", "blackman", "hamming"] as const).map((name) =>
    plain(
      `signal.${name}: sizes`,
      ["float64"],
      () => [],
      () => [0, 1, 2, 7, 8].map((n) => weft.signal[name](n, { dtype: "float64" })),
      `tuple(np.${name}(n) for n in (0, 1, 2, 7, 8))`,
      { ...none, vmap: false },
    ),
  ),
  plain(
    "signal.hann: sizes",
    ["float64"],
    () => [],
    () => [1, 7, 8].map((n) => weft.signal.hann(n, { dtype: "float64" })),
    "tuple(np.hanning(n) for n in (1, 7, 8))",
    { ...none, vmap: false },
  ),
  plain(
    "signal.hann: complex",
    ["complex128"],
    () => [],
    () => [7, 8].map((n) => weft.signal.hann(n, { dtype: "complex128" })),
    "tuple(np.hanning(n) + 0j for n in (7, 8))",
    { ...none, vmap: false },
  ),
  plain(
    "signal.kaiser: sizes",
    ["float64"],
    () => [],
    () => [weft.signal.kaiser(7, 8.6, { dtype: "float64" }), weft.signal.kaiser(8, 0, { dtype: "float64" })],
    "(np.kaiser(7, 8.6), np.kaiser(8, 0))",
    { ...none, vmap: false, loose: 4 },
  ),
];

const repeated: Case["inputs"] = (s) => [
  s.dtype === "bool" || s.dtype.startsWith("complex") ? s.any([2, 4]) : s.distinct([2, 4]),
  s.exact([2, 5], [1, 3, 1, -1, 0, 2, 2, 2, 9, -7], "int32"),
  s.any([2, 5]),
];

const scatters: Case[] = [
  plain("scatter: set", anyDType, repeated, (x, i, u) => weft.scatter(x, i, u), 'scatter(a, b, c, "set")', {
    grad2: false,
  }),
  plain(
    "scatter: set along axis 0",
    inexact,
    (s) => [s.any([4, 2]), s.indices([3, 2], -1, 4), s.any([3, 2])],
    (x, i, u) => weft.scatter(x, i, u, { axis: 0 }),
    'scatter(a.T, b.T, c.T, "set").T',
    { grad2: false },
  ),
  plain(
    "scatter: add",
    numbers,
    repeated,
    (x, i, u) => weft.scatter(x, i, u, { mode: "add" }),
    'scatter(a, b, c, "add")',
  ),
  plain(
    "scatter: multiply",
    numbers,
    repeated,
    (x, i, u) => weft.scatter(x, i, u, { mode: "mul" }),
    'scatter(a, b, c, "mul")',
    { grad2: false, loose: 4 },
  ),
  plain(
    "scatter: minimum",
    reals,
    repeated,
    (x, i, u) => weft.scatter(x, i, u, { mode: "min" }),
    'scatter(a, b, c, "min")',
    { grad2: false },
  ),
  plain(
    "scatter: maximum",
    reals,
    repeated,
    (x, i, u) => weft.scatter(x, i, u, { mode: "max" }),
    'scatter(a, b, c, "max")',
    { grad2: false },
  ),
  plain(
    "scatter: NaN wins",
    singles,
    (s) => [s.exact([3], [1, 2, 3]), s.exact([4], [0, 0, 2, 1], "int32"), s.exact([4], [NaN, -5, NaN, 7])],
    (x, i, u) => [weft.scatter(x, i, u, { mode: "min" }), weft.scatter(x, i, u, { mode: "max" })],
    "(np.array([np.nan, 2, np.nan]), np.array([np.nan, 7, np.nan]))",
    none,
  ),
  plain(
    "scatter: no updates",
    ["float64"],
    (s) => [s.any([2, 3]), s.exact([2, 0], [], "int32"), s.any([2, 0])],
    (x, i, u) => weft.scatter(x, i, u),
    "a",
    none,
  ),
  plain(
    "segmentReduce: all modes",
    singles,
    (s) => [s.distinct([6, 2]), s.exact([6], [2, 0, 2, 5, -1, 0], "int32")],
    (x, ids) => (["add", "mul", "min", "max"] as const).map((mode) => weft.segmentReduce(x, ids, 4, { mode })),
    'tuple(segment(a, b, 4, mode) for mode in ("add", "mul", "min", "max"))',
    { ...none, loose: 4 },
  ),
  plain(
    "segmentReduce: gradient",
    ["float64"],
    (s) => [s.distinct([6, 2]), s.exact([6], [1, 0, 1, 5, -1, 0], "int32")],
    (x, ids) => (["add", "mul", "min", "max"] as const).map((mode) => weft.segmentReduce(x, ids, 2, { mode })),
    'tuple(segment(a, b, 2, mode) for mode in ("add", "mul", "min", "max"))',
    { grad2: false, grad: [0], vmap: false },
  ),
];

export const sequences: readonly Case[] = [...polynomials, ...signals, ...scatters];
