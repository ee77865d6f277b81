// `nn`, `lax`, `random` and `scipySpecial` of jax-js over Weft.
import { Array, inner, keep, lift, tensorOf, unwrap, weft, wrap } from "./array.mjs";
import { lax as laxLinalg } from "./linalg.mjs";

const JsArray = globalThis.Array;
const range = (n) => JsArray.from({ length: n }, (_, i) => i);

const attention = (q, k, v, options = {}) => {
  const [query, key, value] = [q, k, v].map((x) => tensorOf(x));
  if (query.rank !== key.rank || query.rank !== value.rank || ![3, 4].includes(query.rank))
    throw new Error("attention: ranks");
  if (JSON.stringify(key.shape) !== JSON.stringify(value.shape)) throw new Error("attention: shapes");
  const flat = query.rank === 3;
  const [a, b, c] = [query, key, value].map((t) => (flat ? t.unsqueeze(0) : t));
  const groups = a.shape[2] / b.shape[2];
  if (!Number.isInteger(groups)) throw new Error("attention: heads");
  const heads = (t, n = 1) => weft.transpose(n === 1 ? t : weft.repeat(t, n, 2), 1, 2);
  const [length, others] = [a.shape[1], b.shape[1]];
  const { bias, mask, scale, isCausal, querySeqLengths, keyValueSeqLengths, localWindowSize } = options;
  const masks = [];
  if (mask !== undefined) masks.push(tensorOf(mask));
  if (isCausal) masks.push(weft.tri(length, { columns: others, dtype: "bool" }));
  if (localWindowSize !== undefined) {
    const [before, after] = typeof localWindowSize === "number" ? [localWindowSize, localWindowSize] : localWindowSize;
    if (before < 0 || after < 0 || !Number.isInteger(before + after)) throw new Error("attention: window");
    const band = (k2) => weft.tri(length, { columns: others, k: k2, dtype: "bool" });
    masks.push(weft.logicalAnd(band(after), weft.logicalNot(band(-before - 1))));
  }
  const below = (n, lengths, axis) =>
    weft
      .arange(0, n, 1, { dtype: "int32" })
      .reshape(axis === 2 ? [1, 1, n, 1] : [1, 1, 1, n])
      .less(tensorOf(lengths).reshape([-1, 1, 1, 1]));
  if (querySeqLengths !== undefined) masks.push(below(length, querySeqLengths, 2));
  if (keyValueSeqLengths !== undefined) masks.push(below(others, keyValueSeqLengths, 3));
  let added = bias === undefined ? undefined : tensorOf(bias);
  for (const m of masks) added = weft.where(m, added ?? 0, -Infinity);
  const out = weft.scaledDotProductAttention(heads(a), heads(b, groups), heads(c, groups), { mask: added, scale });
  const back = weft.transpose(out, 1, 2);
  return wrap(flat ? back.squeeze(0) : back);
};

export const nn = {
  ...Object.fromEntries(
    Object.entries({
      relu: "relu",
      relu6: "relu6",
      sigmoid: "sigmoid",
      softplus: "softplus",
      softSign: "softsign",
      silu: "silu",
      swish: "silu",
      logSigmoid: "logSigmoid",
      leakyRelu: "leakyRelu",
      hardSigmoid: "hardSigmoid",
      hardSilu: "hardSilu",
      hardSwish: "hardSilu",
      hardTanh: "hardtanh",
      elu: "elu",
      celu: "celu",
      selu: "selu",
      glu: "glu",
      squareplus: "squareplus",
      mish: "mish",
    }).map(([name, ours]) => [name, (...args) => lift(weft[ours])(...args)]),
  ),
  log1mexp: (x) => wrap(weft.special.log1mexp(unwrap(x))),
  identity: (x) => wrap(tensorOf(x)),
  gelu: (x, { approximate = true } = {}) => wrap(weft.gelu(unwrap(x), { approximate })),
  softmax: (x, axis = -1) => wrap(weft.softmax(unwrap(x), axis ?? range(tensorOf(x).rank))),
  logSoftmax: (x, axis = -1) => wrap(weft.logSoftmax(unwrap(x), axis ?? range(tensorOf(x).rank))),
  logsumexp: (x, axis = null, options) => wrap(weft.logsumexp(unwrap(x), axis ?? undefined, keep(options))),
  logmeanexp: (x, axis = null, options) => {
    const t = tensorOf(x);
    const axes = axis === null ? range(t.rank) : [axis].flat();
    return wrap(weft.logsumexp(t, axes, keep(options)).sub(Math.log(axes.reduce((n, a) => n * t.shape.at(a), 1))));
  },
  standardize: (x, axis = -1, { epsilon = 1e-5 } = {}) => {
    const t = tensorOf(x);
    const options = { keepDims: true };
    return wrap(t.sub(t.mean(axis, options)).div(weft.sqrt(t.var(axis, options).add(epsilon))));
  },
  oneHot: (x, count) => wrap(weft.oneHot(unwrap(x), count)),
  dotProductAttention: attention,
};

