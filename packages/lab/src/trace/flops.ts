// Floating-point operations and bytes of PyTorch operators from the shapes of their inputs. Operations are counted as PyTorch's
// own counter does: two per multiplication and addition of a matrix product, attention without a discount for masks. Bytes are
// a lower bound: every input read once, every output written once.
import { bytesOfDtype } from "./kinds.js";
import type { OperatorInputs } from "./shapes.js";

const product = (sizes: readonly number[]): number => sizes.reduce((n, size) => n * size, 1);

/** The sizes of input `i` if it is a tensor. */
function tensor(inputs: OperatorInputs, i: number): readonly number[] | null {
  const sizes = inputs.dims[i];
  return sizes?.every((size) => typeof size === "number") ? (sizes as readonly number[]) : null;
}

/** Bytes of input `i`; 0 where it is no tensor. */
function bytesOf(inputs: OperatorInputs, i: number): number {
  const size = elementBytes(inputs.types[i]);
  return size === 0 ? 0 : size * product(tensor(inputs, i) ?? [0]);
}

const elementBytes = (type: string | undefined): number => bytesOfDtype(type ?? "") ?? 0;

interface Matrix {
  flops: number;
  /** Elements of the results. */
  out: number;
}

/** A product of [..., m, k] and [..., k, n]. */
function matrixProduct(a: readonly number[] | null, b: readonly number[] | null): Matrix | null {
  if (a === null || b === null || a.length < 2 || b.length < 2 || a.at(-1) !== b.at(-2)) return null;
  const out = product(a.slice(0, -1)) * (b.at(-1) ?? 0);
  return { flops: 2 * out * (a.at(-1) ?? 0), out };
}

/** "[1, 2]" and "1" as numbers. */
function numbers(text: string | undefined): number[] | null {
  const found = text?.match(/-?\d+/g)?.map(Number);
  return found === undefined || text?.includes("'") ? null : found;
}

function convolution(inputs: OperatorInputs): Matrix | null {
  const x = tensor(inputs, 0);
  const weight = tensor(inputs, 1);
  const [stride, padding, dilation] = [3, 4, 5].map((i) => numbers(inputs.values[i]));
  if (x === null || weight === null || x.length < 3 || weight.length !== x.length) return null;
  const kernel = weight.slice(2);
  const batch = x[0];
  if (inputs.values[6] === "True")
    return { flops: 2 * batch * product(x.slice(2)) * product(weight), out: batch * product(x.slice(2)) * weight[1] };
  if (stride == null || padding == null || dilation == null) return null;
  const out = x.slice(2).map((size, i) => {
    const at = (list: number[], otherwise: number): number => list[i] ?? list[0] ?? otherwise;
    return Math.floor((size + 2 * at(padding, 0) - at(dilation, 1) * (kernel[i] - 1) - 1) / at(stride, 1)) + 1;
  });
  if (!out.every((size) => size > 0)) return null;
  return { flops: 2 * batch * product(out) * product(weight), out: batch * product(out) * weight[0] };
}

function convolutionBackward(inputs: OperatorInputs): Matrix | null {
  const gradient = tensor(inputs, 0);
  const x = tensor(inputs, 1);
  const weight = tensor(inputs, 2);
  if (gradient === null || x === null || weight === null || gradient.length < 3) return null;
  const spatial = inputs.values[7] === "True" ? x.slice(2) : gradient.slice(2);
  const one = 2 * gradient[0] * product(spatial) * product(weight);
  const mask = inputs.values[10]?.match(/True|False/g) ?? ["True", "True"];
  const wanted = [mask[0] === "True", mask[1] === "True"];
  const out = (wanted[0] ? product(x) : 0) + (wanted[1] ? product(weight) : 0);
  return { flops: one * wanted.filter(Boolean).length, out };
}

/** Attention of queries, keys and values [..., heads, length, size] that are inputs `first` to `first + 2`. */
const attention =
  (first: number, backward: boolean) =>
  (inputs: OperatorInputs): Matrix | null => {
    const [q, k, v] = [first, first + 1, first + 2].map((i) => tensor(inputs, i));
    if (q === null || k === null || v === null || q.length < 3 || k.length < 3 || v.length < 3) return null;
    const scores = product(q.slice(0, -1)) * (k.at(-2) ?? 0);
    const [size, valueSize] = [q.at(-1) ?? 0, v.at(-1) ?? 0];
    // Backward: scores again, and gradients of scores, values, queries and keys.
    const flops = 2 * scores * (backward ? 3 * size + 2 * valueSize : size + valueSize);
    const out = backward ? product(q) + product(k) + product(v) : product(q.slice(0, -1)) * valueSize;
    return { flops, out };
  };

