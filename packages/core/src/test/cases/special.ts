import * as weft from "../../index.js";
import { type Case, floats, none, plain, singles } from "./case.js";

const { special } = weft;

const loose = 8;
const positive: Case["inputs"] = (s) => [s.between(0.2, 6, [8])];
const shares: Case["inputs"] = (s) => [s.between(0.05, 0.95, [8])];
const anyReal: Case["inputs"] = (s) => [s.any([8])];
const twoPositive: Case["inputs"] = (s) => [s.between(0.5, 9, [3, 4]), s.between(0.2, 9, [4])];
const exact =
  (...lists: number[][]): Case["inputs"] =>
  (s) =>
    lists.map((list) => s.exact([list.length], list));

const functions: Case[] = [
  plain("special.expit: tails", floats, exact([-30, -2, 0, 2, 30]), (x) => special.expit(x), "special.expit(a)", {
    loose,
  }),
  plain("special.logit: shares", singles, shares, (x) => special.logit(x), "special.logit(a)", { loose }),
  plain("special.logit: edges", singles, exact([0, 1, -1, 2, NaN]), (x) => special.logit(x), "special.logit(a)", none),
  plain(
    "special.log1mexp: both sides of log 2",
    singles,
    exact([0.01, 0.3, Math.LN2, 0.7, 5, 30]),
    (x) => special.log1mexp(x),
    "np.log(-np.expm1(-a))",
    { loose, grad2: false },
  ),
  plain(
    "special.log1mexp: extremes",
    singles,
    exact([1e-8, 1e-30, 700, Infinity, 0]),
    (x) => special.log1mexp(x),
    "np.where(a < 1, np.log(-np.expm1(-a)), np.log1p(-np.exp(-a)))",
    { ...none, loose },
  ),
  plain(
    "special.xlogy: with zeros",
    singles,
    exact([0, 0, 2, 0.5], [0, 3, 1.5, 2]),
    (x, y) => special.xlogy(x, y),
    "special.xlogy(a, b)",
    none,
  ),
  plain("special.xlogy: gradient", ["float64"], twoPositive, (x, y) => special.xlogy(x, y), "special.xlogy(a, b)", {
    loose,
  }),
  plain(
    "special.xlogy: NaN and negative",
    singles,
    exact([0, 0, 1, NaN], [NaN, -1, -1, 0]),
    (x, y) => special.xlogy(x, y),
    "special.xlogy(a, b)",
    none,
  ),
  plain(
    "special.xlog1py: with zeros",
    singles,
    exact([0, 2, 0.5], [-1, 1e-9, 2]),
    (x, y) => special.xlog1py(x, y),
    "special.xlog1py(a, b)",
    none,
  ),
  plain(
    "special.xlog1py: gradient",
    ["float64"],
    twoPositive,
    (x, y) => special.xlog1py(x, y),
    "special.xlog1py(a, b)",
    { loose },
  ),
  plain("special.entr: edges", singles, exact([0, -1, 0.5, 2, NaN]), (x) => special.entr(x), "special.entr(a)", none),
  plain("special.entr: gradient", ["float64"], positive, (x) => special.entr(x), "special.entr(a)"),
  plain(
    "special.relEntr: edges",
    singles,
    exact([0, 1, 0, -1, 2, NaN], [0, 0, 2, 1, 3, 1]),
    (x, y) => special.relEntr(x, y),
    "special.rel_entr(a, b)",
    none,
  ),
  plain(
    "special.relEntr: gradient",
    ["float64"],
    twoPositive,
    (x, y) => [special.relEntr(x, y), special.klDiv(x, y)],
    "(special.rel_entr(a, b), special.kl_div(a, b))",
    { loose },
  ),
  plain(
    "special.klDiv: edges",
    singles,
    exact([0, 1, 0], [0, 0, 2]),
    (x, y) => special.klDiv(x, y),
    "special.kl_div(a, b)",
    none,
  ),
  plain("special.ndtr: tails", singles, exact([-30, -3, 0, 1, 9]), (x) => special.ndtr(x), "special.ndtr(a)", {
    loose: 16,
  }),
  plain(
    "special.logNdtr: tails",
    singles,
    exact([-200, -20, -14, -3, 0, 1, 9]),
    (x) => special.logNdtr(x),
    "special.log_ndtr(a)",
    { loose: 16, grad2: false },
  ),
  plain(
    "special.erfcinv: tails",
    ["float64"],
    exact([1e-200, 1e-20, 1e-4, 0.3, 1, 1.5, 1.9999]),
    (x) => special.erfcinv(x),
    "special.erfcinv(a)",
    { ...none, loose: 64 },
  ),
  plain(
    "special.erfcinv: gradient",
    ["float64"],
    (s) => [s.between(0.1, 1.9, [8])],
    (x) => special.erfcinv(x),
    "special.erfcinv(a)",
    { loose },
  ),
  plain(
    "special.ndtri: tails",
    ["float64"],
    exact([1e-100, 0.001, 0.5, 0.9, 0, 1, -1]),
    (x) => special.ndtri(x),
    "special.ndtri(a)",
    { ...none, loose: 64 },
  ),
  plain("special.ndtri: gradient", ["float64"], shares, (x) => special.ndtri(x), "special.ndtri(a)", { loose }),
  plain(
    "special.gamma: both signs",
    singles,
    exact([0.5, 1, 5, 10.5, -0.5, -1.5, -2.25]),
    (x) => special.gamma(x),
    "special.gamma(a)",
    { loose: 64, grad2: false },
  ),
  plain(
    "special.factorial: whole numbers",
    ["float64"],
    exact([0, 1, 5, 15, 18]),
    (x) => special.factorial(x),
    "special.factorial(a)",
    none,
  ),
  plain("special.betaln: broadcasting", singles, twoPositive, (a, b) => special.betaln(a, b), "special.betaln(a, b)", {
    loose: 16,
  }),
  plain(
    "special.binom: whole and other numbers",
    ["float64"],
    exact([5, 10, 4, 4, 7.5], [2, 5, 5, 0, 2.25]),
    (n, k) => special.binom(n, k),
    "special.binom(a, b)",
    { ...none, loose: 64 },
  ),
  plain(
    "special.multigammaln: dimension 3",
    singles,
    (s) => [s.between(2, 6, [5])],
    (x) => special.multigammaln(x, 3),
    "special.multigammaln(a, 3)",
    { loose: 16 },
  ),
  plain(
    "special.zeta: Riemann and Hurwitz",
    singles,
    (s) => [s.between(1.5, 9, [3, 4]), s.between(0.3, 5, [4])],
    (x, q) => [special.zeta(x), special.zeta(x, q)],
    "(special.zeta(a), special.zeta(a, b))",
    { loose: 16, grad2: false },
  ),
  plain(
    "special.zeta: edges",
    ["float64"],
    exact([1, 0.5, 2, NaN]),
    (x) => special.zeta(x),
    "np.array([np.inf, np.nan, np.pi ** 2 / 6, np.nan])",
    none,
  ),
  plain(
    "special.polygamma: orders",
    singles,
    positive,
    (x) => [special.polygamma(0, x), special.polygamma(1, x), special.polygamma(4, x)],
    "(special.digamma(a), special.polygamma(1, a), special.polygamma(4, a))",
    { loose: 32, grad2: false },
  ),
  plain("special.i0e: sizes", singles, exact([0, -0.5, 3, 40, -600, 1e6]), (x) => special.i0e(x), "special.i0e(a)", {
    ...none,
    loose,
  }),
  plain(
    "special.i0e: gradient",
    ["float64"],
    (s) => [s.nonzero([6])],
    (x) => special.i0e(x),
    "special.i0e(a)",
    { loose },
  ),
  plain("special.i1: sizes", singles, exact([0, -0.5, 3, -40, 60]), (x) => special.i1(x), "special.i1(a)", {
    loose: 32,
    grad: false,
  }),
  plain("special.i1: gradient", ["float64"], anyReal, (x) => special.i1(x), "special.i1(a)", { loose }),
  plain("special.i1e: sizes", singles, exact([0, -0.5, 3, -40, 600, 1e6]), (x) => special.i1e(x), "special.i1e(a)", {
    ...none,
    loose,
  }),
  plain(
    "special.i1e: gradient",
    ["float64"],
    (s) => [s.nonzero([6])],
    (x) => special.i1e(x),
    "special.i1e(a)",
    { loose },
  ),
  plain(
    "special.gammainc: broadcasting",
    singles,
    twoPositive,
    (a, x) => [special.gammainc(a, x), special.gammaincc(a, x)],
    "(special.gammainc(a, b), special.gammaincc(a, b))",
    { loose: 32, grad2: false },
  ),
  plain(
    "special.gammainc: edges",
    ["float64"],
    exact([1, 1, 0.5, -1, NaN, 2, 300], [0, Infinity, 1e-12, 1, 1, -1, 310]),
    (a, x) => [special.gammainc(a, x), special.gammaincc(a, x)],
    "(special.gammainc(a, b), special.gammaincc(a, b))",
    { ...none, loose: 4096 },
  ),
  plain(
    "special.gammaincc: small tails",
    ["float64"],
    exact([0.5, 3, 10], [50, 60, 90]),
    (a, x) => special.gammaincc(a, x),
    "special.gammaincc(a, b)",
    { ...none, loose: 256 },
  ),
  plain(
    "special.betainc: broadcasting",
    singles,
    (s) => [s.between(0.5, 9, [3, 4]), s.between(0.5, 9, [4]), s.between(0.05, 0.95, [3, 1])],
    (a, b, x) => special.betainc(a, b, x),
    "special.betainc(a, b, c)",
    { loose: 64, grad2: false },
  ),
  plain(
    "special.betainc: edges",
    ["float64"],
    exact([1, 1, -1, 2, 50], [2, 3, 1, 2, 60], [0, 1, 0.5, 2, 0.4]),
    (a, b, x) => special.betainc(a, b, x),
    "special.betainc(a, b, c)",
    { ...none, loose: 1024 },
  ),
  plain("special.logsumexp: all", floats, anyReal, (x) => special.logsumexp(x), "special.logsumexp(a)"),
  plain(
    "special.softmax: axes",
    floats,
    (s) => [s.any([3, 4])],
    (x) => [special.softmax(x), special.softmax(x, [0, 1]), special.logSoftmax(x, [0, 1])],
    "(special.softmax(a, -1), special.softmax(a), special.log_softmax(a))",
    { loose: 4 },
  ),
  plain(
    "special.logSoftmax: last axis",
    floats,
    (s) => [s.any([3, 4])],
    (x) => special.logSoftmax(x),
    "special.log_softmax(a, -1)",
    { loose: 4 },
  ),
  ...(["erf", "erfc", "digamma", "gammaln", "i0"] as const).map((name) =>
    plain(`special.${name}: as at the top`, ["float64"], positive, (x) => special[name](x), `special.${name}(a)`, {
      loose: 16,
    }),
  ),
  plain("special.erfinv: as at the top", ["float64"], shares, (x) => special.erfinv(x), "special.erfinv(a)", { loose }),
];

