// Inputs that every contestant generates for itself, equal to the last bit, from a hash of the element's index; and the
// exact values that results are checked against. peers/hashed.py is the same hash in Python.

/** Finalizer of MurmurHash3: 32 well-mixed bits of an index and a salt. */
export function hash(index: number, salt: number): number {
  let h = (Math.imul(index, 0x9e3779b1) + Math.imul(salt, 0x85ebca77)) | 0;
  h = Math.imul(h ^ (h >>> 16), 0x85ebca6b);
  h = Math.imul(h ^ (h >>> 13), 0xc2b2ae35);
  return (h ^ (h >>> 16)) >>> 0;
}

const between = (index: number, salt: number, low: number, high: number): number =>
  low + (high - low) * (hash(index, salt) / 2 ** 32);

/** float32 numbers in [low, high). */
export function uniformNumbers(count: number, salt: number, low = -1, high = 1): Float32Array {
  const data = new Float32Array(count);
  for (let i = 0; i < count; i++) data[i] = between(i, salt, low, high);
  return data;
}

/** int32 numbers in [0, below). */
export function hashedIntegers(count: number, salt: number, below: number): Int32Array {
  const data = new Int32Array(count);
  for (let i = 0; i < count; i++) data[i] = hash(i, salt) % below;
  return data;
}

/** Indices at which a large result is compared. */
export const sampleIndices = (size: number, count = 200): number[] =>
  Array.from({ length: count }, (_, i) => hash(i, 999) % size);

export interface MlpSize {
  sizes: number[];
  batch: number;
}
export const mlpSize: MlpSize = { sizes: [784, 512, 512, 10], batch: 256 };

interface DenseLayer {
  out: number;
  inputs: number;
  weight: Float32Array;
  bias: Float32Array;
}

/** Weights [out, in] and biases of a multilayer perceptron. */
export function mlpParameters({ sizes } = mlpSize): DenseLayer[] {
  return sizes.slice(1).map((out, i) => {
    const inputs = sizes[i];
    const bound = 1 / Math.sqrt(inputs);
    const weight = uniformNumbers(out * inputs, 10 + 2 * i, -bound, bound);
    return { out, inputs, weight, bias: uniformNumbers(out, 11 + 2 * i, -bound, bound) };
  });
}

export const mlpBatch = ({ sizes, batch } = mlpSize): { x: Float32Array; y: Int32Array } => ({
  x: uniformNumbers(batch * sizes[0], 1, 0, 1),
  y: hashedIntegers(batch, 2, sizes.at(-1)!),
});

/** Initial value of parameter number `index` (in alphabetical order of names); norms start at 1 and 0. */
export function transformerParameter(name: string, shape: readonly number[], index: number): Float32Array {
  const count = shape.reduce((n, d) => n * d, 1);
  if (/norm\d\.weight$/.test(name)) return new Float32Array(count).fill(1);
  if (/norm\d\.bias$/.test(name)) return new Float32Array(count);
  const bound = name === "embedding.weight" ? Math.sqrt(3) : 1 / Math.sqrt(shape.at(-1)!);
  return uniformNumbers(count, 100 + index, -bound, bound);
}

/** One element of softmax or layer norm over rows of uniform(..., 5, -4, 4), in float64. */
export function rowValue(kind: "softmax" | "layer-norm", width: number, index: number): number {
  const first = index - (index % width);
  const values = Array.from({ length: width }, (_, i) => Math.fround(between(first + i, 5, -4, 4)));
  const x = values[index % width];
  if (kind === "softmax") {
    const top = Math.max(...values);
    return Math.exp(x - top) / values.reduce((s, v) => s + Math.exp(v - top), 0);
  }
  const mean = values.reduce((s, v) => s + v, 0) / width;
  const variance = values.reduce((s, v) => s + (v - mean) ** 2, 0) / width;
  const weight = Math.fround(between(index % width, 6, 0.5, 1.5));
  const bias = Math.fround(between(index % width, 7, 0, 1));
  return ((x - mean) / Math.sqrt(variance + 1e-5)) * weight + bias;
}

/** One real or imaginary part of a batch of products of complex n x n matrices, stored as pairs. */
export function complexProductValue(a: Float32Array, b: Float32Array, n: number, index: number): number {
  const imaginary = index % 2;
  const element = (index - imaginary) / 2;
  const [matrix, row, column] = [Math.floor(element / (n * n)), Math.floor(element / n) % n, element % n];
  let sum = 0;
  for (let k = 0; k < n; k++) {
    const [p, q] = [2 * (matrix * n * n + row * n + k), 2 * (matrix * n * n + k * n + column)];
    sum += imaginary === 1 ? a[p] * b[q + 1] + a[p + 1] * b[q] : a[p] * b[q] - a[p + 1] * b[q + 1];
  }
  return sum;
}

/** The element-wise chain of the benchmark in float64. */
export const chainValue = (x: number): number => Math.max(Math.exp(-(x * x) * 0.5) * 1.5 + 0.25, 0.3) - 0.1;

/** Freivalds' test: |A (B r) - C r| for a random sign vector r, relative to the largest rounding error; above 1 is wrong. */
export function freivalds(a: Float32Array, b: Float32Array, c: ArrayLike<number>, n: number): number {
  const signs = Float64Array.from({ length: n }, (_, i) => (hash(i, 77) & 1 ? 1 : -1));
  const times = (m: ArrayLike<number>, v: Float64Array): Float64Array =>
    Float64Array.from({ length: n }, (_, i) => {
      let sum = 0;
      for (let j = 0; j < n; j++) sum += m[i * n + j] * v[j];
      return sum;
    });
  const [expected, actual] = [times(a, times(b, signs)), times(c, signs)];
  const room = 2 ** -24 * n * Math.sqrt(n);
  return expected.reduce((worst, e, i) => Math.max(worst, Math.abs(e - actual[i]) / room), 0);
}