const at =
  (a: number, b: number) =>
  (inputs: OperatorInputs): Matrix | null =>
    matrixProduct(tensor(inputs, a), tensor(inputs, b));

/** Operators whose operations are known. The outermost of nested ones counts. */
const matrixRules: [RegExp, (inputs: OperatorInputs) => Matrix | null][] = [
  [/^aten::(?:mm|bmm|_scaled_mm|_int_mm)$/, at(0, 1)],
  [/^aten::(?:addmm_?|baddbmm_?|_addmm_activation)$/, at(1, 2)],
  [/^aten::(?:_?convolution)$/, convolution],
  [/^aten::convolution_backward$/, convolutionBackward],
  [/^aten::(?:_?scaled_dot_product_(?:\w+_)?attention|_scaled_dot_product_attention_math)$/, attention(0, false)],
  [/^aten::_scaled_dot_product_\w*attention_backward$/, attention(1, true)],
];

const inPlace = /[a-z0-9]_$/;
const readOnce =
  /^aten::(?:sum|mean|amax|amin|max|min|argmax|argmin|norm|linalg_vector_norm|nll_loss\w*_forward|all|any)$/;
const writtenOnly = /^aten::(?:fill_|zero_|uniform_|normal_|random_|bernoulli_|exponential_)$/;
const inputsOnly = /^aten::copy_$/;
/** Element-wise and row-wise operators: a result of the size of the largest input. */
const elementWise =
  /^aten::(?:_?(?:to_copy|softmax|log_softmax|softmax_backward_data|log_softmax_backward_data)|add|sub|mul|div|pow|exp|log|sqrt|rsqrt|neg|abs|sign|erf|tanh|sigmoid|relu|gelu|silu|clamp\w*|threshold_backward|gelu_backward|silu_backward|tanh_backward|sigmoid_backward|where|masked_fill|native_layer_norm|native_layer_norm_backward|native_group_norm|cudnn_batch_norm|cudnn_batch_norm_backward|native_batch_norm|batch_norm_backward|native_dropout|native_dropout_backward|clone|contiguous|lerp|addcmul|addcdiv|nll_loss_backward|cumsum)$/;

/** Whether the operations of an operator are known from its shapes. */
export const hasOperationCount = (name: string): boolean => matrixRules.some(([pattern]) => pattern.test(name));

/** Operations and bytes of one call; null where the rules do not say. */
export function operatorWork(name: string, inputs: OperatorInputs): { flops: number | null; bytes: number | null } {
  const count = inputs.dims.length;
  const read = Array.from({ length: count }, (_, i) => bytesOf(inputs, i));
  const all = read.reduce((sum, bytes) => sum + bytes, 0);
  const rule = matrixRules.find(([pattern]) => pattern.test(name));
  if (rule !== undefined) {
    const found = rule[1](inputs);
    const first = inputs.types.map(elementBytes).find((bytes) => bytes > 0) ?? 0;
    return found === null || !Number.isSafeInteger(found.flops)
      ? { flops: null, bytes: null }
      : { flops: found.flops, bytes: all + found.out * first };
  }
  // The profiler does not record the types inside a list of tensors.
  if (inputs.types.includes("TensorList")) return { flops: null, bytes: null };
  const largest = Math.max(0, ...read);
  const bytes = writtenOnly.test(name)
    ? (read[0] ?? 0)
    : inputsOnly.test(name) || readOnce.test(name)
      ? all
      : inPlace.test(name) && name.startsWith("aten::")
        ? all + (read[0] ?? 0)
        : elementWise.test(name)
          ? all + largest
          : null;
  return { flops: null, bytes };
}

/** Precision of the arithmetic of an operator, by the type of its first floating-point input. */
export function precisionOf({ types }: OperatorInputs): "fp64" | "fp32" | "fp16" | "bf16" | "fp8" | "int8" | null {
  for (const type of types) {
    const name = type.toLowerCase();
    if (name.includes("bfloat16")) return "bf16";
    if (name.includes("float8")) return "fp8";
    if (name.includes("half")) return "fp16";
    if (name === "float") return "fp32";
    if (name === "double") return "fp64";
    if (name === "char" || name === "int8" || name === "signed char") return "int8";
  }
  return null;
}