const both: Case["inputs"] = (s) => [s.nonzero([3, 4])];
const activations: Case[] = [
  plain("relu6: both ends", floats, exact([-1, 0.5, 5, 7, NaN]), (x) => weft.relu6(x), "np.clip(a, 0, 6)", none),
  plain("relu6: gradient", ["float64"], both, (x) => weft.relu6(x), "np.clip(a, 0, 6)"),
  plain("softsign: both signs", floats, both, (x) => weft.softsign(x), "a / (1 + np.abs(a))"),
  plain("hardSigmoid: both signs", floats, both, (x) => weft.hardSigmoid(x), "np.clip(a + 3, 0, 6) / 6"),
  plain("hardSilu: both signs", floats, both, (x) => weft.hardSilu(x), "a * np.clip(a + 3, 0, 6) / 6"),
  plain("celu: alpha", floats, both, (x) => weft.celu(x, 0.7), "np.where(a > 0, a, 0.7 * np.expm1(a / 0.7))", {
    loose: 2,
  }),
  plain(
    "glu: axes",
    floats,
    (s) => [s.any([4, 6])],
    (x) => [weft.glu(x), weft.glu(x, 0)],
    "(a[:, :3] * special.expit(a[:, 3:]), a[:2] * special.expit(a[2:]))",
    { loose: 2 },
  ),
  plain("squareplus: both signs", floats, both, (x) => weft.squareplus(x), "(a + np.sqrt(a * a + 4)) / 2", {
    loose: 2,
  }),
  plain("threshold: value", floats, both, (x) => weft.threshold(x, 0.25, 20), "np.where(a > 0.25, a, 20)"),
  plain(
    "softshrink: lambda",
    floats,
    both,
    (x) => weft.softshrink(x, 0.25),
    "np.sign(a) * np.maximum(np.abs(a) - 0.25, 0)",
  ),
  plain("hardshrink: lambda", floats, both, (x) => weft.hardshrink(x, 1), "np.where(np.abs(a) > 1, a, 0)"),
  plain("tanhshrink: both signs", floats, both, (x) => weft.tanhshrink(x), "a - np.tanh(a)", { loose: 4 }),
  plain(
    "prelu: slopes",
    floats,
    (s) => [s.nonzero([3, 4]), s.between(0.1, 0.5, [4])],
    (x, slope) => weft.prelu(x, slope),
    "np.where(a > 0, a, a * b)",
  ),
];

