// Inputs that every contestant makes for itself, equal to the last bit, from a hash of the element's index; and the
// exact values that results are checked against. peers/torch_cpu.py holds the same hash in Python.

/** Murmur's finaliser: 32 well-mixed bits of an index and a salt. */
export function hash(index, salt) {
  let h = (Math.imul(index, 0x9e3779b1) + Math.imul(salt, 0x85ebca77)) | 0;
  h = Math.imul(h ^ (h >>> 16), 0x85ebca6b);
  h = Math.imul(h ^ (h >>> 13), 0xc2b2ae35);
  return (h ^ (h >>> 16)) >>> 0;
}

/** float32 numbers in [low, high). */
export function uniform(count, salt, low = -1, high = 1) {
  const data = new Float32Array(count);
  for (let i = 0; i < count; i++) data[i] = low + (high - low) * (hash(i, salt) / 2 ** 32);
  return data;
}

/** int32 numbers in [0, below). */
export function integers(count, salt, below) {
  const data = new Int32Array(count);
  for (let i = 0; i < count; i++) data[i] = hash(i, salt) % below;
  return data;
}

/** Places that are looked at in large results. */
export const places = (size, count = 200) => Array.from({ length: count }, (_, i) => hash(i, 999) % size);

// The multilayer perceptron: weights [out, in] and biases.
export const mlp = { sizes: [784, 512, 512, 10], batch: 256 };
export function mlpParameters() {
  return mlp.sizes.slice(1).map((out, i) => {
    const inputs = mlp.sizes[i];
    const bound = 1 / Math.sqrt(inputs);
    return {
      out,
      inputs,
      weight: uniform(out * inputs, 10 + 2 * i, -bound, bound),
      bias: uniform(out, 11 + 2 * i, -bound, bound),
    };
  });
}
export const mlpBatch = () => ({ x: uniform(mlp.batch * 784, 1, 0, 1), y: integers(mlp.batch, 2, 10) });

// The text classifier of the data-parallel training study.
export const transformer = {
  vocabulary: 20000,
  width: 128,
  heads: 4,
  layers: 2,
  feedForward: 256,
  classes: 4,
  batch: 32,
  length: 128,
};
export const transformerBatch = () => ({
  ids: integers(transformer.batch * transformer.length, 3, transformer.vocabulary),
  labels: integers(transformer.batch, 4, transformer.classes),
});
/** The value of parameter number `index` (in the alphabetic order of names): norms start at 1 and 0. */
export function transformerParameter(name, shape, index) {
  const count = shape.reduce((n, d) => n * d, 1);
  if (/norm\d\.weight$/.test(name)) return new Float32Array(count).fill(1);
  if (/norm\d\.bias$/.test(name)) return new Float32Array(count);
  const bound = name === "embedding.weight" ? Math.sqrt(3) : 1 / Math.sqrt(shape.at(-1));
  return uniform(count, 100 + index, -bound, bound);
}

/** One element of softmax or layer norm over rows of uniform(…, salt, -4, 4), in float64. */
export function rowValue(kind, width, salt, place) {
  const row = Math.floor(place / width);
  const values = Array.from({ length: width }, (_, i) => Math.fround(-4 + 8 * (hash(row * width + i, salt) / 2 ** 32)));
  const x = values[place % width];
  if (kind === "softmax") {
    const top = Math.max(...values);
    return Math.exp(x - top) / values.reduce((s, v) => s + Math.exp(v - top), 0);
  }
  const mean = values.reduce((s, v) => s + v, 0) / width;
  const variance = values.reduce((s, v) => s + (v - mean) ** 2, 0) / width;
  const column = place % width;
  const weight = Math.fround(0.5 + hash(column, salt + 1) / 2 ** 32);
  const bias = Math.fround(hash(column, salt + 2) / 2 ** 32);
  return ((x - mean) / Math.sqrt(variance + 1e-5)) * weight + bias;
}

/** One part (real or imaginary) of a product of batches of complex matrices n x n, stored as pairs. */
export function complexProductValue(a, b, n, place) {
  const imaginary = place % 2;
  const element = (place - imaginary) / 2;
  const [matrix, row, column] = [Math.floor(element / (n * n)), Math.floor(element / n) % n, element % n];
  let sum = 0;
  for (let k = 0; k < n; k++) {
    const [p, q] = [2 * (matrix * n * n + row * n + k), 2 * (matrix * n * n + k * n + column)];
    sum += imaginary === 1 ? a[p] * b[q + 1] + a[p + 1] * b[q] : a[p] * b[q] - a[p + 1] * b[q + 1];
  }
  return sum;
}

export const chainValue = (x) => Math.max(Math.exp(-(x * x) * 0.5) * 1.5 + 0.25, 0.3) - 0.1;

/** Freivalds: |A (B r) - C r| for a random sign vector r, as a share of what rounding explains at most; above 1 is wrong. */
export function freivalds(a, b, c, n) {
  const r = Float64Array.from({ length: n }, (_, i) => (hash(i, 77) & 1 ? 1 : -1));
  const times = (m, v) => {
    const out = new Float64Array(n);
    for (let i = 0; i < n; i++) {
      let sum = 0;
      for (let j = 0, at = i * n; j < n; j++, at++) sum += m[at] * v[j];
      out[i] = sum;
    }
    return out;
  };
  const expected = times(a, times(b, r));
  const actual = times(c, r);
  const room = 2 ** -24 * n * Math.sqrt(n);
  return expected.reduce((worst, e, i) => Math.max(worst, Math.abs(e - actual[i]) / room), 0);
}