/** Zeros between the elements of the spatial axes. */
const dilated = (t, by) =>
  by.reduce((x, d, i) => {
    const axis = i + 2;
    if (d === 1 || x.shape[axis] === 0) return x;
    const n = x.shape[axis];
    const spread = weft.pad(
      x.unsqueeze(axis + 1),
      range(x.rank + 1).map((k) => [0, k === axis + 1 ? d - 1 : 0]),
    );
    const merged = spread.reshape(x.shape.map((size, k) => (k === axis ? n * d : size)));
    return weft.slice(
      merged,
      merged.shape.map(() => 0),
      merged.shape.map((size, k) => (k === axis ? (n - 1) * d + 1 : size)),
    );
  }, t);

const samePads = (x, w, strides, dilation, lower) =>
  strides.map((s, i) => {
    const size = x.shape[i + 2];
    const total = Math.max(0, (Math.ceil(size / s) - 1) * s + 1 + (w.shape[i + 2] - 1) * dilation[i] - size);
    return lower ? [total - (total >> 1), total >> 1] : [total >> 1, total - (total >> 1)];
  });

function convGeneralDilated(lhs, rhs, strides, padding, { lhsDilation, rhsDilation, featureGroupCount = 1 } = {}) {
  const [x, w] = [tensorOf(lhs), tensorOf(rhs)];
  const n = x.rank - 2;
  if (n < 0 || w.rank !== x.rank) throw new Error("conv: ranks");
  const dilation = rhsDilation ?? range(n).map(() => 1);
  if (typeof padding === "string" && lhsDilation?.some((d) => d !== 1)) throw new Error("conv: padding as a string");
  const pads =
    padding === "VALID"
      ? range(n).map(() => [0, 0])
      : typeof padding === "string"
        ? samePads(x, w, strides, dilation, padding === "SAME_LOWER")
        : padding;
  let source = dilated(x, lhsDilation ?? range(n).map(() => 1));
  // Negative padding crops.
  const crop = pads.map(([a, b]) => [Math.max(0, -a), Math.max(0, -b)]);
  if (crop.flat().some((k) => k > 0))
    source = weft.slice(
      source,
      [0, 0, ...crop.map(([a]) => a)],
      [...source.shape.slice(0, 2), ...crop.map(([, b], i) => source.shape[i + 2] - b)],
    );
  if (n === 0) return wrap(weft.matmul(source, weft.transpose(w)));
  return wrap(
    weft[`conv${n}d`](source, w, {
      stride: strides,
      padding: pads.map(([a, b]) => [Math.max(0, a), Math.max(0, b)]),
      dilation,
      groups: featureGroupCount,
    }),
  );
}

const transposePads = (k, s, padding) => {
  if (JsArray.isArray(padding)) return padding.map((p) => k - 1 - p);
  const total = padding === "SAME" ? k + s - 2 : k + s - 2 + Math.max(k - s, 0);
  const first = padding === "SAME" ? (s > k - 1 ? k - 1 : Math.ceil(total / 2)) : k - 1;
  return [first, total - first];
};