const two: Case["inputs"] = (s) => [s.any([3, 4]), s.any([3, 4])];
const signs: Case["inputs"] = (s) => [s.any([3, 4]), s.any([3, 4]), s.exact([3], [1, -1, 1])];
const losses: Case[] = [
  plain(
    "klDivLoss: reductions",
    singles,
    (s) => [s.between(-4, -0.1, [3, 4]), s.between(0, 1, [3, 4])],
    (p, t) => [weft.klDivLoss(p, t), weft.klDivLoss(p, t, { reduction: "none" })],
    "(np.mean(special.xlogy(b, b) - a * b), special.xlogy(b, b) - a * b)",
    { loose: 4, grad: [0] },
  ),
  plain(
    "poissonNllLoss: mean",
    singles,
    (s) => [s.any([3, 4]), s.between(0, 5, [3, 4])],
    (x, t) => weft.poissonNllLoss(x, t),
    "np.mean(np.exp(a) - a * b)",
    { loose: 4 },
  ),
  plain(
    "gaussianNllLoss: mean",
    singles,
    (s) => [s.any([3, 4]), s.any([3, 4]), s.between(0.5, 2, [3, 4])],
    (m, t, v) => weft.gaussianNllLoss(m, t, v),
    "np.mean(0.5 * (np.log(c) + (a - b) ** 2 / c))",
    { loose: 4 },
  ),
  plain(
    "smoothL1Loss: beta",
    singles,
    two,
    (p, t) => weft.smoothL1Loss(p, t, { beta: 0.7, reduction: "sum" }),
    "np.sum(np.where(np.abs(a - b) < 0.7, (a - b) ** 2 / 1.4, np.abs(a - b) - 0.35))",
    { loose: 4, grad2: false },
  ),
  plain(
    "marginRankingLoss: margin",
    singles,
    (s) => [s.any([5]), s.any([5]), s.exact([5], [1, -1, 1, 1, -1])],
    (a, b, t) => weft.marginRankingLoss(a, b, t, { margin: 0.5 }),
    "np.mean(np.maximum(0, -c * (a - b) + 0.5))",
    { grad: [0, 1], grad2: false },
  ),
  plain(
    "hingeEmbeddingLoss: margin",
    singles,
    (s) => [s.any([5]), s.exact([5], [1, -1, 1, 1, -1])],
    (x, t) => weft.hingeEmbeddingLoss(x, t),
    "np.mean(np.where(b == 1, a, np.maximum(0, 1 - a)))",
    { grad: [0], grad2: false },
  ),
  plain(
    "cosineEmbeddingLoss: margin",
    singles,
    signs,
    (a, b, t) => weft.cosineEmbeddingLoss(a, b, t, { margin: 0.1 }),
    "np.mean(np.where(c == 1, 1 - cosine(a, b), np.maximum(0, cosine(a, b) - 0.1)))",
    { grad: [0, 1], grad2: false, loose: 4 },
  ),
  plain(
    "tripletMarginLoss: margin",
    singles,
    (s) => [s.any([3, 4]), s.any([3, 4]), s.any([3, 4])],
    (a, p, n) => weft.tripletMarginLoss(a, p, n),
    "np.mean(np.maximum(0, np.linalg.norm(a - b + 1e-6, axis=-1) - np.linalg.norm(a - c + 1e-6, axis=-1) + 1))",
    { grad2: false, loose: 4 },
  ),
  plain(
    "ctcLoss: lengths and repeated labels",
    singles,
    (s) => [
      s.any([5, 3, 4]),
      s.exact([3, 3], [1, 2, 2, 3, 1, 0, 1, 1, 1], "int32"),
      s.exact([3], [5, 4, 5], "int32"),
      s.exact([3], [3, 2, 1], "int32"),
    ],
    (x, labels, frames, counts) => {
      const p = weft.logSoftmax(x);
      return [weft.ctcLoss(p, labels, frames, counts, { reduction: "none" }), weft.ctcLoss(p, labels, frames, counts)];
    },
    "ctc(a, b, c, d)",
    { grad: [0], grad2: false, vmap: false, loose: 16 },
  ),
  plain(
    "ctcLoss: more labels than frames, no labels",
    ["float64"],
    (s) => [
      s.any([2, 2, 3]),
      s.exact([2, 2], [1, 1, 0, 0], "int32"),
      s.exact([2], [2, 2], "int32"),
      s.exact([2], [2, 0], "int32"),
    ],
    (x, labels, frames, counts) => weft.ctcLoss(weft.logSoftmax(x), labels, frames, counts, { reduction: "none" }),
    "ctc(a, b, c, d)[0]",
    { ...none, vmap: false, loose: 16 },
  ),
];

export const specials: readonly Case[] = [...functions, ...activations, ...losses];