export const lax = {
  linalg: laxLinalg,
  erf: lift(weft.erf),
  erfc: lift(weft.erfc),
  stopGradient: lift(weft.stopGradient),
  bitcastConvertType: (x, dtype) => wrap(weft.bitcast(tensorOf(x), dtype)),
  topK: (x, k, axis) => {
    const { values, indices } = weft.topk(tensorOf(x), k, axis);
    return [wrap(values), wrap(indices)];
  },
  conv: convGeneralDilated,
  convGeneralDilated,
  convWithGeneralPadding: (x, w, s, p, lhsDilation, rhsDilation) =>
    convGeneralDilated(x, w, s, p, { lhsDilation, rhsDilation }),
  convTranspose: (x, w, strides, padding, { rhsDilation, transposeKernel = false } = {}) => {
    const kernel = tensorOf(w);
    const n = kernel.rank - 2;
    const dilation = rhsDilation ?? range(n).map(() => 1);
    const pads = range(n).map((i) =>
      transposePads(
        (kernel.shape[i + 2] - 1) * dilation[i] + 1,
        strides[i],
        typeof padding === "string" ? padding : padding[i],
      ),
    );
    const turned = transposeKernel
      ? weft.transpose(
          weft.flip(
            kernel,
            range(n).map((i) => i + 2),
          ),
          0,
          1,
        )
      : kernel;
    return convGeneralDilated(
      x,
      wrap(turned),
      range(n).map(() => 1),
      pads,
      { lhsDilation: strides, rhsDilation: dilation },
    );
  },
  reduceWindow: (x, fn, window, strides) => {
    const t = tensorOf(x);
    const lead = t.rank - window.length;
    if (lead < 0) throw new Error("reduceWindow: more sizes than axes");
    const views = weft.slidingWindow(t, window, { stride: strides ?? 1 });
    const rows = views.reshape([-1, ...window]);
    const out = weft.vmap(inner(fn))(rows);
    return wrap(out.reshape(views.shape.slice(0, t.rank)));
  },
  dot: (x, y, { lhsContractingDims = [], rhsContractingDims = [], lhsBatchDims = [], rhsBatchDims = [] } = {}) => {
    const [a, b] = [tensorOf(x), tensorOf(y)];
    const names = [..."abcdefghijklmnopqrstuvwxyz"];
    const at = (t, axes) => axes.map((axis) => (axis < 0 ? axis + t.rank : axis));
    const [left, right] = [range(a.rank).map(() => names.shift()), range(b.rank).map(() => names.shift())];
    const [lb, rb, lc, rc] = [
      at(a, lhsBatchDims),
      at(b, rhsBatchDims),
      at(a, lhsContractingDims),
      at(b, rhsContractingDims),
    ];
    rb.forEach((axis, i) => {
      right[axis] = left[lb[i]];
    });
    rc.forEach((axis, i) => {
      right[axis] = left[lc[i]];
    });
    const free = (list, used) => list.filter((_, i) => !used.includes(i));
    const out = [...lb.map((i) => left[i]), ...free(left, [...lb, ...lc]), ...free(right, [...rb, ...rc])];
    return wrap(weft.einsum(`${left.join("")},${right.join("")}->${out.join("")}`, a, b));
  },
};

export const scipySpecial = {
  erf: lift(weft.erf),
  erfc: lift(weft.erfc),
  logit: (x) => wrap(weft.special.logit(unwrap(x))),
  logsumexp: nn.logsumexp,
  softmax: nn.softmax,
  logSoftmax: nn.logSoftmax,
};

const drawn =
  (fn) =>
  (key, ...rest) =>
    wrap(fn(tensorOf(key), ...rest));
export const random = {
  key: (seed) => wrap(weft.key(typeof seed === "number" ? seed : tensorOf(seed))),
  split: (key, count = 2) => {
    const total = typeof count === "number" ? count : count.reduce((a, b) => a * b, 1);
    const keys = weft.splitKey(tensorOf(key), total);
    return wrap(typeof count === "number" ? keys : keys.reshape([...count, ...keys.shape.slice(1)]));
  },
  bits: drawn((key, shape = []) => weft.randint(0, 2 ** 32, shape, { key, dtype: "uint32" })),
  uniform: drawn((key, shape = [], { minval = 0, maxval = 1 } = {}) =>
    weft.rand(shape, { key, low: minval, high: maxval }),
  ),
  normal: drawn((key, shape = []) => weft.randn(shape, { key })),
  bernoulli: drawn((key, p = 0.5, shape = []) => weft.rand(shape, { key }).less(unwrap(p))),
  gumbel: drawn((key, shape = []) => weft.gumbel(shape, { key })),
  laplace: drawn((key, shape = []) => weft.laplace(shape, { key })),
  exponential: drawn((key, shape = []) => weft.exponential(shape, { key })),
  cauchy: drawn((key, shape = []) => weft.cauchy(shape, { key })),
  logistic: drawn((key, shape = []) => weft.logistic(shape, { key })),
  rayleigh: drawn((key, scale = 1, shape = []) => weft.rayleigh(shape, { key }).mul(unwrap(scale))),
  lognormal: drawn((key, sigma = 1, shape = []) => weft.exp(weft.randn(shape, { key }).mul(unwrap(sigma)))),
  pareto: drawn((key, b, shape = []) => weft.pareto(b, shape, { key })),
  weibullMin: drawn((key, scale, concentration, shape = []) => weft.weibull(concentration, shape, { key }).mul(scale)),
  geometric: drawn((key, p, { shape = [] } = {}) => weft.geometric(p, shape, { key })),
  triangular: drawn((key, low, mode, high, shape = []) => weft.triangular(low, mode, high, shape, { key })),
  rademacher: drawn((key, { shape = [] } = {}) => weft.where(weft.bernoulli(0.5, shape, { key }), 1, -1).cast("int32")),
  randint: drawn((key, { shape = [], minval, maxval }) => weft.randint(minval, maxval, shape, { key })),
  choice: drawn((key, x, { shape = [], ...options } = {}) =>
    weft.choice(typeof x === "number" ? x : tensorOf(x), shape, { key, ...options }),
  ),
  maxwell: drawn((key, shape = []) => weft.norm(weft.randn([...shape, 3], { key }), -1)),
  doubleSidedMaxwell: drawn((key, loc, scale, shape = []) => {
    const [a, b] = weft.unstack(weft.splitKey(key, 2));
    const size = weft.norm(weft.randn([...shape, 3], { key: a }), -1);
    return weft
      .where(weft.bernoulli(0.5, shape, { key: b }), size, size.neg())
      .mul(scale)
      .add(loc);
  }),
  ball: drawn((key, d, { shape = [] } = {}) => {
    const [a, b] = weft.unstack(weft.splitKey(key, 2));
    const z = weft.randn([...shape, d], { key: a });
    return z.div(weft.norm(z, -1, { keepDims: true })).mul(weft.pow(weft.rand([...shape, 1], { key: b }), 1 / d));
  }),
  permutation: drawn((key, x, axis = 0) =>
    typeof x === "number" ? weft.permutation(x, { key }) : weft.shuffle(tensorOf(x), axis, { key }),
  ),
  categorical: drawn((key, logits, { axis = -1, shape, replace = true } = {}) => {
    const t = tensorOf(logits);
    const batch = t.shape.toSpliced(axis < 0 ? axis + t.rank : axis, 1);
    const lead = shape === undefined ? [] : shape.slice(0, shape.length - batch.length);
    if (shape !== undefined && JSON.stringify(shape.slice(lead.length)) !== JSON.stringify(batch))
      throw new Error("categorical: shape");
    if (replace) return weft.categorical(t, { key, axis, shape: lead });
    const count = lead.reduce((a, b) => a * b, 1);
    if (count > t.shape.at(axis)) throw new Error("categorical: more samples than classes");
    return weft.topk(t.add(weft.gumbel(t.shape, { key })), count, axis).indices.reshape(shape);
  }),
  multivariateNormal: drawn((key, mean, cov, shape) =>
    weft.multivariateNormal(tensorOf(mean), tensorOf(cov), shape ?? [], { key }),
  ),
};
export { Array };
